"""Plots: scales that hold everything, round ticks, and thinning that hides neither peak nor edge."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.bench.plots import HEIGHT, MAX_SCATTER_POINTS, WIDTH, Axis, in_flight, latency_cdf, latency_scatter

latencies_s = st.lists(st.floats(0, 1e4), max_size=400)


def inside(svg: str) -> None:
    """Well-formed, with every coordinate of every curve inside the view."""
    root = ET.fromstring(svg)
    for line in (*root.findall("polyline"), *root.findall("polygon")):
        for pair in line.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


@given(latencies_s, st.none() | st.floats(1e-3, 100))
def test_any_distribution_can_be_drawn(values: list[float], limit_s: float | None) -> None:
    inside(latency_cdf("TTFT", values, limit_s=limit_s, limit_name="P99"))


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), max_size=300))
def test_any_timeline_can_be_drawn(spans: list[tuple[float, float]]) -> None:
    inside(in_flight([(start, start + length) for start, length in spans]))


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), max_size=300), latencies_s)
def test_any_scatter_can_be_drawn(points: list[tuple[float, float]], failures: list[float]) -> None:
    inside(latency_scatter("TTFT", points, failures, limit_s=0.25))


@given(st.floats(1e-6, 1e6), st.floats(1.2, 1e6), st.booleans())
def test_ticks_are_few_and_inside(low: float, ratio: float, log: bool) -> None:
    axis = Axis(low=low, high=low * ratio, start_px=0, end_px=100, log=log)
    ticks = axis.ticks()
    assert len(ticks) <= 12
    assert all(low * 0.999 <= tick <= low * ratio * 1.001 for tick in ticks)


def test_ticks_are_round() -> None:
    axis = Axis(low=0, high=0.34, start_px=0, end_px=100)
    assert axis.ticks() == pytest.approx([0, 0.1, 0.2, 0.3])


def test_a_limit_stands_where_its_value_is() -> None:
    svg = ET.fromstring(latency_cdf("TTFT", [0.1, 0.2], limit_s=0.4, limit_name="P99"))
    (limit,) = [line for line in svg.findall("line") if line.get("class") == "limit"]
    curve = svg.find("polyline")
    assert curve is not None
    assert float(limit.attrib["x1"]) > max(float(pair.split(",")[0]) for pair in curve.attrib["points"].split())


def test_a_short_peak_of_requests_in_flight_survives_thinning() -> None:
    """A burst of 50 that lasts 1 ms in a run of 1,000 s."""
    long = [(float(second), second + 0.9) for second in range(1000)]
    svg = in_flight([*long, *[(500.05, 500.051)] * 50])
    assert "at most 51" in svg
    curve = ET.fromstring(svg).find("polyline")
    assert curve is not None
    heights = sorted(float(pair.split(",")[1]) for pair in curve.attrib["points"].split())
    assert heights[0] < heights[5] - 50


def test_a_large_scatter_is_thinned_and_says_so() -> None:
    svg = latency_scatter("TTFT", [(index / 100, 0.1) for index in range(10_000)], [])
    assert f"{MAX_SCATTER_POINTS:,} of 10,000 shown" in svg
    assert len(re.findall("M", svg)) == MAX_SCATTER_POINTS
    assert len(svg) < 40_000


def test_every_failure_is_drawn() -> None:
    assert latency_scatter("TTFT", [], [1.0, 2.0]).count("l6 6") == 2
