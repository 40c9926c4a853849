"""Every readable file behind the paths that were given, as named streams of bytes.

Archives are read member by member without unpacking to disk, so a path inside one cannot escape, and what a member may
grow to is bounded, so a bomb cannot fill memory or time.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from roadworthy.core.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK_BYTES = 4 * 2**20
LINE_MOST_BYTES = 16 * 2**20
"""A line longer than this is cut: some files have no line ends at all."""

EXPANSION_FREE_BYTES = 64 * 2**20
EXPANSION_MOST = 500
"""Compressed text grows about tenfold, logs of one repeated line up to a few hundred times."""

ARCHIVE_DEPTH = 4
SPOOLED_MOST_BYTES = 4 * 2**30
MOST_FILES = 100_000
READ_ERRORS = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,
    NotImplementedError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file. ``open`` gives its bytes, unpacked; ``path`` is where it lies when it is a plain file by itself."""

    name: str
    open: Callable[[], IO[bytes]]
    path: Path | None = None


Skipped = Callable[[str, str], None]
"""Hears (name, reason) of what could not be read."""


def sources(paths: Sequence[Path], skipped: Skipped) -> Iterator[Source]:
    """Every file under ``paths``, folders and archives opened; ``-`` is stdin, and pipes are read once.

    Raises:
        ProbeError: a path that does not exist.
    """
    for path in paths:
        if str(path) == "-":
            yield from _piped("stdin", lambda: os.fdopen(0, "rb", closefd=False), skipped)
        elif not path.exists():
            raise ProbeError(f"{path}: no such file or folder", hint="give log files, a folder or an archive")
        elif path.is_dir():
            yield from _below(path, skipped)
        elif path.is_file():
            yield from _one(path, path.name, skipped)
        else:
            yield from _piped(path.name, _file(path), skipped)


def _below(folder: Path, skipped: Skipped) -> Iterator[Source]:
    for number, inner in enumerate(sorted(one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())):
        if number >= MOST_FILES:
            skipped(str(folder), f"only the first {MOST_FILES:,} files were read")
            return
        yield from _one(inner, str(inner.relative_to(folder)), skipped)


def _one(path: Path, name: str, skipped: Skipped) -> Iterator[Source]:
    try:
        size = path.stat().st_size
    except OSError as error:  # it went away meanwhile
        skipped(name, error.strerror or str(error))
        return
    yield from _opened(name, _file(path), skipped, 0, size, path=path)


def _piped(name: str, open_it: Callable[[], IO[bytes]], skipped: Skipped) -> Iterator[Source]:
    """What can be read once only, laid down so that it can be looked at first."""
    with tempfile.TemporaryFile() as whole:
        try:
            with open_it() as pipe:
                if not _laid_down(pipe, whole):
                    skipped(name, f"only the first {whole.tell():,} bytes were read")
        except OSError as error:
            skipped(name, error.strerror or str(error))
            return
        yield from _opened(name, _again(whole), skipped, 0, whole.tell())


def _laid_down(stream: IO[bytes], whole: IO[bytes]) -> bool:
    """Write ``stream`` to ``whole``; False where it goes on after SPOOLED_MOST_BYTES."""
    while data := stream.read(CHUNK_BYTES):
        whole.write(data)
        if whole.tell() > SPOOLED_MOST_BYTES:
            return False
    return True


def _again(whole: IO[bytes]) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        whole.seek(0)
        return os.fdopen(os.dup(whole.fileno()), "rb")

    return opened


def _file(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _opened(
    name: str, open_it: Callable[[], IO[bytes]], skipped: Skipped, depth: int, packed: int, *, path: Path | None = None
) -> Iterator[Source]:
    try:
        with open_it() as file:
            head = file.read(512)
    except READ_ERRORS as error:
        skipped(name, str(error))
        return
    kind = kind_of(head)
    if depth >= ARCHIVE_DEPTH and kind in ("tar", "zip"):
        skipped(name, f"archives nested deeper than {ARCHIVE_DEPTH}")
    elif kind == "zip":
        yield from _zip(name, open_it, skipped, depth)
    elif kind == "tar":
        yield from _tar(name, open_it, skipped, depth)
    elif kind in DECOMPRESSORS:
        yield from _compressed(name, open_it, kind, skipped, depth, packed)
    else:
        yield Source(name=name, open=open_it, path=path)


def kind_of(head: bytes) -> str:
    """``zip``, ``tar``, ``gzip``, ``bzip2``, ``xz``, ``zstd`` or ``plain``, from the first bytes."""
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"BZh"):
        return "bzip2"
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    return "tar" if head[257:262] == b"ustar" else "plain"


class Unpacked:
    """A compressed stream opened for reading; closing it closes what lies under it too.

    Args:
        packed_bytes: its size; it may grow EXPANSION_MOST times. Reading more is an OSError.
    """

    def __init__(self, kind: str, packed: IO[bytes], packed_bytes: int) -> None:
        self._packed = packed
        self._plain = DECOMPRESSORS[kind](packed)
        self._left = max(EXPANSION_FREE_BYTES, EXPANSION_MOST * packed_bytes)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = self._left + 1
        data = self._plain.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise OSError(f"grows more than {EXPANSION_MOST} times when unpacked: a bomb?")
        return data

    def close(self) -> None:
        self._plain.close()
        self._packed.close()

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _zstd(packed: IO[bytes]) -> IO[bytes]:
    """Zstandard is in no standard library before Python 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdFile(packed)  # type: ignore[no-any-return,unused-ignore]
    try:
        import zstandard
    except ImportError:
        return _ByProgram(packed)  # type: ignore[return-value]
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
    try:
        reader: IO[bytes] = unpacker.stream_reader(packed, read_across_frames=True)
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from None
    return reader


class _ByProgram(io.RawIOBase):
    """What the program `zstd` makes of a stream; it ends with the stream."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__()
        with tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(packed, whole, CHUNK_BYTES)
            whole.seek(0)
            try:
                self._process = subprocess.Popen(
                    ["zstd", "-dcq"], stdin=whole, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            except FileNotFoundError:
                raise OSError("needs `pip install zstandard`, or the program zstd, to be unpacked") from None

    def read(self, size: int = -1) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if not data and size and self._process.wait():
            raise OSError("not whole: zstd cannot unpack it to its end")
        return data

    def close(self) -> None:
        if not self.closed and self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        super().close()


DECOMPRESSORS: dict[str, Callable[[IO[bytes]], IO[bytes] | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    "gzip": lambda packed: gzip.GzipFile(fileobj=packed),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": _zstd,
}
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")


def _unpacked_name(name: str) -> str:
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return re.sub(r"\.t(?:gz|xz|bz2|zst)$", ".tar", name)


def _compressed(
    name: str, open_it: Callable[[], IO[bytes]], kind: str, skipped: Skipped, depth: int, packed: int
) -> Iterator[Source]:
    def opened() -> IO[bytes]:
        return Unpacked(kind, open_it(), packed)  # type: ignore[return-value]

    try:
        with opened() as file:
            head = file.read(512)
    except READ_ERRORS as error:
        skipped(name, f"damaged {kind} file: {error}")
        return
    inner = _unpacked_name(name)
    if kind_of(head) == "tar" and depth < ARCHIVE_DEPTH:
        yield from _tar(inner, opened, skipped, depth)
    else:
        yield Source(name=inner, open=opened)


def _tar(name: str, open_it: Callable[[], IO[bytes]], skipped: Skipped, depth: int) -> Iterator[Source]:
    try:
        with open_it() as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for number, member in enumerate(archive):
                if number >= MOST_FILES:
                    skipped(name, f"only the first {MOST_FILES:,} members were read")
                    return
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    continue
                # the archive is a stream: a member is read now or never
                yield from _opened_now(safe_name(member.name), content, member.size, skipped, depth)
    except READ_ERRORS as error:
        skipped(name, f"damaged archive: {error}")


class _Once:
    """A member of a streamed archive: its head is looked at, then it is read once."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if self._head:
            taken, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
            if 0 <= size <= len(taken):
                return taken
            return taken + (self._rest.read() if size < 0 else self._rest.read(size - len(taken)))
        return self._rest.read() if size < 0 else self._rest.read(size)

    def close(self) -> None:
        """Nothing: the archive owns the stream."""

    def __enter__(self) -> _Once:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _opened_now(name: str, content: IO[bytes], size: int, skipped: Skipped, depth: int) -> Iterator[Source]:
    """A member of a streamed archive, which is read now or never; archives in it are read as they stream by too."""
    head = content.read(512)
    kind = kind_of(head)
    once: IO[bytes] = _Once(head, content)  # type: ignore[assignment]
    if kind in DECOMPRESSORS:
        name = _unpacked_name(name)
        try:
            plain = Unpacked(kind, once, size)
            head = plain.read(512)
        except READ_ERRORS as error:
            skipped(name, f"damaged {kind} file: {error}")
            return
        kind = kind_of(head)
        once = _Once(head, plain)  # type: ignore[assignment,arg-type]
    if kind == "plain":
        yield Source(name=name, open=lambda: once)
    elif depth + 1 >= ARCHIVE_DEPTH:
        skipped(name, f"archives nested deeper than {ARCHIVE_DEPTH}")
    elif kind == "tar":
        yield from _tar(name, lambda: once, skipped, depth + 1)
    elif kind == "zip":
        yield from _spooled(name, once, skipped, depth + 1)
    else:
        skipped(name, f"a {kind} file inside a compressed file is not opened; unpack it")


def _spooled(name: str, content: IO[bytes], skipped: Skipped, depth: int) -> Iterator[Source]:
    """A zip in a stream: its list stands at its end, so that it must lie somewhere first."""
    with tempfile.TemporaryFile() as whole:
        try:
            if not _laid_down(content, whole):
                skipped(name, f"larger than {SPOOLED_MOST_BYTES:,} bytes inside an archive; unpack it")
                return
        except READ_ERRORS as error:
            skipped(name, f"damaged archive: {error}")
            return
        yield from _zip(name, _again(whole), skipped, depth)


def _zip(name: str, open_it: Callable[[], IO[bytes]], skipped: Skipped, depth: int) -> Iterator[Source]:
    try:
        with open_it() as file, zipfile.ZipFile(file) as archive:
            for info in archive.infolist()[:MOST_FILES]:
                if info.is_dir():
                    continue
                if info.file_size > EXPANSION_FREE_BYTES and info.file_size > EXPANSION_MOST * max(
                    1, info.compress_size
                ):
                    skipped(
                        safe_name(info.filename),
                        f"grows {info.file_size // max(1, info.compress_size):,} times: a bomb?",
                    )
                    continue

                def opened(member: zipfile.ZipInfo = info) -> IO[bytes]:
                    return archive.open(member)

                yield from _opened(safe_name(info.filename), opened, skipped, depth + 1, info.compress_size)
    except READ_ERRORS as error:
        skipped(name, f"damaged archive: {error}")


def safe_name(name: str) -> str:
    """The path of a member without what would lead out of a folder; only ever shown, never opened."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    return "/".join(parts) or "unnamed"


def unpacked(source: Source) -> Iterator[bytes]:
    """The bytes of ``source`` as they come. Raises one of READ_ERRORS where it is damaged or grows like a bomb."""
    with source.open() as file:
        while data := file.read(CHUNK_BYTES):
            yield data


def at_line_ends(pieces: Iterable[bytes], *, most_bytes: int | None = None) -> Iterator[bytes]:
    """The same bytes in pieces that end at line ends; a line longer than ``most_bytes`` is cut and ended there."""
    rest = b""
    for piece in pieces:
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield rest + piece[:cut]
            rest = piece[cut:]
        else:
            rest += piece
            if most_bytes is not None and len(rest) > most_bytes:
                yield rest + b"\n"
                rest = b""
    if rest:
        yield rest
