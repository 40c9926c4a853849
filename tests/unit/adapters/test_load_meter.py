"""The load generator's watch on itself."""

from __future__ import annotations

import gc

import pytest

from roadworthy.adapters import load_meter
from roadworthy.adapters.load_meter import ClockMeter, no_pauses


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
