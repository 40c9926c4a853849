"""Two runs: equal services are called equal, different ones different, and what cannot be told is not told."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.bench.compare import Comparison, Measured, compare, fisher
from roadworthy.bench.compare_html import comparison_page
from roadworthy.bench.compare_text import render_comparison


def run(seed: int, *, scale: float = 1.0, count: int = 1200, failing: int = 0, shared: float = 0.5, name: str = "",
        rate: float | None = 10.0, model: str = "m", salt: str = "", prompt: int = 100) -> Measured:  # fmt: skip
    """Lognormal TTFT, ``scale`` times longer, whose neighbours share ``shared`` of their luck; TPOT is not scaled."""
    rng = random.Random(seed)
    level, now_s = 0.0, 0.0
    starts, ttfts, ends = [], [], []
    for _ in range(count):
        now_s += rng.expovariate(10.0)
        level = shared * level + math.sqrt(1 - shared**2) * rng.gauss(0, 1)
        starts.append(now_s)
        ttfts.append(0.1 * math.exp(0.5 * level) * scale)
        ends.append(ttfts[-1] + 50 * 0.01 * math.exp(0.1 * rng.gauss(0, 1)))
    errors = ["HTTP 503"] * failing + [""] * (count - failing)
    return Measured.of_columns(
        name or f"run-{seed}", model=model, start_s=starts, input_tokens=[prompt] * count, output_tokens=[51] * count,
        ttft_s=ttfts, e2e_s=ends, errors=errors, asked_rate_per_s=rate, salt=salt,
    )  # fmt: skip


def outcomes(found: Comparison) -> dict[str, str]:
    return {one.name: one.outcome for one in found.differences}


def test_equal_services_are_hardly_ever_called_different() -> None:
    different = sum(
        compare(run(2 * seed, count=150), run(2 * seed + 1, count=150), tolerance_ratio=0.0).outcome != "same"
        for seed in range(24)
    )
    assert different <= 4, "five in a hundred are allowed: more than 4 of 24 come once in 200 tries"


def test_a_slower_first_token_is_seen_and_nothing_else_is_blamed() -> None:
    found = compare(run(1), run(2, scale=1.3))
    assert found.outcome == "worse"
    words = outcomes(found)
    assert words["ttft_p50"] == "worse"
    assert (words["tpot_p50"], words["success"]) == ("same", "same")
    ttft = found.differences[0]
    assert ttft.low is not None
    assert ttft.high is not None
    assert 1.0 < ttft.low < 1.3 < ttft.high


def test_better_is_worse_seen_from_the_other_side() -> None:
    assert outcomes(compare(run(2, scale=1.3), run(1)))["ttft_p50"] == "better"


def test_a_sure_difference_within_the_tolerance_is_no_difference() -> None:
    calm = run(1, shared=0.0)
    slower = Measured.of_columns(
        "slower", model="m", start_s=calm.start_s, input_tokens=calm.input_tokens, output_tokens=calm.output_tokens,
        ttft_s=[(value or 0) * 1.2 for value in calm.ttft_s], e2e_s=[(value or 0) for value in calm.e2e_s],
        errors=[""] * len(calm.ok), asked_rate_per_s=10.0,
    )  # fmt: skip
    assert outcomes(compare(calm, slower))["ttft_p50"] == "worse"
    lenient = compare(calm, slower, tolerance_ratio=0.25)
    assert outcomes(lenient)["ttft_p50"] == "same"
    assert "within 25%" in lenient.differences[0].why


def test_failures_are_compared_exactly() -> None:
    assert outcomes(compare(run(1), run(2, failing=20)))["success"] == "worse"
    assert outcomes(compare(run(1, failing=1), run(2, failing=3)))["success"] == "same"


def test_a_percentile_of_too_few_requests_is_unknown_and_its_values_are_shown() -> None:
    found = compare(run(1, count=300), run(2, count=300))
    words = outcomes(found)
    assert (words["ttft_p50"], words["ttft_p99"]) == ("same", "unknown")
    p99 = next(one for one in found.differences if one.name == "ttft_p99")
    assert p99.a is not None
    assert p99.probability is None
    assert "1,000" in p99.why


def test_a_handful_of_requests_says_nothing_and_that_is_no_pass() -> None:
    tiny = run(1, count=5)
    found = compare(tiny, run(2, count=5))
    assert {word for name, word in outcomes(found).items() if name != "success"} == {"unknown"}


def test_a_run_without_a_completed_request_compares_as_worse_in_success() -> None:
    found = compare(run(1, count=50), run(2, count=50, failing=50))
    assert outcomes(found)["success"] == "worse"
    assert found.outcome == "worse"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (run(2, model="n"), "Different models"),
        (run(2, rate=20.0), "Different rates"),
        (run(2, prompt=200), "Prompts differ in length"),
        (run(2, count=100), "Fewer than 1,000"),
    ],
)
def test_runs_that_are_hardly_comparable_say_so(other: Measured, words: str) -> None:
    assert words in " ".join(compare(run(1), other).cautions)


def test_the_same_texts_twice_are_cautioned() -> None:
    assert "prefix cache" in " ".join(compare(run(1, salt="x"), run(2, salt="x")).cautions)


def test_like_runs_need_no_caution() -> None:
    assert compare(run(1, salt="x"), run(2, salt="y")).cautions == ()


@given(st.integers(0, 12), st.integers(0, 12))
def test_fishers_test_sums_the_tables_at_least_as_unlikely(good_a: int, good_b: int) -> None:
    """Against the definition, with 12 requests in each run."""
    good = good_a + good_b

    def chance(x: int) -> float:
        return (
            math.comb(good, x) * math.comb(24 - good, 12 - x) / math.comb(24, 12) if 0 <= 12 - x <= 24 - good else 0.0
        )

    seen = chance(good_a)
    wanted = math.fsum(chance(x) for x in range(min(good, 12) + 1) if chance(x) <= seen * (1 + 1e-7))
    assert fisher(good_a, 12, good_b, 12) == pytest.approx(wanted, abs=1e-7)


def test_columns_come_in_any_order() -> None:
    found = Measured.of_columns(
        "x", model="m", start_s=[2.0, 1.0], input_tokens=[20, 10], output_tokens=[3, 1], ttft_s=[0.2, 0.1],
        e2e_s=[0.4, 0.1], errors=["", ""],
    )  # fmt: skip
    assert found.start_s == (1.0, 2.0)
    assert found.input_tokens == (10, 20)
    assert found.tpot_s == (None, pytest.approx(0.1))


def test_the_text_fits_80_columns_and_begins_with_the_conclusion() -> None:
    text = render_comparison(compare(run(1), run(2, scale=1.3)))
    assert text.startswith("B is worse than A\n")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_page_holds_both_curves_and_escapes_names() -> None:
    a, b = run(1, count=60, name="<a>"), run(2, count=60, name="b")
    page = comparison_page(compare(a, b), a, b)
    assert page.count('class="s1"') >= 3
    assert "<a>" not in page
    assert "<script" not in page
