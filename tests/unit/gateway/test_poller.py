"""What the poller reads from an engine's own pages."""

from __future__ import annotations

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.gateway.endpoints import Endpoint, Health, host_and_port
from roadworthy.gateway.poller import load_of, model_cards
from roadworthy.route.breaker import BreakerPolicy

METRICS = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
"""


def test_ranks_add_up_and_the_fullest_pool_counts() -> None:
    assert load_of(METRICS) == (7, 2, 0.75)


@pytest.mark.parametrize(
    "text", [b"", b"not metrics", b"vllm:num_requests_running NaN\n", b"vllm:num_requests_running x\n"]
)
def test_metrics_that_say_nothing_are_zero(text: bytes) -> None:
    assert load_of(text) == (0, 0, 0.0)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data": 1}', b'{"data": [{"id": 1}]}', b'{"data": [1]}'])
def test_a_model_list_that_is_none_is_empty(body: bytes) -> None:
    assert model_cards(body) == ()


def test_a_model_card_loses_what_clients_should_not_see() -> None:
    body = (
        b'{"data": [{"id": "m", "root": "/srv/models/m", "owned_by": "vllm", "permission": [1], "max_model_len": 9}]}'
    )
    assert model_cards(body) == ({"id": "m", "owned_by": "vllm", "max_model_len": 9},)


@pytest.mark.parametrize(
    ("url", "place"),
    [("http://a:81", ("a", 81)), ("http://a", ("a", 80)), ("http://[::1]:9/", ("::1", 9)), ("HTTP://A:1", ("a", 1))],
)
def test_an_engines_address_is_read(url: str, place: tuple[str, int]) -> None:
    assert host_and_port(url) == place


@pytest.mark.parametrize(
    "url",
    ["", "a:81", "https://a", "http://", "http://a/v1", "http://u:p@a", "http://a:x", "http://a..b:1", "http://[::1"],
)
def test_what_is_no_engines_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(SpecError) as refused:
        host_and_port(url)
    assert "http://127.0.0.1:8000" in refused.value.problems[0].hint


class TestEndpoint:
    def endpoint(self) -> tuple[Endpoint, list[float]]:
        clock = [100.0]
        return Endpoint("http://a:1", policy=BreakerPolicy(), now_s=lambda: clock[0]), clock

    def test_it_is_given_the_benefit_of_the_doubt_until_a_probe_fails(self) -> None:
        endpoint, _ = self.endpoint()
        assert endpoint.healthy
        endpoint.probed(Health(reachable=False))
        assert not endpoint.healthy
        endpoint.probed(Health(reachable=True))
        assert endpoint.healthy

    def test_an_engine_that_said_full_rests_for_a_moment(self) -> None:
        endpoint, clock = self.endpoint()
        endpoint.said_full()
        assert not endpoint.healthy
        clock[0] += 0.25
        assert endpoint.healthy

    def test_a_probe_heals_refused_connections_but_not_failed_requests(self) -> None:
        for to_connect, healed in ((True, True), (False, False)):
            endpoint, _ = self.endpoint()
            for _ in range(3):
                endpoint.failed(to_connect=to_connect)
            endpoint.probed(Health(reachable=True))
            assert endpoint.healthy is healed

    def test_authorities_of_ipv6_are_bracketed(self) -> None:
        assert Endpoint("http://[::1]:9", policy=BreakerPolicy(), now_s=lambda: 0.0).authority == "[::1]:9"
