"""What is owed of requests that have no row in the ledger yet, in a file that outlives this process.

One file a process, mapped into memory; one slot a request, taken when its first event is about to go to the client
(or its whole answer) and given back when its row is in the ledger. A stream's tokens stand in its slot before the bytes
that hold them are written, so of a process that is killed at any moment somebody else can bill what was delivered, and
at most one event of each stream more. Writing to the map costs no system call; the kernel keeps the pages of a process
that died. What a machine loses that loses its power is not in it.

The owner holds a lock on its file for as long as it lives. Whoever gets the lock of a file knows that its owner is dead
(``left_behind``): the supervisor when a worker ends, and every gateway when it starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.core.errors import ProbeError
from roadworthy.route.ledger import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOTS = 16_384
"""Requests at once, those included that wait for the ledger to be written. What comes on top is not in the journal."""

_MAGIC = b"roadworthy journal 1\n"
_HEAD_BYTES = 512
_SLOT_BYTES = 512
_WORD_BYTES = 8
_SLOT_WORDS = _SLOT_BYTES // _WORD_BYTES
# words of a slot
_STATE, _PROMPT, _OUTPUT, _CACHED, _STARTED_US, _STATUS, _ESTIMATED, _TEXT_BYTES = range(8)
_ENDING_AT, _ENDING_BYTES = 8 * _WORD_BYTES, 32
_put_over = struct.Struct(f"=8Q{_ENDING_BYTES}s").pack_into
_TEXT_AT = _ENDING_AT + _ENDING_BYTES
_TEXT_MOST = _SLOT_BYTES - _TEXT_AT
_FREE, _RUNNING, _OVER = 0, 1, 2

WORKER_DIED = "worker_died"
"""How a request ended that its process did not live to end."""

_SUFFIX = ".journal"


class Journal:
    """The journal of this process.

    Args:
        folder: where it lies, with those of others; made if need be.
        worker: which of several processes this is.

    Raises:
        ProbeError: the folder cannot be written.
    """

    def __init__(self, folder: Path, *, worker: str = "", slots: int = SLOTS) -> None:
        size = _HEAD_BYTES + slots * _SLOT_BYTES
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        unnamed = folder / f"{name}.new"
        self._path = folder / f"{name}{_SUFFIX}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = unnamed.open("xb+")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(size)  # sparse: pages come with use
            self._file.write((_MAGIC + worker.encode()).ljust(_HEAD_BYTES, b"\0"))
            self._file.flush()
            unnamed.rename(self._path)  # nobody sees it unlocked
        except OSError as error:
            raise ProbeError(
                f"the journal of what is owed cannot be kept in {folder}: {error.strerror or error}",
                hint="give gateway.state_url a place that can be written",
            ) from error
        self._map = mmap.mmap(self._file.fileno(), size)
        self._words = memoryview(self._map).cast("Q")
        self._free = list(range(slots - 1, -1, -1))  # the lowest first: few pages are ever touched
        self.left_out = 0

    @property
    def taken(self) -> int:
        """Requests in it now."""
        return (self._words.nbytes - _HEAD_BYTES) // _SLOT_BYTES - len(self._free)

    def begin(
        self, request_id: str, tenant_id: str, model: str, endpoint: str, operation: str, started_s: float
    ) -> int | None:
        """A slot for a request whose answer is about to go out, with nothing delivered yet; None when all are taken.

        Args:
            started_s: seconds of the epoch.
        """
        if not self._free:
            self.left_out += 1
            return None
        slot = self._free.pop()
        at = _HEAD_BYTES + slot * _SLOT_BYTES
        text = f"{request_id}\0{tenant_id}\0{operation}\0{endpoint}\0{model}".encode()[:_TEXT_MOST]
        word, words = at // _WORD_BYTES, self._words
        words[word + _PROMPT] = words[word + _OUTPUT] = words[word + _CACHED] = 0
        words[word + _STARTED_US] = int(started_s * 1e6)
        words[word + _STATUS], words[word + _ESTIMATED] = 200, 1
        words[word + _TEXT_BYTES] = len(text)
        self._map[at + _TEXT_AT : at + _TEXT_AT + len(text)] = text
        words[word + _STATE] = _RUNNING  # last: a slot that counts is whole
        return slot

    def put(
        self, request_id: str, tenant_id: str, model: str, endpoint: str, operation: str, started_s: float,
        *, prompt_tokens: int, output_tokens: int, cached_tokens: int, status: int, estimated: bool, ending: str,
    ) -> int | None:  # fmt: skip
        """``begin`` and ``end`` in one, for a request that is over before any of its answer went out."""
        if not self._free:
            self.left_out += 1
            return None
        slot = self._free.pop()
        at = _HEAD_BYTES + slot * _SLOT_BYTES
        text = f"{request_id}\0{tenant_id}\0{operation}\0{endpoint}\0{model}".encode()[:_TEXT_MOST]
        self._map[at + _TEXT_AT : at + _TEXT_AT + len(text)] = text  # before the state, which makes it count
        _put_over(
            self._map, at, _OVER, prompt_tokens, output_tokens, cached_tokens, int(started_s * 1e6), status, estimated,
            len(text), ending.encode(),
        )  # fmt: skip
        return slot

    def cells(self, slot: int) -> memoryview:
        """Where the prompt's tokens (0) and the output's (1) of ``slot`` are kept."""
        word = (_HEAD_BYTES + slot * _SLOT_BYTES) // _WORD_BYTES + _PROMPT
        return self._words[word : word + 2]

    def counted(self, slot: int) -> None:
        """The tokens in ``slot`` are the engine's own count."""
        self._words[(_HEAD_BYTES + slot * _SLOT_BYTES) // _WORD_BYTES + _ESTIMATED] = 0

    def end(
        self, slot: int, *, prompt_tokens: int, output_tokens: int, cached_tokens: int, status: int, estimated: bool,
        ending: str,
    ) -> None:  # fmt: skip
        """The request is over; its row is on its way."""
        at = _HEAD_BYTES + slot * _SLOT_BYTES
        word, words = at // _WORD_BYTES, self._words
        words[word + _PROMPT], words[word + _OUTPUT], words[word + _CACHED] = (
            prompt_tokens, output_tokens, cached_tokens,
        )  # fmt: skip
        words[word + _STATUS], words[word + _ESTIMATED] = status, estimated
        self._map[at + _ENDING_AT : at + _TEXT_AT] = ending.encode()[:_ENDING_BYTES].ljust(_ENDING_BYTES, b"\0")
        words[word + _STATE] = _OVER

    def release(self, slots: Sequence[int]) -> None:
        """Rows of these are in the ledger."""
        for slot in slots:
            self._words[(_HEAD_BYTES + slot * _SLOT_BYTES) // _WORD_BYTES + _STATE] = _FREE
        self._free.extend(slots)

    def close(self, *, keep: bool = False) -> None:
        """End; ``keep`` leaves the file to whoever looks for such, because rows of it could not be written."""
        self._words.release()
        with contextlib.suppress(BufferError):  # a stream that was cut still holds its cells
            self._map.close()
        if not keep:
            self._path.unlink(missing_ok=True)
        self._file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """The journal of a process that is dead: what it owes, and its file."""

    rows: tuple[LedgerRow, ...]
    path: Path
    lock: int

    def done(self) -> None:
        """The rows are in the ledger."""
        self.path.unlink(missing_ok=True)
        self.let_go()

    def let_go(self) -> None:
        """Leave the file to the next who looks."""
        os.close(self.lock)


def left_behind(folder: Path) -> Iterator[LeftBehind]:
    """Journals in ``folder`` whose owners are dead, each locked until it is ``done`` or ``let_go``."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else ():
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # another was quicker
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = path.read_bytes()
        except OSError:
            os.close(lock)
            continue
        yield LeftBehind(rows=tuple(_rows(data)), path=path, lock=lock)


def _rows(data: bytes) -> Iterator[LedgerRow]:
    if not data.startswith(_MAGIC):
        return
    worker = data[len(_MAGIC) : _HEAD_BYTES].rstrip(b"\0").decode("utf-8", "replace")
    for at in range(_HEAD_BYTES, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES):
        words = memoryview(data)[at : at + _ENDING_AT].cast("Q")
        if words[_STATE] == _FREE:
            continue
        text = data[at + _TEXT_AT : at + _TEXT_AT + min(words[_TEXT_BYTES], _TEXT_MOST)].decode("utf-8", "replace")
        request_id, tenant_id, operation, endpoint, model = (text.split("\0") + [""] * 5)[:5]
        if not request_id or not tenant_id:
            continue
        over = words[_STATE] == _OVER
        ending = data[at + _ENDING_AT : at + _TEXT_AT].rstrip(b"\0").decode("ascii", "replace")
        yield LedgerRow(
            request_id=request_id, tenant_id=tenant_id, model=model, endpoint=endpoint, operation=operation,
            started_s=min(words[_STARTED_US] / 1e6, time.time()), prompt_tokens=words[_PROMPT],
            output_tokens=words[_OUTPUT], cached_tokens=words[_CACHED], ending=ending if over else WORKER_DIED,
            status=int(words[_STATUS]), estimated=bool(words[_ESTIMATED]), worker=worker,
        )  # fmt: skip
