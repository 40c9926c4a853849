"""Reading against the engine."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.wall import Meter, Wall


@pytest.mark.parametrize(
    ("read", "engine", "bottleneck", "ratio"), [(100.0, 400.0, "reading", 4.0), (900.0, 300.0, "engine", 3.0)]
)
def test_the_slower_side_is_the_bottleneck(read: float, engine: float, bottleneck: str, ratio: float) -> None:
    wall = Wall(read_per_s=read, engine_per_s=engine)
    assert (wall.bottleneck, wall.ratio) == (bottleneck, ratio)
    assert f"{bottleneck} is the bottleneck" in wall.said()


def test_a_meter_divides_by_the_time_that_went_by() -> None:
    now_s = [10.0]
    meter = Meter(lambda: now_s[0])
    assert meter.per_s(7) == 0.0
    now_s[0] = 12.0
    meter.read(pages=8, ocr_pages=1, tokens=400)
    now_s[0] = 14.0
    assert (meter.read_s, meter.per_s(meter.tokens), meter.per_s(meter.pages)) == (2.0, 100.0, 2.0)
