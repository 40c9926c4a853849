"""Evidence on disk: written once, signed and verified with OpenSSH's own keys (``ssh-keygen -Y``).

Whoever may log in has such a key already, it may live on a hardware token or in an agent, and a list of allowed signers
is the file that Git uses for signed commits too.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.files import write_atomically
from roadworthy.bench.evidence import (
    MANIFEST,
    NAMESPACE,
    SIGNATURE,
    EvidenceFile,
    Manifest,
    Signed,
    differences,
    read_manifest,
)
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from roadworthy.core.errors import Problem

SIGN_S, VERIFY_S = 300.0, 30.0
"""Signing may wait for a passphrase or a touch."""

MANIFEST_MOST_BYTES = 2**20
_KEY = re.compile(r"key (SHA256:\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found of a folder.

    Args:
        problems: how its files differ from the manifest.
        key: fingerprint of the key that signed; empty where none did.
        said: what ``ssh-keygen`` said of a signature that does not fit.
    """

    manifest: Manifest
    problems: tuple[Problem, ...]
    signed: Signed
    key: str = ""
    said: str = ""

    @property
    def sound(self) -> bool:
        return not self.problems and self.signed != "wrong"


def require_folder(folder: Path) -> None:
    """Make the folder, or find it empty. Raises SpecError or ProbeError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SpecError(
                f"{folder}: is not empty, wanted a new folder", hint="evidence is written once; name another"
            )
    except (FileExistsError, NotADirectoryError) as error:
        raise SpecError(f"{folder}: is a file, wanted a folder", hint="name another") from error
    except OSError as error:
        raise ProbeError(f"{folder}: cannot be made: {error.strerror}", hint="choose another place") from error


def require_key(key: Path) -> None:
    """Find out before the load whether ``key`` can sign. Raises SpecError or ProbeError."""
    if not key.is_file():
        raise SpecError(f"--sign {key}: no such key", hint="an OpenSSH key, such as ~/.ssh/id_ed25519")
    if _ssh_keygen("-l", "-f", str(key), timeout_s=VERIFY_S).returncode:
        raise SpecError(f"--sign {key}: not a key that ssh-keygen can read", hint="name an OpenSSH key, or its .pub")


def write_evidence(
    folder: Path, contents: Mapping[str, str], claims: Mapping[str, str | int | bool], *, key: Path | None
) -> None:
    """Write the files, their manifest, and with ``key`` its signature, into an empty folder.

    Raises:
        ProbeError: a file cannot be written, or the manifest cannot be signed; what is written stays.
    """
    files = []
    for name, text in contents.items():
        data = text.encode()
        write_atomically(folder / name, text)
        files.append(EvidenceFile(name=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data)))
    write_atomically(folder / MANIFEST, Manifest(files=tuple(files), claims=claims).text())
    if key is not None:
        _sign(folder / MANIFEST, key)


def _sign(path: Path, key: Path) -> None:
    done = _ssh_keygen("-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(path), timeout_s=SIGN_S)
    if done.returncode or not (path.parent / SIGNATURE).is_file():
        raise ProbeError(
            f"{path}: cannot be signed: {_last_line(done.stderr)}",
            hint=f"the evidence is whole; sign it by `ssh-keygen -Y sign -n {NAMESPACE} -f KEY {path}`",
        )


def verify(folder: Path, *, signers: Path | None, identity: str | None) -> Verified:
    """Hold a folder against its manifest, and the manifest against its signature.

    Args:
        signers: OpenSSH's ``allowed_signers`` file; with it the signature must be of one of them.
        identity: of them; None for whichever it was.

    Raises:
        SpecError: no folder of evidence. ProbeError: it cannot be read, or there is no ``ssh-keygen``.
    """
    path = folder / MANIFEST
    try:
        if path.stat().st_size > MANIFEST_MOST_BYTES:
            raise SpecError(f"{path}: larger than any manifest")
        signed_bytes = path.read_bytes()
        text = signed_bytes.decode("utf-8")
        found = tuple(_hashed(entry) for entry in sorted(folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SpecError(
            f"{folder}: holds no {MANIFEST}, so it is no evidence",
            hint="it is made by `roadworthy bench --evidence DIR`",
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not text in UTF-8") from error
    except OSError as error:
        raise ProbeError(f"{folder}: cannot be read: {error.strerror}") from error
    manifest = read_manifest(text, source=str(path))
    problems = differences(manifest, found)
    if not (folder / SIGNATURE).is_file():
        return Verified(manifest=manifest, problems=problems, signed="nobody")
    signed, key, said = _signature(signed_bytes, folder / SIGNATURE, signers, identity)
    return Verified(manifest=manifest, problems=problems, signed=signed, key=key, said=said)


def _hashed(path: Path) -> EvidenceFile:
    """A folder or a link is held against the manifest as what it is: not the file that was written."""
    if path.is_symlink() or not path.is_file():
        return EvidenceFile(name=path.name, sha256="0" * 64, size_bytes=0)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return EvidenceFile(name=path.name, sha256=digest, size_bytes=path.stat().st_size)


def _signature(manifest: bytes, signature: Path, signers: Path | None, identity: str | None) -> tuple[Signed, str, str]:
    """How ``signature`` fits ``manifest``: the bytes that were judged, not the file as it may be by now."""
    common = ("-n", NAMESPACE, "-s", str(signature))
    if signers is None:
        done = _ssh_keygen("-Y", "check-novalidate", *common, timeout_s=VERIFY_S, given=manifest)
        return ("wrong" if done.returncode else "somebody"), _fingerprint(done), _last_line(done.stderr)
    if not signers.is_file():
        raise SpecError(f"--signers {signers}: no such file", hint="lines of `NAME ssh-ed25519 AAAA…`")
    if identity is None:
        asked = _ssh_keygen("-Y", "find-principals", "-f", str(signers), "-s", str(signature), timeout_s=VERIFY_S)
        names = asked.stdout.decode("utf-8", "replace").split()
        if asked.returncode or not names:
            return "wrong", "", f"no key in {signers} made it"
        identity = names[0]
    done = _ssh_keygen("-Y", "verify", "-f", str(signers), "-I", identity, *common, timeout_s=VERIFY_S, given=manifest)
    return (
        ("wrong" if done.returncode else "trusted"),
        _fingerprint(done),
        identity if not done.returncode else (_last_line(done.stderr) or _last_line(done.stdout)),
    )


def _fingerprint(done: subprocess.CompletedProcess[bytes]) -> str:
    found = _KEY.search((done.stdout + done.stderr).decode("utf-8", "replace"))
    return found[1] if found else ""


def _last_line(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _ssh_keygen(*arguments: str, timeout_s: float, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments],
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise ProbeError(
            f"ssh-keygen: cannot be started: {error.strerror}", hint="apt install openssh-client"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ProbeError(
            f"ssh-keygen: no end after {timeout_s:.0f} s",
            hint="was it waiting for a passphrase, or a touch of a token?",
        ) from error
