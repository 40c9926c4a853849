"""When sessions start: a rate that holds, waves or climbs, and gaps that are even, random or bunched.

A pattern has a shape of the rate over time and a law of the gaps. Gaps are drawn in units of the mean gap and laid
along the cumulated rate, so that any law of gaps goes with any shape (time rescaling: a Poisson process of a rate that
varies is a Poisson process of rate one in the time of the integral). ``burstiness`` is the shape parameter of the
gamma law of the gaps, as in ``vllm bench serve``: 1 is Poisson, below 1 is bunched (the coefficient of variation is
``1 / sqrt(burstiness)``), infinite is even.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from roadworthy.spec.workload_values import ArrivalPattern

Gap = Callable[["random.Random"], float]


def start_times(
    pattern: ArrivalPattern, rate_per_s: float, rng: random.Random, *, length_s: float = math.inf
) -> Iterator[float]:
    """Seconds at which sessions start, without end, rising.

    Args:
        rate_per_s: of sessions; the mean over a period of a diurnal pattern, the first of a ramp.
        length_s: of a ramp, which climbs until then and then stays.

    Raises:
        ValueError: a ramp without a length.
    """
    gap = _gap_of(pattern)
    if pattern.pattern == "diurnal":
        return _rescaled(gap, rng, _Wave(rate_per_s, pattern.peak_ratio, pattern.period_s).time_of)
    if pattern.pattern == "ramp":
        if not math.isfinite(length_s) or length_s <= 0:
            raise ValueError("a ramp needs a length: how long it climbs")
        factor = 1.0 if pattern.to_rate_per_s is None else pattern.to_rate_per_s / rate_per_s
        return _rescaled(gap, rng, _Ramp(rate_per_s, factor, length_s).time_of)
    if pattern.pattern == "poisson":
        return _poisson(rate_per_s, rng)
    return _rescaled(gap, rng, lambda area: area / rate_per_s)


def ramp_length_s(first_per_s: float, last_per_s: float, starts: int) -> float:
    """How long a ramp takes to bring ``starts``: their number over the mean of both rates."""
    return starts / ((first_per_s + last_per_s) / 2)


def _gap_of(pattern: ArrivalPattern) -> Gap:
    """Draws one gap with mean 1."""
    if pattern.pattern == "constant":
        return lambda _: 1.0
    shape = pattern.burstiness
    if shape == 1.0:
        return lambda rng: rng.expovariate(1.0)
    return lambda rng: rng.gammavariate(shape, 1.0 / shape)


def _poisson(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    now_s = 0.0
    while True:
        now_s += rng.expovariate(rate_per_s)
        yield now_s


def _rescaled(gap: Gap, rng: random.Random, time_of: Callable[[float], float]) -> Iterator[float]:
    area = 0.0
    while True:
        area += gap(rng)
        yield time_of(area)


class _Wave:
    """``mean * (1 - a cos(2 pi t / period))``: a day that begins at its quietest; peak over trough is the ratio."""

    def __init__(self, mean_per_s: float, peak_ratio: float, period_s: float) -> None:
        self._mean_per_s = mean_per_s
        self._amplitude = (peak_ratio - 1) / (peak_ratio + 1)
        self._turn_per_s = 2 * math.pi / period_s
        self._latest_s = 0.0

    def time_of(self, area: float) -> float:
        """When the cumulated rate reaches ``area``, which rises from call to call: halved to under a microsecond."""
        swing_s = self._amplitude / self._turn_per_s
        low_s = max(self._latest_s, area / self._mean_per_s - swing_s)
        high_s = max(self._latest_s, area / self._mean_per_s + swing_s)
        while high_s - low_s > 1e-6:
            middle_s = (low_s + high_s) / 2
            if middle_s in (low_s, high_s):  # floats have no more to give, days into the run
                break
            if self._area(middle_s) < area:
                low_s = middle_s
            else:
                high_s = middle_s
        self._latest_s = high_s
        return high_s

    def _area(self, time_s: float) -> float:
        turn = self._turn_per_s
        return self._mean_per_s * (time_s - self._amplitude * math.sin(turn * time_s) / turn)


class _Ramp:
    """From the first rate to ``factor`` times it over ``length_s``, then level."""

    def __init__(self, first_per_s: float, factor: float, length_s: float) -> None:
        self._first_per_s = first_per_s
        self._slope_per_s2 = first_per_s * (factor - 1) / length_s
        self._length_s = length_s
        self._last_per_s = first_per_s * factor
        self._area_of_climb = (first_per_s + self._last_per_s) / 2 * length_s

    def time_of(self, area: float) -> float:
        if area >= self._area_of_climb:
            return self._length_s + (area - self._area_of_climb) / self._last_per_s
        # first t + slope/2 t**2 = area, in the form that loses no digits when the slope is near zero
        root = math.sqrt(self._first_per_s**2 + 2 * self._slope_per_s2 * area)
        return 2 * area / (self._first_per_s + root)
