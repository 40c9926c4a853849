"""What a gateway can be started with, the limits it promises, and its counts."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from roadworthy.core.errors import ProbeError, SpecError
from roadworthy.gateway.config import GatewayConfig, not_enforced
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.listen import listener, url_of
from roadworthy.gateway.versions import version_in, version_warning
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.spec.governance_values import GovernanceSpec
from roadworthy.spec.values import Deployment, Endpoint, EngineSpec, GatewaySpec, ModelRef, Tenant

DEPLOYMENT = Deployment(
    name="d",
    model=ModelRef(config="m"),
    engine=EngineSpec(endpoints=(Endpoint(url="http://a:1"), Endpoint(url="http://b:1"))),
    gateway=GatewaySpec(host="0.0.0.0", port=8000, admin_port=8001),
)


def test_the_promised_limits() -> None:
    limits = Limits()
    assert limits.head_bytes == 32 * 1024
    assert limits.headers == 100
    assert limits.head_timeout_s == 10
    assert limits.body_bytes == 8 * 1024 * 1024
    assert limits.connect_timeout_s == 2
    assert limits.engine_silence_s == 600


def test_a_limit_of_nothing_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="head_timeout_s"):
        Limits(head_timeout_s=0)


def test_the_document_decides_unless_the_command_line_does() -> None:
    config = GatewayConfig.from_deployment(DEPLOYMENT, tenants=())
    assert (config.host, config.port, config.admin_port) == ("0.0.0.0", 8000, 8001)
    assert config.endpoints == ("http://a:1", "http://b:1")
    given = GatewayConfig.from_deployment(
        DEPLOYMENT, tenants=(), endpoints=["http://c:1"], host="::1", port=0, admin_port=0
    )
    assert (given.host, given.port, given.admin_port, given.endpoints) == ("::1", 0, 0, ("http://c:1",))


def test_the_admin_port_stays_on_this_machine_wherever_the_data_port_listens() -> None:
    assert GatewayConfig.from_deployment(DEPLOYMENT, tenants=()).admin_host == "127.0.0.1"


def test_a_gateway_without_engines_is_refused_with_the_lines_to_add() -> None:
    with pytest.raises(SpecError, match=r"engine\.endpoints") as refused:
        GatewayConfig.from_deployment(replace(DEPLOYMENT, engine=EngineSpec()), tenants=())
    assert "endpoints: [{url:" in refused.value.hint


def test_an_engine_named_twice_is_refused() -> None:
    with pytest.raises(SpecError, match="http://a:1 is named twice"):
        GatewayConfig(endpoints=("http://a:1", "http://a:1"))


LIMITED = Tenant(id="a", key="k", tokens_per_minute=5)


@pytest.mark.parametrize(
    ("governance", "state_url", "tenants", "counts"),
    [
        ({}, None, (), None),
        ({}, None, (LIMITED,), "exact"),
        ({}, None, (Tenant(id="a", key="k", requests_per_minute=5),), None),
        ({}, "sqlite:///x", (), "final"),
        ({"ledger": False}, "sqlite:///x", (), None),
        ({"billing": "final"}, None, (LIMITED,), "final"),
        ({"billing": "exact"}, None, (), "exact"),
    ],
)
def test_streams_are_counted_exactly_where_a_limit_depends_on_it_or_the_document_says_so(
    governance: dict[str, Any], state_url: str | None, tenants: tuple[Tenant, ...], counts: str | None
) -> None:
    config = GatewayConfig(
        endpoints=("http://a:1",), governance=GovernanceSpec(**governance), state_url=state_url, tenants=tenants
    )
    assert config.counts(tenants) == counts


@pytest.mark.parametrize(
    ("answer", "version", "warned"),
    [
        (b'{"version":"0.31.2"}', "0.31.2", True),
        (b'{"version":"0.32.0"}', "0.32.0", False),
        (b'{"version":"0.33.1.dev3+g1234"}', "0.33.1.dev3+g1234", False),
        (b'{"version":"1.0"}', "1.0", False),
        (b'{"version":"dev"}', "dev", False),
        (b'{"version":3}', "", False),
        (b"<html>", "", False),
        (b"[]", "", False),
    ],
)
def test_an_engine_with_known_holes_is_told_and_one_that_does_not_say_is_not(
    answer: bytes, version: str, warned: bool
) -> None:
    assert version_in(answer) == version
    assert bool(version_warning(version)) == warned


def test_limits_that_are_not_enforced_are_named_as_the_document_calls_them() -> None:
    config = GatewayConfig(endpoints=("http://a:1",), tenants=(LIMITED,))
    assert not_enforced(config) == ()
    quota = replace(config, tenants=(LIMITED, Tenant(id="b", key="q", kv_quota_bytes=1)))
    (told,) = not_enforced(quota)
    assert told.startswith("tenants[].kv_quota")
    assert not_enforced(replace(quota, shape=BlockShape(block_bytes=1024))) == ()


def test_a_taken_port_is_named_with_the_command_that_finds_its_owner() -> None:
    with listener("127.0.0.1", 0, what="gateway.port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProbeError, match=f"gateway.port: port {port} on 127.0.0.1 cannot be used") as refused:
            listener("127.0.0.1", port, what="gateway.port")
        assert f"sport = :{port}" in refused.value.hint


@pytest.mark.parametrize("host", ["192.0.2.1", "no host"])
def test_a_host_that_is_not_ours_is_wrong_input(host: str) -> None:
    with pytest.raises(SpecError, match=host):
        listener(host, 0, what="gateway.port")


def test_a_wildcard_address_is_told_as_one_that_can_be_called() -> None:
    with listener("0.0.0.0", 0, what="gateway.port") as wild:
        assert url_of(wild) == f"http://127.0.0.1:{wild.getsockname()[1]}"
    if socket.has_ipv6:
        with listener("::1", 0, what="gateway.port") as six:
            assert url_of(six) == f"http://[::1]:{six.getsockname()[1]}"
