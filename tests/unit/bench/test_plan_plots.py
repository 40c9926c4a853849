"""Plots of a plan: well formed, to scale, inside the view, and never broken by odd numbers or names."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.bench.plan_plots import HEIGHT, WIDTH, Bar, Dot, Line, front, log_lines, memory_stack, short_count
from roadworthy.core.units import format_gib

positive = st.floats(1e-6, 1e9)


def inside(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    for line in root.findall("polyline"):
        for pair in line.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
    return root


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=40))
def test_any_curve_can_be_drawn(points: list[tuple[float, float]]) -> None:
    inside(log_lines([Line(name="held", points=tuple(sorted(points)))], x_name="tokens", y_name="requests"))


@given(
    st.lists(st.builds(Dot, x_s=positive, y=positive, name=st.just("<TP8>"), on_front=st.booleans()), max_size=40),
    st.none() | positive,
)
def test_any_front_can_be_drawn(dots: list[Dot], limit_s: float | None) -> None:
    root = inside(front(dots, x_name="TPOT", y_name="tokens/s", limit_s=limit_s, limit_name="P99 ≤"))
    assert len(root.findall("circle")) == sum(dot.on_front for dot in dots)


def test_the_parts_of_a_rank_are_to_scale_and_say_their_size() -> None:
    bar = Bar(name="rank 0", device_bytes=4 * 2**30, parts=((0, "weights", 3 * 2**30), (6, "free", 2**30)))
    svg = memory_stack([bar], format_gib)
    rects = [element for element in ET.fromstring(svg).iter("rect") if element.attrib["class"].startswith("p")]
    widths = [float(element.attrib["width"]) for element in rects]
    assert widths[0] == pytest.approx(3 * widths[1], abs=0.3)
    assert "rank 0: weights 3.00 GiB" in svg


def test_a_rank_that_does_not_fit_runs_over_the_edge_of_the_device() -> None:
    bar = Bar(name="rank 0", device_bytes=2**30, parts=((0, "weights", 2 * 2**30), (6, "free", -(2**30))))
    elements = list(ET.fromstring(memory_stack([bar], format_gib)).iter("rect"))
    widths = {element.attrib["class"]: float(element.attrib["width"]) for element in elements}
    assert widths["p0"] == pytest.approx(2 * widths["frame"], abs=0.3)
    assert widths["p6"] == 0


@pytest.mark.parametrize(
    ("count", "text"),
    [(800, "800"), (1024, "1K"), (32768, "32K"), (1048576, "1M"), (5000, "5k"), (2e6, "2M"), (0.5, "0.5")],
)
def test_counts_are_short(count: float, text: str) -> None:
    assert short_count(count) == text


def test_names_are_escaped() -> None:
    bar = Bar(name="<script>", device_bytes=1, parts=((0, "<b>", 1),))
    assert not re.search(r"<script>|<b>", memory_stack([bar], format_gib))
