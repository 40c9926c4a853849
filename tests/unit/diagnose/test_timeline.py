"""The timeline: each kind of clock in order by itself, the first cause marked, and how far it reached."""

from __future__ import annotations

from roadworthy.diagnose.anatomy import time_of
from roadworthy.diagnose.examine import examine
from roadworthy.diagnose.timeline import clock_of, reach, timeline

LOGS = {
    "r0.log": "[rank0]:[E901 10:10:00 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout\n"
    * 3,
    "r5.log": "(VllmWorker rank=5 pid=9) ERROR 09-01 10:00:00 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 512.00 MiB. GPU 5 has a total capacity of 79.11 GiB of which 100.00 MiB is free.\n",
    "dmesg.txt": "[  771.120] NVRM: Xid (PCI:0000:dd:00): 43, pid=1\n",
}


def test_the_first_cause_stands_before_what_followed() -> None:
    book, judged = examine(LOGS)
    first = judged.findings[0]
    assert first.code == "peer-rank-crash"
    events = timeline(book, {(one.file, one.line) for one in first.evidence})
    yearless = [one for one in events if one.clock == "without a year"]
    assert (yearless[0].file, yearless[0].first_cause) == ("r5.log", True)
    assert yearless[-1].file == "r0.log"
    assert events[-1].clock == "since boot"
    assert events[-1].when == "+771.120 s"


def test_kinds_of_clocks_are_told_apart() -> None:
    for text, kind in (
        ("2026-01-01 00:00:00", "dated"),
        ("INFO 09-01 10:00:00 x", "without a year"),
        ("[ 7.1] x", "since boot"),
    ):
        seconds = time_of(text)
        assert seconds is not None
        assert clock_of(seconds) == kind


def test_the_reach_counts_hosts_ranks_and_lines_of_symptoms() -> None:
    book, _ = examine(LOGS)
    reached = reach(book)
    assert set(reached.ranks) >= {0, 5}
    assert reached.symptom_lines >= 4
