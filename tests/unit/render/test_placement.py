"""Where engines go: whole hosts or even parts of one, ports that do not meet."""

from __future__ import annotations

import pytest

from roadworthy.core.errors import Infeasible
from roadworthy.plan.values import Layout
from roadworthy.render.placement import place_engines, why_not_placed
from roadworthy.spec.values import ClusterSpec
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input


def test_engines_over_several_hosts_take_whole_neighbouring_hosts() -> None:
    places = place_engines(render_input(V4_ON_32_H100, "2 x TP8 PP2"))
    assert [place.hosts for place in places] == [(0, 1), (2, 3)]
    assert {place.devices for place in places} == {tuple(range(8))}
    assert {place.port for place in places} == {8000}, "on hosts of their own, both listen on the default port"
    assert not any(place.shares_host for place in places)


def test_engines_that_share_a_host_share_out_gpus_and_ports() -> None:
    places = place_engines(render_input(LLAMA_ON_8_H100, "4 x TP2"))
    assert [place.devices for place in places] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [place.port for place in places] == [8000, 8001, 8002, 8003]
    assert len({place.master_port for place in places}) == 4
    assert all(place.shares_host and place.hosts == (0,) for place in places)


def test_engines_keep_off_the_gateways_ports() -> None:
    document = LLAMA_ON_8_H100 + "gateway: {port: 8002, admin_port: 8100}\n"
    assert [place.port for place in place_engines(render_input(document, "4 x TP2"))] == [8200, 8201, 8202, 8203]


def test_endpoints_of_the_document_are_where_engines_listen() -> None:
    endpoints = "engine: {endpoints: [{url: 'http://10.0.0.1:9000'}, {url: 'http://[fd00::3]:9100'}]}\n"
    places = place_engines(render_input(V4_ON_32_H100 + endpoints, "2 x TP8 PP2"))
    assert [(place.address, place.port) for place in places] == [("10.0.0.1", 9000), ("fd00::3", 9100)]


def test_endpoints_that_are_not_one_a_replica_say_nothing_of_places() -> None:
    places = place_engines(
        render_input(V4_ON_32_H100 + "engine: {endpoints: [{url: 'http://10.0.0.1:9000'}]}\n", "2 x TP8 PP2")
    )
    assert [(place.address, place.port) for place in places] == [("", 8000), ("", 8000)]


def layout(tp: int, pp: int, dp: int, replicas: int) -> Layout:
    return Layout(tp=tp, pp=pp, dp=dp, ep=tp * dp if dp > 1 else 1, stage_layers=(1,) * pp, replicas=replicas)


@pytest.mark.parametrize(
    ("split", "hosts", "gpus", "fits"),
    [
        (layout(2, 3, 1, 4), 3, 8, "do not fill hosts"),
        (layout(4, 3, 1, 2), 3, 8, "does not take whole hosts"),
        (layout(8, 4, 1, 1), 4, 8, ""),
        (layout(1, 1, 16, 1), 2, 8, ""),
        (layout(8, 2, 2, 1), 4, 8, ""),
        (layout(3, 1, 8, 1), 3, 8, "data-parallel ranks of 3 GPUs do not fill"),
        (layout(4, 3, 2, 1), 3, 8, "data-parallel ranks of 12 GPUs do not take whole hosts"),
    ],
)
def test_splits_that_hosts_would_share_unevenly_are_told(split: Layout, hosts: int, gpus: int, fits: str) -> None:
    reason = why_not_placed(split, ClusterSpec(nodes=hosts, gpus_per_node=gpus, gpu="H100-80GB"))
    assert (fits in reason) if fits else not reason


def test_an_uneven_split_is_refused_with_the_way_out() -> None:
    inputs = render_input(
        "model: {config: meta-llama/Llama-3.1-8B, max_model_len: 8K}\n"
        "cluster: {nodes: 3, gpus_per_node: 8, gpu: H100-80GB, nics: [{count: 8, rate: 400Gb/s}]}\n",
        "4 x TP2 PP3",
    )
    with pytest.raises(Infeasible, match="6 GPUs do not fill hosts of 8") as refused:
        place_engines(inputs)
    assert "--layout" in refused.value.hint
