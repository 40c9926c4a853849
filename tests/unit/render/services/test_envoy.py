"""What the edge does with streams, sessions and failures, read from its configuration."""

from __future__ import annotations

from typing import Any

import yaml

from roadworthy.gateway.data.limits import Limits
from roadworthy.render.services import envoy, envoy_listener
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered


def bootstrap(file: str = "envoy.yaml", document: str = V4_ON_32_H100) -> Any:
    return yaml.safe_load(rendered("envoy", render_input(document))[file].text)


def manager(file: str = "envoy.yaml") -> Any:
    (listener,) = bootstrap(file)["static_resources"]["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def routes(file: str = "envoy.yaml") -> list[Any]:
    found: list[Any] = manager(file)["route_config"]["virtual_hosts"][0]["routes"]
    return found


def cluster(file: str = "envoy.yaml", document: str = V4_ON_32_H100) -> Any:
    return bootstrap(file, document)["static_resources"]["clusters"][0]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_silence_is_borne_longer_than_the_gateway_bears_it() -> None:
    assert seconds(manager()["stream_idle_timeout"]) > Limits().engine_silence_s
    for route in routes():
        assert seconds(route["route"]["idle_timeout"]) > Limits().engine_silence_s
        assert seconds(route["route"]["timeout"]) == 0


def test_idle_connections_are_closed_before_the_server_does() -> None:
    options = cluster()["typed_extension_protocol_options"].popitem()[1]["common_http_protocol_options"]
    assert seconds(options["idle_timeout"]) < Limits().keep_alive_s
    options = cluster("envoy-engines.yaml")["typed_extension_protocol_options"].popitem()[1]
    assert seconds(options["common_http_protocol_options"]["idle_timeout"]) < 5, "vLLM's own keep-alive"


def test_heads_are_limited_as_in_the_gateway() -> None:
    assert Limits().head_bytes == envoy_listener.HEAD_KIB * 1024


def test_sessions_are_hashed_and_affinity_yields_to_load() -> None:
    for route in routes():
        assert route["route"]["hash_policy"] == [{"header": {"header_name": "x-session-id"}, "terminal": True}]
    assert cluster()["lb_policy"] == "MAGLEV"
    assert cluster()["common_lb_config"]["consistent_hashing_lb_config"]["hash_balance_factor"] > 100


def test_only_what_cannot_have_started_is_tried_again() -> None:
    unsafe = {"5xx", "gateway-error", "reset", "retriable-4xx", "cancelled"}
    for file in ("envoy.yaml", "envoy-engines.yaml"):
        for route in routes(file):
            policy = route["route"]["retry_policy"]
            assert not unsafe & set(policy["retry_on"].split(","))
            assert policy["num_retries"] == 1
            assert "per_try_timeout" not in policy


def test_a_quota_is_never_tried_again_elsewhere() -> None:
    """429 and 503 of a gateway mean the same at every gateway, except that this one is stopping."""
    policy = routes()[0]["route"]["retry_policy"]
    assert "retriable_status_codes" not in policy
    assert policy["retriable_headers"] == [
        {"name": "x-roadworthy-decision", "string_match": {"exact": "shutting_down"}}
    ]


def test_streams_have_breakers_of_their_own() -> None:
    assert [route["route"]["priority"] for route in routes()] == ["HIGH", "DEFAULT"]
    thresholds = {one["priority"]: one["max_requests"] for one in cluster()["circuit_breakers"]["thresholds"]}
    assert thresholds["HIGH"] > thresholds["DEFAULT"]


def test_only_api_paths_are_passed_on_to_engines_and_the_gateway_judges_for_itself() -> None:
    assert {route["match"]["prefix"] for route in routes("envoy-engines.yaml")} == {"/v1/"}
    assert {route["match"]["prefix"] for route in routes()} == {"/"}


def test_the_access_log_holds_no_body_no_key_and_no_session() -> None:
    (log,) = manager()["access_log"]
    text = str(log["typed_config"]["log_format"]).lower()
    for secret in ("authorization", "session", "body", "cookie", "req_without_query"):
        assert secret not in text
    assert log["typed_config"]["log_format"]["json_format"]["path"] == "%PATH(NQ)%"


def test_admin_listens_on_loopback_only() -> None:
    assert bootstrap()["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"


def test_nothing_holds_a_stream_back() -> None:
    assert [one["name"] for one in manager()["http_filters"]] == ["envoy.filters.http.router"]


def test_headers_that_steer_the_engine_are_taken_off_where_no_gateway_does() -> None:
    host = manager("envoy-engines.yaml")["route_config"]["virtual_hosts"][0]
    assert host["request_headers_to_remove"] == list(envoy.STEERING_HEADERS)


def test_a_full_engine_is_not_ejected() -> None:
    detection = cluster("envoy-engines.yaml")["outlier_detection"]
    assert detection["split_external_local_origin_errors"] is True
    assert detection["enforcing_consecutive_5xx"] == detection["enforcing_consecutive_gateway_failure"] == 0


def test_health_of_gateways_is_asked_on_the_admin_port() -> None:
    document = LLAMA_ON_8_H100 + "gateway: {host: gw, port: 80, admin_port: 9081}\n"
    (endpoint,) = cluster(document=document)["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"]["socket_address"] == {"address": "gw", "port_value": 80}
    assert endpoint["endpoint"]["health_check_config"] == {"port_value": 9081}


def test_engines_behind_https_are_verified() -> None:
    document = LLAMA_ON_8_H100 + "engine: {endpoints: [{url: 'https://e.example:8443'}]}\n"
    found = cluster("envoy-engines.yaml", document)
    assert found["transport_socket"]["typed_config"]["auto_sni_san_validation"] is True
    assert "transport_socket" not in cluster("envoy-engines.yaml")


def test_keys_are_named_and_never_written() -> None:
    for artifact in rendered("envoy", render_input(V4_ON_32_H100)).values():
        assert "inline" not in artifact.text
        assert "BEGIN" not in artifact.text


def test_sessions_are_told_by_the_header_that_the_gateway_uses() -> None:
    document = LLAMA_ON_8_H100 + "gateway: {routing: {session_header: x-chat}}\n"
    (listener,) = bootstrap("envoy.yaml", document)["static_resources"]["listeners"]
    found = listener["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]["routes"]
    assert all(route["route"]["hash_policy"][0]["header"]["header_name"] == "x-chat" for route in found)


def test_a_gateway_with_tls_is_spoken_to_in_tls_and_its_admin_port_in_the_clear() -> None:
    document = LLAMA_ON_8_H100 + "gateway: {host: gw.example, port: 8443, tls: {cert: /c.pem, key: /k.pem}}\n"
    found = cluster(document=document)
    assert found["transport_socket"]["name"] == "envoy.transport_sockets.tls"
    (check,) = found["health_checks"]
    (match,) = found["transport_socket_matches"]
    assert check["transport_socket_match_criteria"] == match["match"]
    assert match["transport_socket"]["name"] == "envoy.transport_sockets.raw_buffer"
    assert "transport_socket_matches" not in cluster()
