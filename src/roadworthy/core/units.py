"""Sizes, durations and rates as people write them, and as we print them.

Input means what it says: ``80GiB`` is 80 * 2**30 bytes and ``80GB`` is 80 * 10**9; ``400Gb/s`` counts bits and
``50GB/s`` counts bytes. Inside the program every value carries its unit in its name: ``*_bytes`` are ``int``,
``*_s`` are ``float`` seconds, ``*_bytes_per_s`` and ``*_per_s`` are ``float``.
"""

from __future__ import annotations

import math
import re

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%/µ]*)\s*$")

_SIZE_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
}  # fmt: skip
_DURATION_UNITS_S = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip
_LINK_UNITS_BYTES_PER_S = {
    "b/s": 0.125, "kb/s": 125.0, "Mb/s": 125e3, "Gb/s": 125e6, "Tb/s": 125e9, "Gbps": 125e6, "Mbps": 125e3,
    "B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "GiB/s": float(GIB),
}  # fmt: skip
_RATE_UNITS_PER_S = {"/s": 1.0, "/min": 1 / 60, "/m": 1 / 60, "/h": 1 / 3600, "rps": 1.0}
_COUNT_UNITS = {
    "": 1,
    "k": 10**3,
    "K": 2**10,
    "Ki": 2**10,
    "M": 10**6,
    "Mi": 2**20,
    "G": 10**9,
    "B": 10**9,
    "T": 10**12,
}


def _parse(text: str, units: dict[str, float] | dict[str, int], kind: str, example: str) -> tuple[float, float]:
    match = _NUMBER.match(text)
    if match is None or match[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        raise ValueError(f"{kind} with a unit, such as {example} (units: {known})")
    return float(match[1]), units[match[2]]


def parse_size(text: str) -> int:
    """Bytes of a size such as ``80GiB`` or ``1.5TB``. Raises ValueError with what was wanted."""
    number, factor = _parse(text, _SIZE_UNITS, "a size", "80GiB")
    return round(number * factor)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``250ms`` or ``2h``. Raises ValueError with what was wanted."""
    number, factor = _parse(text, _DURATION_UNITS_S, "a duration", "250ms")
    return number * factor


def parse_link_rate(text: str) -> float:
    """Bytes a second of a link rate; ``Gb/s`` counts bits and ``GB/s`` bytes. Raises ValueError."""
    number, factor = _parse(text, _LINK_UNITS_BYTES_PER_S, "a link rate", "400Gb/s")
    return number * factor


def parse_rate(text: str) -> float:
    """Events a second of a rate such as ``16/s`` or ``90/min``. Raises ValueError."""
    number, factor = _parse(text, _RATE_UNITS_PER_S, "a rate", "16/s")
    return number * factor


def parse_count(text: str) -> int:
    """A whole number such as ``5M`` (10**6) or ``128K`` (2**10, as in context lengths). Raises ValueError."""
    number, factor = _parse(text, _COUNT_UNITS, "a count", "5M")
    value = number * factor
    if value != int(value):
        raise ValueError("a whole number, such as 128K or 5M")
    return int(value)


def parse_ratio(text: str) -> float:
    """A share from ``30%`` or ``0.3``, between 0 and 1. Raises ValueError."""
    number, factor = _parse(text, {"": 1.0, "%": 0.01}, "a share", "30%")
    value = number * factor
    if not 0 <= value <= 1:
        raise ValueError("a share between 0 and 1, such as 0.3 or 30%")
    return value


def format_gib(size_bytes: float, digits: int = 2) -> str:
    """``26.88 GiB``; memory always prints in GiB."""
    return f"{size_bytes / GIB:.{digits}f} GiB"


def format_bytes(size_bytes: float) -> str:
    """The size in the largest binary unit that keeps it at or above one: ``1.41 TiB``, ``56.2 MiB``, ``12 B``."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes:.0f} B"


def format_duration(duration_s: float) -> str:
    """``250 ms``, ``1.50 s``, ``12.0 min``: three figures in the unit that reads best."""
    if not math.isfinite(duration_s):
        return "unbounded"
    if duration_s >= 120:
        return f"{duration_s / 60:.1f} min"
    if duration_s >= 1:
        return f"{duration_s:.2f} s"
    if duration_s >= 1e-3:
        return f"{duration_s * 1e3:.3g} ms" if duration_s < 0.1 else f"{duration_s * 1e3:.0f} ms"
    return f"{duration_s * 1e6:.3g} µs"


def format_count(count: float) -> str:
    """A whole number with thousands separators: ``3,828,020``."""
    return f"{count:,.0f}"
