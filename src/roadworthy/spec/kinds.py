"""The kinds of value a document holds: how each is read from what was written, written back, and told to JSON Schema.

A reader takes a scalar and answers the value, or raises :class:`WrongValueError` with what was wanted and how to get
there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from roadworthy.core import units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roadworthy.spec.yaml_text import ScalarNode


class WrongValueError(Exception):
    """A value that cannot stand: what was ``wanted``, and the ``hint`` that leads there."""

    def __init__(self, wanted: str, *, hint: str = "") -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of scalar.

    Args:
        name: the word for it in the reference page.
        example: a value in it, as one writes it.
        read: from the scalar to the value.
        write: from the value to what a document says, such that reading it back gives the value.
        json_schema: what an editor is told; it may allow more than ``read``, never less.
        same_in_yaml_11: words that YAML 1.1 reads as true or false mean the same here, so that they need no quotes.
    """

    name: str
    example: str
    read: Callable[[ScalarNode], Any]
    write: Callable[[Any], str | int | float | bool]
    json_schema: Mapping[str, Any]
    same_in_yaml_11: bool = False


def did_you_mean(seen: str, known: tuple[str, ...]) -> str:
    """``did you mean X?`` for the nearest of ``known``, or the list of them when it is short."""
    folded = {name.lower(): name for name in reversed(known)}
    close = get_close_matches(seen.lower().replace("-", "_"), folded, n=1, cutoff=0.6) or get_close_matches(
        seen.lower(), folded, n=1, cutoff=0.6
    )
    if close:
        return f"did you mean {folded[close[0]]}?"
    return f"one of {', '.join(known)}" if 0 < len(known) <= 16 else ""


def _number(node: ScalarNode, wanted: str) -> float | None:
    """The number written, or None when it is text. Booleans, nulls and what is not finite are refused."""
    value = node.value
    if isinstance(value, bool):
        raise WrongValueError(wanted, hint="true and false are no numbers")
    if value is None:
        raise WrongValueError(wanted)
    if isinstance(value, str):
        return None
    if not math.isfinite(value):
        raise WrongValueError(wanted, hint="leave the key out where there is no limit")
    return value


def _parsed(parse: Callable[[str], Any], node: ScalarNode, wanted: str) -> Any:
    try:
        return parse(node.text)
    except (ValueError, OverflowError) as error:
        raise WrongValueError(wanted, hint=_unit_hint(str(error))) from error


def _unit_hint(reason: str) -> str:
    found = re.search(r"\(units: (.*)\)", reason)
    return f"units: {found[1]}" if found else ""


def _within(value: Any, least: float, most: float, wanted: str, *, hint: str = "") -> Any:
    if not least <= value <= most:
        raise WrongValueError(wanted, hint=hint)
    return value


def whole_number(*, least: int = 1, most: int, example: str = "8", what: str = "a whole number") -> Kind:
    """A count. ``128K`` is 2**10 at a time, ``5M`` 10**6."""
    wanted = f"{what} from {least:,} to {most:,}" if least < most else f"{what}, {least}"

    def read(node: ScalarNode) -> int:
        number = _number(node, wanted)
        if number is None:
            number = _parsed(units.parse_count, node, wanted)
        if number != int(number):
            raise WrongValueError(
                wanted, hint=f"{math.floor(number)} or {math.ceil(number)}" if abs(number) < 1e9 else ""
            )
        return int(_within(number, least, most, wanted))

    schema = {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, {"type": "string", "pattern": _COUNT}]}
    return Kind(name=what, example=example, read=read, write=int, json_schema=schema)


_COUNT = r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*[A-Za-z]{0,2}\s*$"
_MEASURE = r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*[A-Za-zµ/%]+\s*$"


def plain_number(*, least: float, most: float, example: str, above: bool = False) -> Kind:
    """A number without a unit; ``above`` means that ``least`` itself is refused."""
    wanted = f"a number {'above' if above else 'from'} {least:g} {'up ' if above else ''}to {most:g}"

    def read(node: ScalarNode) -> float:
        number = _number(node, wanted)
        if number is None:
            raise WrongValueError(wanted, hint="write the number alone, without quotes or a unit")
        if above and number <= least:
            raise WrongValueError(wanted)
        return float(_within(number, least, most, wanted))

    bound = "exclusiveMinimum" if above else "minimum"
    return Kind(
        name="number",
        example=example,
        read=read,
        write=_plain,
        json_schema={"type": "number", bound: least, "maximum": most},
    )


def measure(
    name: str,
    parse: Callable[[str], Any],
    write: Callable[[Any], str],
    *,
    least: float,
    most: float,
    example: str,
    readings: tuple[str, str],
) -> Kind:
    """A quantity that must carry its unit; ``readings`` are the two units a bare number could have meant."""
    wanted = f"a {name} with its unit, such as {example}"

    def read(node: ScalarNode) -> Any:
        number = _number(node, wanted)
        if number is not None:
            first, second = (f"{node.text}{unit}" for unit in readings)
            raise WrongValueError(
                wanted, hint=f"{node.text} alone could be {first} or {second}: write the one you mean"
            )
        value = _parsed(parse, node, wanted)
        return _within(value, least, most, f"a {name} from {write(least)} to {write(most)}", hint="check the unit")

    return Kind(name=name, example=example, read=read, write=write, json_schema={"type": "string", "pattern": _MEASURE})


def size(*, example: str = "40GiB") -> Kind:
    return measure(
        "size", units.parse_size, write_size, least=1, most=10**18, example=example, readings=("GiB", "GB")
    )  # fmt: skip


def duration(*, least_s: float = 1e-6, most_s: float = 31 * 86400.0, example: str = "250ms") -> Kind:
    return measure(
        "duration", units.parse_duration, write_duration, least=least_s, most=most_s, example=example,
        readings=("ms", "s"),
    )  # fmt: skip


def link_rate(*, example: str = "400Gb/s", readings: tuple[str, str] = ("Gb/s", "GB/s")) -> Kind:
    return measure(
        "link rate", units.parse_link_rate, write_link_rate, least=125e3, most=1e14, example=example, readings=readings
    )


def rate(*, most: float = 1e6, example: str = "16/s") -> Kind:
    """Events a second; a bare number is a second's."""
    wanted = f"a rate above 0 and up to {most:g}/s, such as {example}"

    def read(node: ScalarNode) -> float:
        number = _number(node, wanted)
        value = float(number if number is not None else _parsed(units.parse_rate, node, wanted))
        if value <= 0:
            raise WrongValueError(wanted)
        return float(_within(value, 0, most, wanted))

    schema = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": most},
                        {"type": "string", "pattern": _MEASURE}]}  # fmt: skip
    return Kind(name="rate", example=example, read=read, write=write_rate, json_schema=schema)


def ratio(*, above: bool = False, example: str = '"30%"') -> Kind:
    """A share from 0 to 1, or in per cent; ``above`` refuses 0."""
    wanted = f"a share {'above' if above else 'from'} 0 {'and up ' if above else ''}to 1, such as {example}"

    def read(node: ScalarNode) -> float:
        number = _number(node, wanted)
        value = number if number is not None else _parsed(_share, node, wanted)
        if 1 < value <= 100:
            raise WrongValueError(wanted, hint=f'write "{value:g}%" or {value / 100:g}')
        if above and value <= 0:
            raise WrongValueError(wanted)
        return float(_within(value, 0, 1, wanted))

    schema = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": _SHARE}]}
    return Kind(name="share", example=example, read=read, write=_plain, json_schema=schema)


_SHARE = r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*%?\s*$"


def _share(text: str) -> float:
    number = text.strip()
    return float(number[:-1]) / 100 if number.endswith("%") else units.parse_ratio(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Either of the two ways to ask for goodput."""

    per_s: float | None = None
    ratio: float | None = None


def goodput() -> Kind:
    """A rate of good requests, or their share; a bare number up to 1 is a share."""
    wanted = 'a rate such as 14/s or a share such as "95%"'
    as_rate, as_share = rate(), ratio(above=True)

    def read(node: ScalarNode) -> Goodput:
        number = _number(node, wanted)
        if number is not None and number > 1:
            raise WrongValueError(
                wanted, hint=f"write {node.text}/s for a rate" + (f' or "{number:g}%"' if number <= 100 else "")
            )
        if number is None and not re.fullmatch(_SHARE, node.text):
            return Goodput(per_s=as_rate.read(node))
        return Goodput(ratio=as_share.read(node))

    def write(value: Goodput) -> str | float | int:
        return write_rate(value.per_s) if value.per_s is not None else _plain(value.ratio or 0.0)

    schema = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string"}]}
    return Kind(name="rate or share", example="14/s", read=read, write=write, json_schema=schema)


def choice(*values: str) -> Kind:
    wanted = " or ".join(values) if len(values) < 3 else f"{', '.join(values[:-1])} or {values[-1]}"

    def read(node: ScalarNode) -> str:
        if node.text in values and node.value is not None:
            return node.text
        raise WrongValueError(wanted, hint=did_you_mean(node.text, values) if len(values) > 1 else "")

    return Kind(name=wanted, example=values[0], read=read, write=str, json_schema={"enum": list(values)})


def text(what: str, pattern: str, *, example: str, most: int = 200, hint: str = "") -> Kind:
    """Text of a given form. A number stands for its characters; true, false and null do not."""
    form = re.compile(pattern)

    def read(node: ScalarNode) -> str:
        if isinstance(node.value, bool):
            raise WrongValueError(what, hint=f'quote it: "{node.text}"')
        if node.value is None or not node.text:
            raise WrongValueError(what)
        if len(node.text) > most:
            raise WrongValueError(f"{what}, at most {most} characters")
        if not form.fullmatch(node.text):
            raise WrongValueError(what, hint=hint)
        return node.text

    schema = {"type": ["string", "number"], "maxLength": most}
    return Kind(name=what, example=example, read=read, write=str, json_schema=schema)


_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?(.*)", re.DOTALL)


def engine_url() -> Kind:
    wanted = "http://HOST:PORT or https://HOST:PORT, without a path"

    def read(node: ScalarNode) -> str:
        found = _URL.fullmatch(node.text)
        if found is None:
            raise WrongValueError(
                wanted, hint=f"http://{node.text}" if re.fullmatch(r"[\w.-]+:[0-9]+", node.text) else ""
            )
        scheme, host, port, rest = found.groups()
        if port is None and rest in {"", "/"}:
            raise WrongValueError(wanted, hint=f"name the port, such as {scheme}://{host}:8000")
        if port is None or not 1 <= int(port) <= 65535:
            raise WrongValueError(wanted)
        base = f"{scheme}://{host}:{port}"
        if rest not in {"", "/"}:
            raise WrongValueError(wanted, hint=f"write {base}; requests bring their own path" if rest[0] == "/" else "")
        return base

    return Kind(
        name="URL", example="http://127.0.0.1:8000", read=read, write=str,
        json_schema={"type": "string", "pattern": r"^https?://"},
    )  # fmt: skip


def _plain(value: float) -> int | float:
    """Without a point where there is nothing behind it: 1 for 1.0."""
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def write_size(value: float) -> str:
    whole = int(value)
    for unit, factor in (("TiB", units.TIB), ("GiB", units.GIB), ("MiB", units.MIB), ("KiB", units.KIB)):
        if whole and whole % factor == 0:
            return f"{whole // factor}{unit}"
    return f"{whole}B"


def _exactly(value: float, parse: Callable[[str], float], shown: tuple[tuple[str, float], ...], fallback: str) -> str:
    """``value`` in the first unit whose short form reads back exactly."""
    for unit, factor in shown:
        number = value / factor
        if 1 <= number < 1000 and parse(f"{number:.12g}{unit}") == value:
            return f"{number:.12g}{unit}"
    return f"{value!r}{fallback}"


def write_duration(value: float) -> str:
    shown = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
    return _exactly(value, units.parse_duration, shown, "s")


def write_link_rate(value: float) -> str:
    shown = (("Tb/s", 125e9), ("Gb/s", 125e6), ("Mb/s", 125e3))
    return _exactly(value, units.parse_link_rate, shown, "B/s")


def write_rate(value: float) -> str:
    return f"{_plain(value)!r}/s"
