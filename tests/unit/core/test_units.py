"""Sizes, durations and rates mean exactly what they say."""

from __future__ import annotations

import pytest

from roadworthy.core import units


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("80GiB", 80 * 2**30), ("80GB", 80 * 10**9), ("1.5 TiB", 1.5 * 2**40), ("12B", 12), ("0B", 0)],
)
def test_sizes_are_literal(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize(("text", "rate"), [("400Gb/s", 50e9), ("50GB/s", 50e9), ("900GB/s", 900e9), ("400Gbps", 50e9)])
def test_link_rates_tell_bits_from_bytes(text: str, rate: float) -> None:
    assert units.parse_link_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(("text", "seconds"), [("250ms", 0.25), ("2h", 7200), ("1.5 s", 1.5), ("40us", 40e-6)])
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "count"), [("128K", 131072), ("5M", 5_000_000), ("60", 60), ("2k", 2000)])
def test_counts_read_k_as_context_lengths_do(text: str, count: int) -> None:
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["80", "GiB", "80 gib", "-1GiB", "1e400GiB ", "80GiB extra", ""])
def test_a_size_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        units.parse_size(text)


@pytest.mark.parametrize(("text", "ratio"), [("30%", 0.3), ("0.3", 0.3), ("100%", 1.0)])
def test_ratios(text: str, ratio: float) -> None:
    assert units.parse_ratio(text) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["101%", "1.1", "-5%"])
def test_ratios_stay_between_zero_and_one(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        units.parse_ratio(text)


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0.25, "250 ms"), (0.0184, "18.4 ms"), (1.5, "1.50 s"), (600, "10.0 min"), (4e-5, "40 µs")]
)
def test_durations_print_in_the_unit_that_reads_best(duration_s: float, text: str) -> None:
    assert units.format_duration(duration_s) == text
