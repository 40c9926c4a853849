"""A run as evidence: the files that belong to it, by what they hold, and the verdict they stand for.

A manifest names every file with its SHA-256. Whoever signs the manifest has signed them all; whoever gets the folder
later can tell whether a byte of it is another, a file is missing, or one was put beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from roadworthy.core.errors import Problem, SpecError

MANIFEST, SIGNATURE = "manifest.json", "manifest.json.sig"
NAMESPACE = "roadworthy-evidence"
"""What a signature is for, so that one made for something else does not count (``ssh-keygen -Y``)."""

SCHEMA_VERSION = 1
_HEX = frozenset("0123456789abcdef")

Signed = Literal["nobody", "somebody", "trusted", "wrong"]
"""No signature; a sound one of a key that nobody vouches for; one of an allowed signer; one that does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """One file of the folder; ``name`` has no folder in it."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the folder holds, and of what it is evidence.

    Args:
        claims: what was measured, for people: target, model, verdict, reason, requests, with which version.
    """

    files: tuple[EvidenceFile, ...]
    claims: Mapping[str, str | int | bool]

    def text(self) -> str:
        """The manifest as it is written and signed: the same values give the same bytes."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "evidence": dict(self.claims),
            "files": {
                one.name: {"sha256": one.sha256, "bytes": one.size_bytes}
                for one in sorted(self.files, key=lambda file: file.name)
            },
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def read_manifest(text: str, *, source: str) -> Manifest:
    """The manifest in ``text``. Raises SpecError for one that this version did not write."""
    try:
        document = json.loads(text)
        if document["schema_version"] != SCHEMA_VERSION:
            raise SpecError(
                f"{source}: schema_version is {document['schema_version']!r}, wanted {SCHEMA_VERSION}",
                hint="verify it with the version that wrote it, which `evidence.roadworthy` names",
            )
        files = tuple(_file(str(name), one) for name, one in document["files"].items())
        claims = {str(name): _claim(value) for name, value in document["evidence"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"{source}: not a manifest of evidence: {error}", hint="it is written by `roadworthy bench --evidence DIR`"
        ) from error
    return Manifest(files=files, claims=claims)


def _file(name: str, one: Mapping[str, object]) -> EvidenceFile:
    digest, size = one["sha256"], one["bytes"]
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file in this folder")
    if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= _HEX or type(size) is not int:
        raise ValueError(f"{name}: no SHA-256 and size")
    return EvidenceFile(name=name, sha256=digest, size_bytes=size)


def _claim(value: object) -> str | int | bool:
    if not isinstance(value, str | int | bool):
        raise TypeError(f"{value!r} is no claim")
    return value


def differences(manifest: Manifest, found: Sequence[EvidenceFile]) -> tuple[Problem, ...]:
    """What of the folder is not as the manifest says; nothing where all of it is."""
    there = {one.name: one for one in found if one.name not in (MANIFEST, SIGNATURE)}
    problems = []
    for wanted in manifest.files:
        seen = there.pop(wanted.name, None)
        if seen is None:
            problems.append(Problem(path=wanted.name, seen="no such file", wanted=_short(wanted), hint=_WHOLE))
        elif (seen.sha256, seen.size_bytes) != (wanted.sha256, wanted.size_bytes):
            problems.append(Problem(path=wanted.name, seen=_short(seen), wanted=_short(wanted), hint=_CHANGED))
    problems += [
        Problem(path=one.name, seen=_short(one), wanted="not in the manifest", hint="take it out of the folder")
        for one in there.values()
    ]
    return tuple(problems)


_WHOLE = "get the whole folder from whoever measured"
_CHANGED = "it was changed after the run: get the folder again from whoever measured"


def _short(one: EvidenceFile) -> str:
    return f"{one.size_bytes:,} bytes, SHA-256 {one.sha256[:16]}…"
