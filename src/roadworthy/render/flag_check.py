"""Holds every flag that a start file carries against the parser of the engine version that the document names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.catalog.flags import FlagFact, flag_catalog
from roadworthy.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.render.values import Emitted


def require_flags(version: str, flags: Iterable[Emitted]) -> None:
    """Return when vLLM ``version`` takes every one of ``flags`` with its value.

    Raises Unsupported for the first that it does not take, with what to write instead.
    """
    catalog = flag_catalog(version)
    for one in flags:
        found = catalog.match(one.name)
        if found is None:
            answer = catalog.explain(one.name)
            setting = one.name.removeprefix("--").replace("-", "_")
            raise Unsupported(
                f"engine.settings.{setting}: {catalog.label} does not take {one.name}: {answer.reason}",
                hint=answer.replacement or "leave it out",
            )
        _require_value(catalog.label, found.flag, one)


def _require_value(label: str, fact: FlagFact, one: Emitted) -> None:
    if (one.value is None) == fact.takes_value:
        wanted = "a value" if fact.takes_value else "no value"
        raise Unsupported(f"{one.name}: {label} wants {wanted}", hint="see `roadworthy flags " + fact.name + "`")
    if one.value is None or not fact.choices or fact.open_choices or fact.nargs is not None:
        return
    if str(one.value) not in fact.choices:
        raise Unsupported(
            f"{one.name} {one.value}: {label} knows {', '.join(fact.choices[:12])}",
            hint="choose one of them, or another engine version",
        )
