"""When sessions start: every pattern brings its rate, and each its own unevenness."""

from __future__ import annotations

import math
import random
from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.advise.patterns import ramp_length_s, start_times
from roadworthy.spec.workload_values import ArrivalPattern

COUNT = 6000


def times(
    pattern: ArrivalPattern, rate_per_s: float = 5.0, *, length_s: float = math.inf, count: int = COUNT
) -> list[float]:
    return list(islice(start_times(pattern, rate_per_s, random.Random(7), length_s=length_s), count))


def gaps(found: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(found)]


def variation(values: list[float]) -> float:
    return pstdev(values) / fmean(values)


@given(
    st.sampled_from(["poisson", "gamma", "constant", "diurnal", "ramp"]),
    st.floats(0.1, 20),
    st.floats(0.05, 50),
    st.floats(1, 20),
)
def test_starts_only_ever_rise(name: str, burstiness: float, rate_per_s: float, peak: float) -> None:
    pattern = ArrivalPattern(
        pattern=name,
        burstiness=burstiness,
        period_s=60,
        peak_ratio=peak,
        to_rate_per_s=rate_per_s * 3,  # type: ignore[arg-type]
    )
    found = times(pattern, rate_per_s, length_s=30, count=200)
    assert found[0] >= 0
    assert all(gap >= 0 for gap in gaps(found))


@pytest.mark.parametrize(
    "pattern",
    [
        ArrivalPattern(),
        ArrivalPattern(pattern="gamma", burstiness=0.25),
        ArrivalPattern(pattern="constant"),
        ArrivalPattern(pattern="diurnal", period_s=100),
    ],
)
def test_the_mean_rate_is_the_one_asked_for(pattern: ArrivalPattern) -> None:
    assert COUNT / times(pattern)[-1] == pytest.approx(5.0, rel=0.06)


def test_burstiness_sets_how_much_gaps_vary() -> None:
    """As `vllm bench serve` has it: the coefficient of variation is one over its root."""
    assert variation(gaps(times(ArrivalPattern()))) == pytest.approx(1.0, rel=0.06)
    assert variation(gaps(times(ArrivalPattern(pattern="gamma", burstiness=0.25)))) == pytest.approx(2.0, rel=0.1)
    assert variation(gaps(times(ArrivalPattern(pattern="gamma", burstiness=4.0)))) == pytest.approx(0.5, rel=0.06)


def test_even_gaps_are_even() -> None:
    assert gaps(times(ArrivalPattern(pattern="constant"), count=100)) == pytest.approx([0.2] * 99)


def test_a_wave_begins_at_its_trough_and_its_peak_is_the_ratio_above() -> None:
    found = times(ArrivalPattern(pattern="diurnal", period_s=100, peak_ratio=3.0))
    phases = [time_s % 100 for time_s in found]
    trough = sum(phase < 10 or phase >= 90 for phase in phases)
    peak = sum(40 <= phase < 60 for phase in phases)
    # mean of 1 -+ 0.5 cos over a fifth of the wave around its extremes
    assert peak / trough == pytest.approx((1 + 0.5 * 0.935) / (1 - 0.5 * 0.935), rel=0.1)


def test_a_ramp_climbs_to_its_end_and_stays() -> None:
    pattern = ArrivalPattern(pattern="ramp", to_rate_per_s=20.0)
    found = times(pattern, 4.0, length_s=200)
    assert sum(time_s <= 100 for time_s in found) == pytest.approx(100 * (4 + 12) / 2, rel=0.1)
    assert sum(100 < time_s <= 200 for time_s in found) == pytest.approx(100 * (12 + 20) / 2, rel=0.08)
    assert sum(200 < time_s <= 300 for time_s in found) == pytest.approx(2000, rel=0.08)


def test_a_ramp_of_so_many_requests_ends_with_the_last_of_them() -> None:
    pattern = ArrivalPattern(pattern="ramp", burstiness=1e6, to_rate_per_s=30.0)
    length_s = ramp_length_s(10.0, 30.0, 1000)
    assert times(pattern, 10.0, length_s=length_s, count=1000)[-1] == pytest.approx(length_s, rel=0.01)


def test_a_ramp_down_to_nearly_nothing_is_a_ramp_too() -> None:
    found = times(ArrivalPattern(pattern="ramp", to_rate_per_s=0.01), 10.0, length_s=100, count=500)
    assert sum(time_s <= 50 for time_s in found) > 2.5 * sum(50 < time_s <= 100 for time_s in found)


def test_a_ramp_without_a_length_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a length"):
        times(ArrivalPattern(pattern="ramp", to_rate_per_s=2.0))
