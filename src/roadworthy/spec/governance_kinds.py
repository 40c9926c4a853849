"""The kinds of value that only governance has: switches and conditions."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from roadworthy.core import units
from roadworthy.spec.governance_values import NUMBER_FACTS, TEXT_FACTS, Comparison, Condition
from roadworthy.spec.kinds import Kind, WrongValueError, did_you_mean

if TYPE_CHECKING:
    from roadworthy.spec.yaml_text import ScalarNode

_CONDITION = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(>=|<=|!=|==|=|>|<|\bnot\s+in\b|\bin\b)\s*(.*?)\s*", re.DOTALL)
_NAME = re.compile(r"[^\s,]+")
_WANTED = 'a condition: FACT COMPARISON VALUE, such as "prompt_tokens > 32K" or "tenant in team-a, team-b"'


def switch() -> Kind:
    """``on`` or ``off``; ``true`` and ``false`` mean the same, and so does what YAML 1.1 makes of the two words."""

    def read(node: ScalarNode) -> bool:
        word = node.text.lower()
        if word in ("on", "true"):
            return True
        if word in ("off", "false"):
            return False
        raise WrongValueError("on or off")

    return Kind(
        name="on or off", example="on", read=read, write=lambda value: "on" if value else "off",
        json_schema={"enum": ["on", "off", True, False]}, same_in_yaml_11=True,
    )  # fmt: skip


def condition() -> Kind:
    """One comparison of a named fact with a value."""
    return Kind(
        name="condition",
        example='"prompt_tokens > 32K"',
        read=_read,
        write=write_condition,
        json_schema={"type": "string", "maxLength": _LONGEST},
    )


_LONGEST = 4000


def _read(node: ScalarNode) -> Condition:
    found = _CONDITION.fullmatch(node.text) if len(node.text) <= _LONGEST else None
    if found is None or not isinstance(node.value, str):
        raise WrongValueError(_WANTED)
    fact, sign, value = found.groups()
    comparison: Comparison = {"==": "="}.get(sign, " ".join(sign.split()))  # type: ignore[assignment]
    for text_fact in TEXT_FACTS:
        if fact == text_fact:
            return Condition(fact=text_fact, comparison=comparison, names=_names(fact, comparison, value))
    for number_fact in NUMBER_FACTS:
        if fact == number_fact:
            return Condition(fact=number_fact, comparison=comparison, number=_number(fact, comparison, value))
    known = (*NUMBER_FACTS, *TEXT_FACTS)
    raise WrongValueError(f"a fact that is known: {', '.join(known)}", hint=did_you_mean(fact, known))


def _names(fact: str, comparison: str, value: str) -> tuple[str, ...]:
    if comparison not in ("=", "!=", "in", "not in"):
        raise WrongValueError(
            f"=, !=, in or not in behind {fact}", hint=f"{fact} is a name: it is no more than another"
        )
    names = tuple(dict.fromkeys(one.strip() for one in value.strip("[]").split(",")))
    if not all(_NAME.fullmatch(one) for one in names):
        raise WrongValueError(f"names with a comma between them behind {comparison}", hint=f"{fact} in team-a, team-b")
    if len(names) > 1 and comparison in ("=", "!="):
        raise WrongValueError(f"one name behind {comparison}", hint=f"{fact} in {', '.join(names)}")
    return names


def _number(fact: str, comparison: str, value: str) -> float:
    if comparison in ("in", "not in"):
        raise WrongValueError(f"a comparison such as > behind {fact}", hint="in is for names")
    wanted = f"{'milliseconds' if fact.endswith('_ms') else 'a count'} behind {fact}"
    try:
        if fact.endswith("_ms") and not re.fullmatch(r"[0-9.eE+-]+", value):
            number = units.parse_duration(value) * 1e3
        else:
            number = float(value) if fact.endswith("_ms") else float(units.parse_count(value))
    except (ValueError, OverflowError) as error:
        raise WrongValueError(wanted, hint=f"{fact} > {200 if fact.endswith('_ms') else '32K'}") from error
    if not math.isfinite(number):
        raise WrongValueError(wanted)
    return number


def write_condition(value: Condition) -> str:
    """As a document says it; reading it back gives the same condition."""
    if value.number is None:
        return f"{value.fact} {value.comparison} {', '.join(value.names)}"
    number = int(value.number) if value.number == int(value.number) and value.number < 1e15 else repr(value.number)
    return f"{value.fact} {value.comparison} {number}"
