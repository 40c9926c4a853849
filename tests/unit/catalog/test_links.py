"""Links: NVLink before PCIe, the document's figure before the catalog's, one GPU's share of the NICs."""

from __future__ import annotations

import pytest

from roadworthy.catalog.gpus import Gpu, gpu_by_name, known_gpus
from roadworthy.catalog.links import between_nodes, inside_node, nvlink_generation
from roadworthy.spec.values import Nics


def test_nvlink_counts_one_direction_of_the_vendors_figure() -> None:
    link = inside_node(gpu_by_name("H100"))
    assert link.kind == "nvlink"
    assert link.bytes_per_s == 450e9
    # 301 GB/s of 450 was measured on two H200
    assert link.achieved_bytes_per_s == pytest.approx(301e9, rel=0.01)


def test_the_documents_nvlink_goes_before_the_catalogs_and_zero_means_pcie() -> None:
    assert inside_node(gpu_by_name("H100"), nvlink_bytes_per_s=600e9).bytes_per_s == 300e9
    assert inside_node(gpu_by_name("H100"), nvlink_bytes_per_s=0).kind == "pcie"


def test_gpus_without_nvlink_talk_over_their_pcie_generation() -> None:
    assert inside_node(gpu_by_name("L40S")).bytes_per_s == 31.5e9
    assert inside_node(gpu_by_name("H100"), nvlink_bytes_per_s=0).bytes_per_s == 63e9


def test_a_gpu_has_its_share_of_the_nodes_nics() -> None:
    nics = (Nics(count=8, rate_bytes_per_s=50e9),)
    link = between_nodes(nics, gpus_per_node=8)
    assert link is not None
    assert link.bytes_per_s == 50e9
    half = between_nodes(nics, gpus_per_node=16)
    assert half is not None
    assert half.bytes_per_s == 25e9


def test_without_nics_there_is_no_link_between_nodes() -> None:
    assert between_nodes((), gpus_per_node=8) is None


@pytest.mark.parametrize("gpu", known_gpus(), ids=lambda gpu: gpu.id)
def test_every_link_has_a_rate_a_latency_and_sources(gpu: Gpu) -> None:
    link = inside_node(gpu)
    assert link.bytes_per_s > 0
    assert 0 < link.efficiency_ratio <= 1
    assert 0 < link.latency_s < 1e-3
    assert link.sources


def test_the_nvlink_generation_follows_the_gpu_and_its_rate_is_the_gpus() -> None:
    assert [nvlink_generation(gpu_by_name(name)) for name in ("A100", "H200", "B200", "L4")] == [3, 4, 5, None]
