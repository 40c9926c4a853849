"""What changed between two engine versions: flags and variables that came, went, or take something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from roadworthy.catalog.environment import environment_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.catalog.flags import FlagCatalog, FlagFact, KeyFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One flag or variable.

    Args:
        details: in words, for ``changed`` only, such as ``also takes --disable-eplb``.
    """

    name: str
    what: Literal["added", "removed", "changed"]
    details: tuple[str, ...] = ()


def flag_changes(old: FlagCatalog, new: FlagCatalog) -> tuple[Change, ...]:
    """Flags that differ, by name; those that stayed are left out."""
    found = []
    for name in sorted({*old.flags, *new.flags}):
        before, after = old.flags.get(name), new.flags.get(name)
        if before is None:
            found.append(Change(name=name, what="added"))
        elif after is None:
            found.append(Change(name=name, what="removed"))
        elif details := tuple(_differences(before, after)):
            found.append(Change(name=name, what="changed", details=details))
    return tuple(found)


def variable_changes(old: str, new: str) -> tuple[Change, ...]:
    """vLLM's own variables that came or went between two versions, by name."""
    before, after = _own(old), _own(new)
    added = [Change(name=name, what="added") for name in after - before]
    removed = [Change(name=name, what="removed") for name in before - after]
    return tuple(sorted(added + removed, key=lambda change: change.name))


def _own(version: str) -> set[str]:
    return {name for name, fact in environment_catalog(version).variables.items() if fact.owner == "vllm"}


def _differences(old: FlagFact, new: FlagFact) -> Iterator[str]:
    if old.kind != new.kind:
        yield f"{old.kind} -> {new.kind}"
    yield from _came_and_went("takes", {*old.spellings, *old.negative}, {*new.spellings, *new.negative})
    yield from _came_and_went("choices", set(old.choices), set(new.choices))
    if old.default != new.default:
        yield f"default {_shown(old.default)} -> {_shown(new.default)}"
    if new.deprecated and not old.deprecated:
        yield "announced to go away"
    yield from _key_differences(old.keys, new.keys, "")


def _key_differences(old: Mapping[str, KeyFact], new: Mapping[str, KeyFact], above: str) -> Iterator[str]:
    yield from _came_and_went("keys", {above + name for name in old}, {above + name for name in new})
    for name in sorted(set(old) & set(new)):
        before, after = old[name], new[name]
        yield from _came_and_went(f"choices of {above}{name}", set(before.choices), set(after.choices))
        if before.default != after.default:
            yield f"default of {above}{name} {_shown(before.default)} -> {_shown(after.default)}"
        yield from _key_differences(before.keys, after.keys, f"{above}{name}.")


def _came_and_went(what: str, old: set[str], new: set[str]) -> Iterator[str]:
    if new - old:
        yield f"{what} + {', '.join(sorted(new - old))}"
    if old - new:
        yield f"{what} - {', '.join(sorted(old - new))}"


def _shown(value: object) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
