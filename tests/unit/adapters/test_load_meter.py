"""The load generator's watch on itself."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from roadworthy.adapters import load_meter
from roadworthy.adapters.load_meter import ClockMeter, no_pauses, stop_on_signals


class Clocks:
    """Both clocks of a machine, set by hand."""

    def __init__(self) -> None:
        self.wall_s, self.rising_s = 1_000_000.0, 50.0

    def time(self) -> float:
        return self.wall_s

    def monotonic(self) -> float:
        return self.rising_s


@pytest.mark.parametrize(("set_by_s", "told_s"), [(0.0, 0.0), (0.4, 0.0), (-3600.0, -3600.0), (2.0, 2.0)])
def test_a_clock_that_is_set_during_the_run_is_noticed(
    set_by_s: float, told_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(load_meter, "time", clocks)
    meter = ClockMeter()
    clocks.rising_s += 120.0
    clocks.wall_s += 120.0 + set_by_s
    assert meter.jump_s() == pytest.approx(told_s)


def test_the_garbage_collector_is_as_before_afterwards() -> None:
    usual = gc.get_threshold()
    with no_pauses():
        assert gc.get_threshold() != usual
    assert gc.get_threshold() == usual
    with pytest.raises(RuntimeError), no_pauses():
        raise RuntimeError
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_to_end_ends_the_load_once(number: signal.Signals) -> None:
    async def main() -> bool:
        stop = asyncio.Event()
        with stop_on_signals(stop):
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stop.wait(), 10)
        return stop.is_set()

    before = signal.getsignal(number)
    assert asyncio.run(main())
    assert signal.getsignal(number) == before


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    async def main() -> bool:
        stop = asyncio.Event()
        with stop_on_signals(stop):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 10)
            return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        return False

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert asyncio.run(main())
    finally:
        signal.signal(signal.SIGHUP, before)
