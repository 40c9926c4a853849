"""Why a tool has no number, out of its own words: patterns in order, the most telling first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.fabric.values import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence


def most_telling(lines: Sequence[str], known: Sequence[tuple[str, str]]) -> Fault | None:
    """The first line with the first of ``known``, pairs of a pattern and the taxonomy id that it points to."""
    for rank, (pattern, code) in enumerate(known):
        for number, line in enumerate(lines, 1):
            if re.search(pattern, line):
                return Fault(rank=rank, code=code, line=number, text=line.strip())
    return None
