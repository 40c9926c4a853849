"""What a run under way shows: counters, the pace of late, and a new start for each load of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.adapters.load_request import BenchRequest
from roadworthy.bench.driver import Progress
from roadworthy.cli.bench_progress import Pace, watching
from roadworthy.spec.values import RequestProfile

if TYPE_CHECKING:
    import pytest

REQUEST = BenchRequest(url="http://x", workload=RequestProfile(), requests=10)


def test_the_pace_is_that_since_the_last_look() -> None:
    pace = Pace()
    assert "now 2.0/s, 100 tokens/s" in pace.describe(Progress(sent=30, completed=20, output_tokens=1000), 10.0)
    text = pace.describe(Progress(sent=40, in_flight=5, completed=30, failed=5, output_tokens=3000), 12.0)
    assert text == "12 s: 40 sent, 5 in flight, 30 completed, 5 failed; now 5.0/s, 1,000 tokens/s"


def test_another_load_begins_anew() -> None:
    pace = Pace()
    pace.describe(Progress(completed=500, output_tokens=9000), 60.0)
    assert "now 4.0/s, 50 tokens/s" in pace.describe(Progress(completed=8, output_tokens=100), 2.0)


def test_without_a_terminal_there_is_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(REQUEST) as watch:
        for half_seconds in range(1, 25):
            watch(Progress(sent=half_seconds), half_seconds / 2)
        watch(Progress(sent=1), 0.5)  # the next load of a sweep
        watch(Progress(sent=2), 5.0)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line.split(":")[0] for line in shown.err.splitlines()] == ["5 s", "10 s", "5 s"]
