"""Pieces of work on several processes: order, errors, and nothing left behind."""

from __future__ import annotations

import math
import operator
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path
from types import MappingProxyType

import pytest

from roadworthy.adapters.processes import each


@pytest.mark.parametrize("processes", [1, 2])
def test_outcomes_come_in_the_order_of_the_pieces(processes: int) -> None:
    assert list(each(math.sqrt, [9, 4, 1], processes=processes)) == [3.0, 2.0, 1.0]


def test_read_only_mappings_travel() -> None:
    pieces = [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})]
    assert list(each(operator.itemgetter("a"), pieces, processes=2)) == [1, 2]


def test_an_error_of_one_piece_ends_the_others_and_is_raised_here() -> None:
    started_s = time.monotonic()
    with pytest.raises(TypeError):
        list(each(time.sleep, ["not a time", 60], processes=2))
    assert time.monotonic() - started_s < 40, "the sixty seconds were not waited for"
    assert not active_children()


def test_whoever_stops_listening_leaves_no_process() -> None:
    outcomes = each(time.sleep, [0, 60, 60], processes=2)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert not active_children()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_not_even_the_standard_librarys_helper_is_left() -> None:
    script = (
        "import math, os, pathlib\n"
        "from roadworthy.adapters.processes import each\n"
        "if __name__ == '__main__':\n"
        "    print(list(each(math.sqrt, [4, 9], processes=2)))\n"
        "    print(pathlib.Path(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read_text().split())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[2.0, 3.0]\n[]\n"
    assert done.stderr == ""
