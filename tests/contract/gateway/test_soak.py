"""The short form of `make soak`, and proof that its judge sees a leak and a lost stream."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from gatewaylab import soak
from gatewaylab.soak import Sample, account, slope_bytes_per_s
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from gatewaylab.lab import Engines


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_minute_of_leaving_clients_and_failing_engines_grows_and_loses_nothing(tmp_path: Path) -> None:
    assert soak.main(60, tmp_path / "soak.json") == 0


def samples(*rss_bytes: float) -> list[Sample]:
    return [Sample(at_s=at / 2, rss_bytes=int(rss), descriptors=10) for at, rss in enumerate(rss_bytes)]


@given(st.integers(0, 1000), st.integers(0, 2**30))
def test_the_slope_of_a_leak_is_found_under_noise(seed: int, base: int) -> None:
    rng = Random(seed)
    found = slope_bytes_per_s(samples(*(base + 5000 * at / 2 + rng.randrange(2000) for at in range(60))))
    assert 4700 < found < 5300


def test_one_jump_is_no_slope() -> None:
    assert slope_bytes_per_s(samples(*[40_000_000] * 55, *[45_000_000] * 5)) == 0


class CountedEngines:
    """Only the totals that ``account`` reads."""

    def __init__(self, **totals: int) -> None:
        self._totals = totals

    def total(self, name: str) -> int:
        return self._totals[name]


def load(**fields: Any) -> dict[str, Any]:
    kinds = (
        "connect", "reset", "truncated", "timed_out", "bad_answer", "error_event", "wrong_answer", "no_done",
        "abandoned",
    )  # fmt: skip
    return {
        "started": fields.get("started", 100),
        "ok": fields.get("ok", 90),
        "left": {"asked": 1, "waiting": 4, "streaming": 5},
        "failed": {kind: fields.get(kind, 0) for kind in kinds},
    }


def problems(result: dict[str, Any], gateway: dict[str, int], faulted: int = 0) -> list[str]:
    lab: Engines = CountedEngines(faulted=faulted, finished=95)  # type: ignore[assignment]
    return account({"streams": result}, gateway, lab)


def test_what_adds_up_is_no_problem() -> None:
    assert problems(load(), {"ok": 92, "client_left": 6}) == []
    assert problems(load(ok=88, error_event=2), {"ok": 90, "client_left": 8, "engine_error": 2}, faulted=2) == []


@pytest.mark.parametrize(
    ("result", "gateway"),
    [
        (load(), {"ok": 90, "client_left": 11}),
        (load(), {"ok": 80}),
        (load(), {"ok": 89, "client_left": 9}),
        (load(), {"ok": 96}),
        (load(ok=89, error_event=1), {"ok": 89, "client_left": 10}),
        (load(truncated=1, ok=89), {"ok": 90, "client_left": 9}),
    ],
    ids=["counted twice", "not counted", "an answer not counted", "never finished", "failed without a fault", "cut"],
)
def test_what_does_not_add_up_is_told(result: dict[str, Any], gateway: dict[str, int]) -> None:
    assert problems(result, gateway) != []
