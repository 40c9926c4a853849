"""GPUs: found by any of their names, every number with a source, what the driver reports and not the label."""

from __future__ import annotations

from dataclasses import fields

import pytest

from roadworthy.catalog.gpus import Gpu, gpu_by_name, known_gpus
from roadworthy.core.errors import Unsupported
from roadworthy.core.units import GIB


@pytest.mark.parametrize("gpu", known_gpus(), ids=lambda gpu: gpu.id)
def test_every_number_has_a_source(gpu: Gpu) -> None:
    numbers = {one.name for one in fields(Gpu)} - {"id", "aliases", "sources"}
    if gpu.gpu_hour is None:
        numbers.discard("gpu_hour")
    assert numbers <= set(gpu.sources)
    assert all(len(source) > 10 for source in gpu.sources.values())


@pytest.mark.parametrize("gpu", [gpu for gpu in known_gpus() if gpu.id != "cpu"], ids=lambda gpu: gpu.id)
def test_a_gpu_holds_less_than_its_label_and_more_than_nine_tenths_of_it(gpu: Gpu) -> None:
    label_bytes = int(gpu.id.rpartition("-")[2].removesuffix("GB")) * 10**9
    assert 0.9 < gpu.device_bytes / label_bytes < 1.08
    assert gpu.context_bytes < GIB
    assert gpu.dense_flops_per_s["bf16"] > 1e13


def test_totals_are_those_that_hosts_reported() -> None:
    assert gpu_by_name("H100").device_bytes == round(79.18 * GIB)
    assert gpu_by_name("H200").device_bytes == round(139.80 * GIB)
    assert gpu_by_name("B200").device_bytes == round(178.35 * GIB)
    assert gpu_by_name("cpu").device_bytes == 4 * GIB


@pytest.mark.parametrize("name", ["H100-80GB", "h100", "NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3", " H100-SXM5 "])
def test_a_gpu_is_found_by_any_of_its_names(name: str) -> None:
    assert gpu_by_name(name).id == "H100-80GB"


def test_no_two_gpus_share_a_name() -> None:
    names = [name.lower() for gpu in known_gpus() for name in (gpu.id, *gpu.aliases)]
    assert len(names) == len(set(names))


def test_an_unknown_gpu_is_refused_with_what_is_near_and_what_is_known() -> None:
    with pytest.raises(Unsupported) as raised:
        gpu_by_name("H10O")
    assert raised.value.hint == "did you mean H100-80GB?"
    assert "A100-80GB" in str(raised.value)
    with pytest.raises(Unsupported) as raised:
        gpu_by_name("abacus")
    assert "roadworthy gpus" in raised.value.hint


def test_a100_has_no_fp8_and_only_blackwell_fp4() -> None:
    assert "fp8" not in gpu_by_name("A100").dense_flops_per_s
    assert [gpu.id for gpu in known_gpus() if "fp4" in gpu.dense_flops_per_s] == ["B200-180GB"]
