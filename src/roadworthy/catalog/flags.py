"""Flags of ``vllm serve`` by engine version: what the parser of that version takes, what to say of the rest.

The facts are extracted from vLLM's own parser by ``scripts/extract_flags.py`` and lie in ``catalog/flags/``. Spellings
are matched as that parser matches them: underscores for dashes, ``-O3``, dotted keys of JSON flags, the negative forms
that the version has. Unique prefixes, which it would also take, are not matches here: they bind to another flag after
an upgrade.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.catalog.data import catalog_text
from roadworthy.catalog.setting_notes import Note, flag_notes
from roadworthy.catalog.truth import Status, truth_rows
from roadworthy.core.errors import Unsupported
from roadworthy.spec.kinds import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

FlagKind = Literal["integer", "number", "switch", "text", "json", "list", "any"]
"""json: an object (or list) in one argument; list: several arguments; any: a key of a JSON flag of no single kind."""

FLAG_VERSIONS = ("0.33.0", "0.32.0")
"""Versions whose parser was read, newest first."""


def _nothing() -> Mapping[str, KeyFact]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFact:
    """One key inside a JSON flag.

    Args:
        choices: allowed values as text; empty where any value of the kind goes.
        open_choices: other values pass the parser too.
        keys: of a nested object; empty with ``open_keys`` where any key goes.
        default: as the engine has it; None too where it has none to show.
    """

    name: str
    kind: FlagKind
    choices: tuple[str, ...] = ()
    open_choices: bool = False
    keys: Mapping[str, KeyFact] = field(default_factory=_nothing)
    open_keys: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFact:
    """One flag.

    Args:
        name: the long spelling with dashes, ``--max-num-seqs``.
        setting: the Python spelling, ``max_num_seqs``.
        spellings: every form that sets it (or switches it on), the longest first.
        negative: every form that switches it off.
        nargs: argparse's own: None one value, ``?`` none or one, ``+`` and ``*`` several, or a number.
        suffixes: the integer may be written ``8k`` (decimal) or ``8K`` (binary).
        words: texts that stand for a number, such as ``auto``.
        text_too: a JSON flag that takes plain text as well.
        repeated: may be given several times, each adds.
        deprecated: the engine says that it goes away.
        default: as the parser has it; None too where it is decided later or cannot be shown.
    """

    name: str
    setting: str
    kind: FlagKind
    spellings: tuple[str, ...]
    negative: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    open_choices: bool = False
    nargs: str | int | None = None
    suffixes: bool = False
    words: tuple[str, ...] = ()
    keys: Mapping[str, KeyFact] = field(default_factory=_nothing)
    open_keys: bool = False
    text_too: bool = False
    repeated: bool = False
    deprecated: bool = False
    default: Any = None

    @property
    def takes_value(self) -> bool:
        """Whether an argument follows it; a switch stands alone."""
        return self.kind != "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagMatch:
    """A spelling that the parser takes, and what it means.

    Args:
        spelling: with the dashes and in the case of the parser's own form.
        negated: the switch is turned off.
        key_path: of a dotted form, ``("num_redundant_experts",)`` for ``--eplb-config.num_redundant_experts``.
        key: the fact of that key; None where the flag takes any key, or the form has no dots.
        value: what was glued to the name: after ``=``, or the level of ``-O3``.
    """

    flag: FlagFact
    spelling: str
    negated: bool = False
    key_path: tuple[str, ...] = ()
    key: KeyFact | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagAnswer:
    """What to think of a name.

    Args:
        name: as asked.
        accepted: whether the parser of this version takes it.
        replacement: what to write instead, in words; empty where the name may stay.
        renamed_to: the flag that takes the same value; None where none does. A fixer may swap the names.
        source: where that was seen; row_id: its row in the truth table, empty without one.
    """

    name: str
    status: Status
    accepted: bool
    reason: str
    replacement: str = ""
    renamed_to: str | None = None
    source: str = ""
    row_id: str = ""


KNOWN_NAMES = 4096
"""Answers kept for each version, the least recently asked going first."""


class FlagCatalog:
    """The flags of one engine version. Get it from :func:`flag_catalog`."""

    def __init__(self, *, engine: str, version: str, flags: Mapping[str, FlagFact]) -> None:
        self.engine, self.version, self.flags = engine, version, flags
        self._spelt = {spelling: (fact, False) for fact in flags.values() for spelling in fact.spellings}
        self._spelt |= {spelling: (fact, True) for fact in flags.values() for spelling in fact.negative}
        self._settings = {fact.setting: fact for fact in flags.values()}
        # a file of start commands asks for the same few names hundreds of times
        self._match, self._explain = lru_cache(KNOWN_NAMES)(self._matched), lru_cache(KNOWN_NAMES)(self._explained)

    @property
    def label(self) -> str:
        return f"{'vLLM' if self.engine == 'vllm' else self.engine} {self.version}"

    def find(self, name: str) -> FlagFact | None:
        """The flag that ``name`` sets, in any spelling that the parser takes; None when it takes none such."""
        found = self.match(name)
        return found.flag if found else None

    def setting(self, name: str) -> FlagFact | None:
        """The flag of a Python spelling, ``max_num_seqs``."""
        return self._settings.get(name)

    def match(self, name: str) -> FlagMatch | None:
        """What ``name`` means to the parser; it may carry ``=value``. None when it is not taken in full."""
        return self._match(name)

    def _matched(self, name: str) -> FlagMatch | None:
        head, value = _split_value(name)
        spelling, *path = head.split(".")
        spelling = _dashed(spelling)
        if spelling == "-O":
            spelling = "--optimization-level"
        found = self._spelt.get(spelling)
        if found is None:
            return None
        fact, negated = found
        if not path:
            return FlagMatch(flag=fact, spelling=spelling, negated=negated, value=value)
        key_path = tuple(part.removesuffix("+") for part in path)
        known, key = _key(fact, key_path)
        if not known:
            return None
        return FlagMatch(flag=fact, spelling=spelling, key_path=key_path, key=key, value=value)

    def abbreviates(self, name: str) -> tuple[str, ...]:
        """Full spellings that a prefix stands for; the parser takes it when there is one. Empty for a full spelling."""
        head, _ = _split_value(name)
        spelling = _dashed(head.split(".")[0])
        if not spelling.startswith("--") or len(spelling) < 4 or spelling in self._spelt:
            return ()
        return tuple(sorted(full for full in self._spelt if full.startswith(spelling)))

    def explain(self, name: str) -> FlagAnswer:
        """Whether ``name`` is a flag of this version, and if not, what became of it and what to write instead."""
        return self._explain(name)

    def _explained(self, name: str) -> FlagAnswer:
        found = self.match(name)
        head, _ = _split_value(name)
        spelling = found.spelling if found else _dashed(head.split(".")[0])
        note = _note_of(spelling, found)
        if found is not None:
            return _known(self, name, found, note)
        if note is not None and note.gone:
            return _answer(name, note, accepted=False)
        return self._unknown(name, head, spelling)

    def _unknown(self, name: str, head: str, spelling: str) -> FlagAnswer:
        accepted_elsewhere = [version for version in FLAG_VERSIONS if flag_catalog(version).match(name)]
        source = f"parser of vLLM {', '.join(FLAG_VERSIONS)}"
        if accepted_elsewhere:
            newer = max(accepted_elsewhere, key=_order) > self.version
            return FlagAnswer(
                name=name,
                status="context_dependent" if newer else "removed",
                accepted=False,
                reason=f"vLLM {', '.join(accepted_elsewhere)} takes it, {self.version} does not",
                replacement=f"leave it out, or run vLLM {accepted_elsewhere[0]}",
                source=source,
            )
        base = self._spelt.get(spelling)
        if base is not None:  # the flag is there, the key is not
            return self._unknown_key(name, head, base[0], source)
        full = self.abbreviates(name)
        if full:
            row = truth_rows()["vllm.abbreviated-flags"]
            same = {self._spelt[one][0].name for one in full}
            return FlagAnswer(
                name=name,
                status="dangerous",
                accepted=len(full) == 1,
                reason=f"a prefix of {_some(full)}: {row.why}",
                replacement=f"write {full[0]}" if len(same) == 1 else f"write the one you mean: {_some(full)}",
                renamed_to=full[0] if len(full) == 1 else None,
                source=row.source,
                row_id=row.id,
            )
        near = did_you_mean(spelling, tuple(self._spelt))
        return FlagAnswer(
            name=name,
            status="never_existed",
            accepted=False,
            reason=f"{self.label} has no such flag, and no version known here has had one",
            replacement=near or "leave it out; `roadworthy flags` lists what there is",
            source=source,
        )

    def _unknown_key(self, name: str, head: str, fact: FlagFact, source: str) -> FlagAnswer:
        path = tuple(part.removesuffix("+") for part in head.split(".")[1:])
        if fact.kind != "json":
            reason, near = f"{fact.name} takes one value and has no keys", f"write {fact.name} VALUE"
        else:
            keys = _deepest(fact, path)
            reason = f"{fact.name} of {self.label} has no key {'.'.join(path)}"
            near = did_you_mean(path[-1], tuple(keys)) or f"keys: {', '.join(keys)}"
        return FlagAnswer(
            name=name, status="never_existed", accepted=False, reason=reason, replacement=near, source=source
        )


@lru_cache(maxsize=4)
def flag_catalog(version: str) -> FlagCatalog:
    """The flags of that version; a patch release (``0.33.1``) or a line (``0.33``) is read as the version known of it.

    Raises Unsupported naming the versions known.
    """
    bare = version.removeprefix("vllm==").removeprefix("v").split("+")[0]
    line = bare.split(".")[:2]
    known = next((one for one in FLAG_VERSIONS if one.split(".")[:2] == line), None)
    if known is None or not all(part.isdigit() for part in line):
        raise Unsupported(
            f"vLLM {version}: its flags are not known here; versions known: {', '.join(FLAG_VERSIONS)}",
            hint=f"ask for {FLAG_VERSIONS[0]}, if yours is near it",
        )
    document = read_flags(known)
    flags = {name: _flag(name, entry) for name, entry in document["flags"].items()}
    return FlagCatalog(engine=document["engine"], version=document["version"], flags=MappingProxyType(flags))


@lru_cache(maxsize=2)
def read_flags(version: str) -> dict[str, Any]:
    """The extracted document of exactly that version: ``flags`` and ``environment``."""
    text = catalog_text(f"flags/vllm-{version}.json")
    document: dict[str, Any] = json.loads(text)
    return document


def _flag(name: str, entry: Mapping[str, Any]) -> FlagFact:
    return FlagFact(
        name=name,
        setting=entry["dest"],
        kind=entry["kind"],
        spellings=tuple(entry["spellings"]),
        negative=tuple(entry.get("negative", ())),
        choices=tuple(entry.get("choices", ())),
        open_choices=entry.get("open_choices", False),
        nargs=entry.get("nargs"),
        suffixes=entry.get("suffixes", False),
        words=tuple(entry.get("words", ())),
        keys=_keys(entry),
        open_keys=entry.get("open_keys", False),
        text_too=entry.get("text_too", False),
        repeated=entry.get("repeated", False),
        deprecated=entry.get("deprecated", False),
        default=entry.get("default"),
    )


def _keys(entry: Mapping[str, Any]) -> Mapping[str, KeyFact]:
    return MappingProxyType({
        name: KeyFact(
            name=name, kind=below["kind"], choices=tuple(below.get("choices", ())),
            open_choices=below.get("open_choices", False), keys=_keys(below), open_keys=below.get("open_keys", False),
            default=below.get("default"),
        )
        for name, below in entry.get("keys", {}).items()
    })  # fmt: skip


def _key(fact: FlagFact, path: tuple[str, ...]) -> tuple[bool, KeyFact | None]:
    """(whether the flag takes that path, the fact of its end where there is one)."""
    if fact.kind != "json":
        return False, None
    keys, any_key, key = fact.keys, fact.open_keys, None
    for name in path:
        key = keys.get(name)
        if key is None:
            return any_key, None
        keys, any_key = key.keys, key.open_keys or (key.kind in ("json", "any") and not key.keys)
    return True, key


def _deepest(fact: FlagFact, path: tuple[str, ...]) -> Mapping[str, KeyFact]:
    """The keys at the level where ``path`` leaves what is known."""
    keys = fact.keys
    for name in path:
        if name not in keys:
            break
        keys = keys[name].keys
    return keys


def _split_value(name: str) -> tuple[str, str | None]:
    if name.startswith("-O") and (level := re.fullmatch(r"-O=?([^.=]+)", name)):
        return "-O", level[1]
    head, equals, value = name.partition("=")
    return head, value if equals else None


def _dashed(spelling: str) -> str:
    return "--" + spelling[2:].replace("_", "-") if spelling.startswith("--") else spelling


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _note_of(spelling: str, found: FlagMatch | None) -> Note | None:
    notes = flag_notes()
    return notes.get(spelling) or (notes.get(found.flag.name) if found else None)


def _known(catalog: FlagCatalog, name: str, found: FlagMatch, note: Note | None) -> FlagAnswer:
    if note is not None:
        return _answer(name, note, accepted=True)
    reason = f"{catalog.label} takes it"
    if found.flag.deprecated:
        return FlagAnswer(
            name=name, status="context_dependent", accepted=True, reason=f"{reason}, and announces that it goes away",
            replacement="leave it out", source=f"parser of {catalog.label}",
        )  # fmt: skip
    return FlagAnswer(name=name, status="real", accepted=True, reason=reason, source=f"parser of {catalog.label}")


def _answer(name: str, note: Note, *, accepted: bool) -> FlagAnswer:
    row = truth_rows()[note.row_id] if note.row_id else None
    return FlagAnswer(
        name=name,
        status=note.status,
        accepted=accepted,
        reason=note.reason or (row.why if row else ""),
        replacement=note.replacement or (row.instead if row and note.status != "real" else ""),
        renamed_to=note.renamed_to,
        source=note.source or (row.source if row else ""),
        row_id=note.row_id,
    )
