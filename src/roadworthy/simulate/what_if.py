"""What if: keys of the document changed, traffic scaled, engines lost; written as ``KEY=VALUE`` pairs.

A key is a key of the document by its dotted path; an entry of a list is found by its place or by its name:
``workload.rate=24/s``, ``tenants[2].weight=3``, ``tenants.legal.weight=3``. ``x2`` multiplies what the document says.
Some keys are not the document's: ``traffic=x2`` and ``traffic.TENANT=x2`` scale what all or one of the tenants ask for,
``outage=2@10min+5min`` takes an engine away, and ``fault=slow:2@10min*1.5`` makes one worse (``simulate.outages``).
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import SpecError
from roadworthy.simulate.outages import EngineFault, Outage, parse_fault, parse_outage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ALL = ""
"""The key of ``Variant.traffic`` for everybody."""

_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w.\[\]-]*)=(?P<value>.*)", re.DOTALL)
_NEXT_PAIR = re.compile(r"\s+(?=[A-Za-z_][\w.\[\]-]*=)")
_STEP = re.compile(r"(?P<name>[\w-]+)|\[(?P<place>\d+)\]")
_FACTOR = re.compile(r"x(?P<factor>\d+(?:\.\d+)?)")
_AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>\s*[A-Za-z%/]*)")
_NAMED_BY = ("id", "name", "url", "kind")
_HARDWARE = frozenset({"model", "cluster", "engine"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The document with changes.

    Args:
        name: the pairs as they were written.
        changes: value by key of the document, both as text.
        traffic: factor by tenant; ``ALL`` is everybody's.
    """

    name: str
    changes: tuple[tuple[str, str], ...] = ()
    traffic: tuple[tuple[str, float], ...] = ()
    outages: tuple[Outage, ...] = ()
    faults: tuple[EngineFault, ...] = ()

    @property
    def replans(self) -> bool:
        """Whether it changes the model, the cluster or the engine, so that another layout may be the best. Everything
        else is asked of the service as it stands."""
        return any(re.split(r"[.\[]", key)[0] in _HARDWARE for key, _ in self.changes)


def parse_variant(text: str) -> Variant:
    """The variant in ``text``: pairs separated by blanks.

    Raises:
        SpecError: it is not made of pairs, or a factor or an outage is wrong. Keys of the document are not looked at.
    """
    changes: list[tuple[str, str]] = []
    traffic: list[tuple[str, float]] = []
    outages: list[Outage] = []
    faults: list[EngineFault] = []
    pairs = _NEXT_PAIR.split(text.strip())
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None or not match["value"].strip():
            raise SpecError(f"what if {pair!r}: not KEY=VALUE", hint="such as workload.rate=24/s or traffic.legal=x2")
        key, value = match["key"], match["value"].strip()
        if key == "outage":
            outages.append(parse_outage(value))
        elif key == "fault":
            faults.append(parse_fault(value))
        elif key == "traffic" or key.startswith("traffic."):
            traffic.append((key.partition(".")[2] or ALL, _factor(key, value)))
        else:
            changes.append((key, value))
    return Variant(
        name=" ".join(pairs),
        changes=tuple(changes),
        traffic=tuple(traffic),
        outages=tuple(outages),
        faults=tuple(faults),
    )


def changed(document: Mapping[str, Any], variant: Variant, read: Callable[[str], Any]) -> dict[str, Any]:
    """A copy of ``document``, as YAML reads it, with the changes of ``variant``; ``read`` reads a value's text.

    Raises:
        SpecError: a key leads through something that is not there, or a factor has nothing to multiply.
    """
    tree: dict[str, Any] = deepcopy(dict(document))
    for key, value in variant.changes:
        *way, last = _steps(key)
        place: Any = tree
        for step in way:
            place = _go(place, step, key)
        if isinstance(place, list):
            at = _index(place, last, key)
            place[at] = _new_value(key, value, place[at], read)
        elif isinstance(place, dict) and isinstance(last, str):
            place[last] = _new_value(key, value, place.get(last), read)
        else:
            raise _nowhere(key, last)
    return tree


def _steps(key: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(key):
        if steps and key[at] == ".":
            at += 1
        match = _STEP.match(key, at)
        if match is None:
            raise SpecError(f"what if {key}: not a key", hint="such as tenants[0].weight or tenants.legal.weight")
        steps.append(match["name"] if match["place"] is None else int(match["place"]))
        at = match.end()
    return steps


def _go(place: Any, step: str | int, key: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, step, key)]
    if not isinstance(place, dict) or isinstance(step, int):
        raise _nowhere(key, step)
    if place.get(step) is None:
        place[step] = {}
    return place[step]


def _index(place: list[Any], step: str | int, key: str) -> int:
    if isinstance(step, int):
        if step < len(place):
            return step
        raise _nowhere(key, step)
    for at, entry in enumerate(place):
        if isinstance(entry, dict) and any(entry.get(name) == step for name in _NAMED_BY):
            return at
    names = [str(entry[name]) for entry in place if isinstance(entry, dict) for name in _NAMED_BY if name in entry]
    raise SpecError(f"what if {key}: there is no {step!r}", hint=f"there are: {', '.join(names) or 'none'}")


def _new_value(key: str, text: str, present: Any, read: Callable[[str], Any]) -> Any:
    match = _FACTOR.fullmatch(text)
    if match is None:
        return read(text)
    factor = float(match["factor"])
    if isinstance(present, int | float) and not isinstance(present, bool):
        product = present * factor
        return round(product) if isinstance(present, int) else product
    amount = _AMOUNT.fullmatch(present) if isinstance(present, str) else None
    if amount is None:
        raise SpecError(f"what if {key}={text}: the document has no number there", hint="write the value out")
    return f"{float(amount['number']) * factor:g}{amount['unit']}"


def _factor(key: str, text: str) -> float:
    match = _FACTOR.fullmatch(text) or _FACTOR.fullmatch(f"x{text}")
    if match is None:
        raise SpecError(f"what if {key}={text}: not a factor", hint=f"{key}=x2 doubles it, {key}=x0 takes it away")
    return float(match["factor"])


def _nowhere(key: str, step: str | int) -> SpecError:
    return SpecError(
        f"what if {key}: nothing is called {step} there", hint="the keys are the document's: `roadworthy spec schema`"
    )
