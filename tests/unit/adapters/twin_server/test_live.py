"""One scheduler, two clocks: under an event loop's clock the twin says what it says in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import CollectorRegistry

from roadworthy.adapters.twin_server.live import LiveEngine
from roadworthy.adapters.twin_server.metrics import LatencyHistograms
from roadworthy.core.errors import Refused
from roadworthy.twin.engine import Engine
from roadworthy.twin.requests import Output, TwinRequest
from support.twin import STEP_S, config, request

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig


@dataclass
class Timer:
    due_s: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """The clock and the timers of an event loop, moved by hand; each timer may fire late."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.late_s = late_s
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(due_s, callback))
        return self.timers[-1]

    def run_until(self, end_s: float) -> None:
        while True:
            self.timers = [timer for timer in self.timers if not timer.cancelled]
            due = min(self.timers, key=lambda timer: timer.due_s, default=None)
            if due is None or due.due_s + self.late_s > end_s:
                self.now_s = max(self.now_s, end_s)
                return
            self.timers.remove(due)
            self.now_s = max(self.now_s, due.due_s + self.late_s)
            due.callback()


def live(loop: FakeLoop, **changes: Any) -> LiveEngine:
    twin: TwinConfig = config(**changes)
    return LiveEngine(twin, cast("Any", loop), LatencyHistograms(twin, CollectorRegistry()))


ASKED = [(0.0, request("a", 40, 30)), (0.0, request("b", 300, 5)), (0.125, request("c", 25, 60))]


@pytest.mark.parametrize("late_s", [0.0, 0.003, 0.05])
def test_tokens_have_the_times_of_virtual_time_however_late_the_timers_are(late_s: float) -> None:
    """A late timer delays what a client sees; the model's own moments do not drift."""
    loop = FakeLoop(late_s)
    engine = live(loop)
    seen: list[Output] = []
    virtual = Engine(config(), detail="tokens")
    expected: list[Output] = []
    for at_s, asked in ASKED:
        loop.run_until(at_s)
        engine.submit(asked, seen.append)
        if at_s:
            expected += virtual.advance(at_s)
        virtual.add(asked, at_s)
    loop.run_until(10.0)
    expected += virtual.advance(10.0)
    assert seen == expected
    assert not loop.timers, "an idle engine sets no timer"


def test_a_token_is_told_at_its_time_and_not_before() -> None:
    loop = FakeLoop()
    engine = live(loop)
    told_s: list[float] = []
    engine.submit(request("a", 10, 3), lambda _: told_s.append(loop.now_s))
    loop.run_until(1.0)
    for index, at_s in enumerate(told_s, start=1):
        assert index * STEP_S <= at_s <= index * STEP_S + 0.001
    assert len(told_s) == 3


def test_after_an_abort_nothing_is_told_and_the_blocks_are_free() -> None:
    loop = FakeLoop()
    engine = live(loop)
    seen: list[Output] = []
    engine.submit(request("a", 10, 500), seen.append)
    loop.run_until(5.5 * STEP_S)
    engine.abort("a")
    assert (engine.stats().running, engine.stats().kv_usage_ratio) == (0, 0)
    told = len(seen)
    loop.run_until(20.0)
    assert len(seen) == told == 5
    engine.abort("a")  # again: nothing


def test_a_refused_request_leaves_no_trace() -> None:
    loop = FakeLoop()
    engine = live(loop, max_num_queued_reqs=1)
    engine.submit(request("a", 10, 3), lambda _: None)
    heard: list[Output] = []
    with pytest.raises(Refused):
        engine.submit(request("b", 10, 3), heard.append)
    loop.run_until(1.0)
    assert heard == []
    engine.submit(request("b", 10, 3), heard.append)
    loop.run_until(2.0)
    assert len(heard) == 3


def test_requests_of_one_moment_share_a_batch() -> None:
    loop = FakeLoop()
    engine = live(loop)
    times_s: dict[str, list[float]] = {"a": [], "b": []}
    for name in times_s:
        engine.submit(TwinRequest(id=name, segments=request(name, 20, 1).segments, output_tokens=2),
                      lambda output: times_s[output.request_id].append(output.at_s))  # fmt: skip
    loop.run_until(1.0)
    assert times_s["a"] == times_s["b"]
