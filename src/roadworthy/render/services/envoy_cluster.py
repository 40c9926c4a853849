"""The upstream side of Envoy: balancing, health, ejection and circuit breakers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said

if TYPE_CHECKING:
    from roadworthy.render.names import Address

HTTP_OPTIONS = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
UPSTREAM_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
RAW = "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
PLAIN = "plain"
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A group of equal servers.

    Args:
        health_port: None where health is asked on the port that serves.
        idle_s: an unused connection is closed after it.
    """

    name: str
    what: str
    addresses: tuple[Address, ...]
    health_path: str
    health_port: int | None
    health_why: str
    idle_s: int
    idle_why: str


def cluster(upstream: Upstream) -> Node:
    """One Envoy cluster; every name may stand for several addresses."""
    return {
        "name": upstream.name,
        "type": said("STRICT_DNS", "each address behind a name becomes a host, and joins or leaves with DNS"),
        "connect_timeout": said("2s", "a host that does not take a connection in that time is passed over"),
        "per_connection_buffer_limit_bytes": said(65536, "how much of a stream is held for a slow reader"),
        "lb_policy": said("MAGLEV", "consistent: one host leaving moves few sessions", source="gw.session-affinity"),
        "common_lb_config": {
            "consistent_hashing_lb_config": {
                "hash_balance_factor": said(150, "affinity yields when a host has 1.5 times the mean of requests")
            }
        },
        "health_checks": [_health_check(upstream)],
        "outlier_detection": _outlier_detection(),
        "circuit_breakers": _circuit_breakers(),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": HTTP_OPTIONS,
                "common_http_protocol_options": {"idle_timeout": said(f"{upstream.idle_s}s", upstream.idle_why)},
                "explicit_http_config": said(
                    {"http_protocol_options": {}}, "HTTP/1.1: one stream a connection, none waits for another's window"
                ),
            }
        },
        **_tls(upstream),
        "load_assignment": {
            "cluster_name": upstream.name,
            "endpoints": [{"lb_endpoints": [_endpoint(upstream, address) for address in upstream.addresses]}],
        },
    }


def _endpoint(upstream: Upstream, address: Address) -> Node:
    endpoint: dict[str, Node] = {
        "address": {"socket_address": {"address": address.host, "port_value": address.port}},
        "hostname": address.host,
    }
    if upstream.health_port is not None:
        endpoint["health_check_config"] = {"port_value": said(upstream.health_port, upstream.health_why)}
    return {"endpoint": endpoint}


def _health_check(upstream: Upstream) -> Node:
    plain: dict[str, Node] = {}
    if _asks_in_the_clear(upstream):
        plain["transport_socket_match_criteria"] = said({PLAIN: True}, "the admin port speaks no TLS")
    return {
        **plain,
        "timeout": said("2s", "a busy event loop answers late; three in a row count"),
        "interval": said("2s", "a host that came back is used again within seconds"),
        "no_traffic_interval": said("10s", "quieter while nothing is sent there"),
        "unhealthy_threshold": said(3, "one lost probe is no outage"),
        "healthy_threshold": said(1, "one good answer is enough"),
        "http_health_check": {
            "path": said(
                upstream.health_path,
                upstream.health_why if upstream.health_port is None else "200 only when it can serve",
            )
        },
    }


def _outlier_detection() -> Node:
    off = "5xx is often 503 for 'full', which is load and no fault: never a reason to eject"
    return {
        "split_external_local_origin_errors": said(True, "tells a broken connection from an answer with 5xx"),
        "consecutive_local_origin_failure": said(5, "connections refused, reset or timed out, in a row"),
        "enforcing_consecutive_local_origin_failure": said(100, "then the host is left out"),
        "enforcing_consecutive_5xx": said(0, off),
        "enforcing_consecutive_gateway_failure": said(0, off),
        "enforcing_success_rate": said(0, "too few hosts and requests for statistics"),
        "enforcing_local_origin_success_rate": said(0, "as above"),
        "base_ejection_time": said("5s", "tried again soon: losing a host costs more than one failed try"),
        "max_ejection_time": said("60s", "however often it was ejected"),
        "max_ejection_percent": said(50, "half always stays, so that a fault of Envoy's own network ejects not all"),
    }


def _circuit_breakers() -> Node:
    return {
        "thresholds": [
            {
                "priority": said("DEFAULT", "requests that do not read events"),
                "max_connections": said(2048, "HTTP/1.1: one connection a request in flight"),
                "max_pending_requests": said(256, "waiting for a connection; the queue belongs in the gateway"),
                "max_requests": said(2048, "in flight through this Envoy"),
                "retry_budget": _retry_budget(),
            },
            {
                "priority": said("HIGH", "streams: a limit of their own, so that batch work cannot use it up"),
                "max_connections": said(8192, "as many as streams"),
                "max_pending_requests": said(1024, "a short wait is better than a refusal"),
                "max_requests": said(8192, "in flight through this Envoy"),
                "retry_budget": _retry_budget(),
            },
        ]
    }


def _retry_budget() -> Node:
    return {
        "budget_percent": {"value": said(10.0, "retries are at most a tenth of what is in flight: no retry storm")},
        "min_retry_concurrency": said(3, "but always a few"),
    }


def _asks_in_the_clear(upstream: Upstream) -> bool:
    return upstream.health_port is not None and any(address.tls for address in upstream.addresses)


def _tls(upstream: Upstream) -> dict[str, Node]:
    """HTTPS to servers whose URL, or whose own `gateway.tls`, says so."""
    if not any(address.tls for address in upstream.addresses):
        return {}
    found: dict[str, Node] = {
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": UPSTREAM_TLS,
                "auto_host_sni": said(True, "the name in the document is the one asked for"),
                "auto_sni_san_validation": said(True, "and the certificate must carry it"),
                "common_tls_context": {
                    "validation_context": {
                        "trusted_ca": said({"filename": CA_BUNDLE}, "the system's authorities; put your own here")
                    }
                },
            },
        }
    }
    if _asks_in_the_clear(upstream):
        found["transport_socket_matches"] = [
            {
                "name": PLAIN,
                "match": said({PLAIN: True}, "health checks only: no host carries this mark"),
                "transport_socket": {"name": "envoy.transport_sockets.raw_buffer", "typed_config": {"@type": RAW}},
            }
        ]
    return found
