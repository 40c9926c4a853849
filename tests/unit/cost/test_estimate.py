"""Golden values: 57,000 a month over 32 GPUs is 2.440 an hour; 6963.2 tokens/s are 18.299e9 a month."""

from __future__ import annotations

import pytest

from roadworthy.catalog.gpus import Gpu
from roadworthy.cost import FixedCost, estimate, fixed_cost
from roadworthy.spec.values import ClusterSpec, CostSpec

CLUSTER = ClusterSpec(nodes=4, gpus_per_node=8, gpu="X100")


def gpu(price: float | None) -> Gpu:
    return Gpu(
        id="X100",
        aliases=(),
        device_bytes=79 << 30,
        context_bytes=1 << 29,
        hbm_bytes_per_s=3.35e12,
        dense_flops_per_s={"bf16": 1e15},
        nvlink_bytes_per_s=9e11,
        compute_capability=(9, 0),
        power_w=700,
        gpu_hour=price,
        sources={"gpu_hour": "a dated page"},
    )


def test_capacity_of_the_golden_throughput_at_full_use() -> None:
    fixed = FixedCost(per_month=57_000, currency="USD", source="given")
    result = estimate(fixed, tokens_per_s=6963.2, utilisation_ratio=1.0, counted="input and output")
    assert result.capacity_tokens_per_month == pytest.approx(18.299e9, rel=1e-4)
    assert result.unit_cost_per_mtok == pytest.approx(3.11, abs=0.01)


def test_half_use_doubles_the_unit_cost() -> None:
    fixed = FixedCost(per_month=57_000, currency="USD", source="given")
    result = estimate(fixed, tokens_per_s=6963.2, utilisation_ratio=0.5, counted="input and output")
    assert result.unit_cost_per_mtok == pytest.approx(6.23, abs=0.01)


def test_gpu_hour_of_the_document_wins_over_the_catalog() -> None:
    fixed = fixed_cost(CostSpec(gpu_hour=2.44), CLUSTER, gpu(1.30))
    assert fixed is not None
    assert fixed.per_month == pytest.approx(57_000, rel=1e-3)
    assert "cost.gpu_hour" in fixed.source


def test_catalog_price_names_its_source() -> None:
    fixed = fixed_cost(CostSpec(), CLUSTER, gpu(1.30))
    assert fixed is not None
    assert "a dated page" in fixed.source


def test_no_known_price_gives_no_number() -> None:
    assert fixed_cost(CostSpec(), CLUSTER, gpu(None)) is None


def test_nothing_served_has_no_unit_cost() -> None:
    fixed = FixedCost(per_month=57_000, currency="USD", source="given")
    assert estimate(fixed, tokens_per_s=0, utilisation_ratio=0.5, counted="output").unit_cost_per_mtok is None
