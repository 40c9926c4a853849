"""Plots of a cost report: well-formed SVG that shows what it was given and nothing that was not escaped."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from roadworthy.bench.cost_plots import Swing, break_even_curve, hour_bars, tornado

OWN = ((0.0, 100.0), (10.0, 100.0), (10.0, 200.0), (20.0, 200.0))
API = ((0.0, 0.0), (20.0, 300.0))


def curve(**changes: object) -> str:
    given = {
        "break_even": (100 / 15, 100.0),
        "expected": 12.0,
        "volume": "{:g} tok".format,
        "currency": "EUR",
    } | changes
    return break_even_curve(OWN, API, **given)  # type: ignore[arg-type]


def classes(svg: str) -> list[str]:
    return [one.get("class", "") for one in ElementTree.fromstring(svg).iter()]


def test_the_curve_marks_the_break_even_and_the_expected_volume() -> None:
    found = classes(curve())
    assert found.count("mark") == 1
    assert found.count("limit") == 1
    assert "own" in found
    assert "api" in found


def test_without_a_break_even_none_is_marked() -> None:
    assert "mark" not in classes(curve(break_even=None))


def test_the_break_even_lies_on_both_lines() -> None:
    svg = ElementTree.fromstring(curve())
    mark = next(one for one in svg.iter() if one.get("class") == "mark")
    own = next(one for one in svg.iter() if one.get("class") == "own")
    first_y = (own.get("points") or "").split()[0].split(",")[1]
    assert float(mark.get("cy") or 0) == pytest.approx(float(first_y), abs=0.1)


def test_nothing_to_draw_draws_nothing() -> None:
    assert break_even_curve(((0.0, 0.0),), ((0.0, 0.0),), break_even=None, expected=0, volume=str, currency="USD") == ""
    assert tornado((), base=1.0, even=1.0) == ""
    assert hour_bars((), ()) == ""


def test_words_are_escaped() -> None:
    swing = Swing(name="<b>", low="&", high=">", at_low=0.5, at_high=2.0, reach=(0.5, 2.0))
    assert "<b>" not in tornado((swing,), base=1.0, even=None)
    assert "<i>" not in curve(currency="<i>")


def test_a_bar_reaches_over_all_its_results() -> None:
    wide = Swing(name="a", low="1", high="2", at_low=1.0, at_high=1.5, reach=(0.5, 1.5))
    narrow = Swing(name="b", low="1", high="2", at_low=1.0, at_high=1.5, reach=(1.0, 1.5))
    widths = [
        float(one.get("width") or 0)
        for one in ElementTree.fromstring(tornado((wide, narrow), base=1.0, even=1.0)).iter()
        if one.get("class") == "swing"
    ]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)


def test_peak_hours_stand_out() -> None:
    found = classes(hour_bars([0.5] * 24, [1, 2]))
    assert found.count("hour peak") == 2
    assert found.count("hour") == 22
