"""The side of Envoy that clients meet: TLS, HTTP limits, routes, retries and the access log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.render.services.envoy_cluster import Upstream

LISTEN_PORT = 8443
HEAD_KIB = 32
STREAM_IDLE_S = 660
"""Above the gateway's own 600 s of patience with a silent engine, so that the client hears the gateway's error."""
TYPES = "type.googleapis.com/envoy.extensions"
CERTIFICATE_FILE = "tls-certificate.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One bootstrap: what it stands in front of, and what may be retried there."""

    file: str
    upstream: Upstream
    retry: Mapping[str, Node]
    session_header: str
    prefix: str = "/"
    prefix_why: str = "the gateway answers 404 to what it does not serve"
    drop_headers: tuple[str, ...] = ()


def socket(host: str, port: int) -> Node:
    """Where Envoy listens."""
    return {"socket_address": {"address": host, "port_value": port}}


def listener(edge: Edge, *, folder: str) -> Node:
    """The HTTPS listener of one bootstrap."""
    return {
        "name": "https",
        "address": said(socket("0.0.0.0", LISTEN_PORT), "above 1024, so that Envoy needs no root"),
        "per_connection_buffer_limit_bytes": said(65536, "a slow reader stops the reading of its stream"),
        "listener_filters": said(
            [
                {
                    "name": "envoy.filters.listener.tls_inspector",
                    "typed_config": {"@type": f"{TYPES}.filters.listener.tls_inspector.v3.TlsInspector"},
                }
            ],
            "reads ALPN and SNI for the access log and protocol choice",
        ),
        "filter_chains": [
            {
                "transport_socket": _downstream_tls(folder),
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": _connection_manager(edge),
                    }
                ],
            }
        ],
    }


def _downstream_tls(folder: str) -> Node:
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_params": {
                    "tls_minimum_protocol_version": said("TLSv1_2", "1.0 and 1.1 are broken; every client has 1.2")
                },
                "alpn_protocols": said(["h2", "http/1.1"], "many streams share one connection over HTTP/2"),
                "tls_certificate_sds_secret_configs": said(
                    [
                        {
                            "name": "listener-certificate",
                            "sds_config": {
                                "resource_api_version": "V3",
                                "path_config_source": {
                                    "path": f"{folder}/{CERTIFICATE_FILE}",
                                    "watched_directory": {"path": f"{folder}/tls"},
                                },
                            },
                        }
                    ],
                    "from a watched file: a renewed certificate is used without a restart",
                ),
            },
        },
    }


def _connection_manager(edge: Edge) -> Node:
    return {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "use_remote_address": said(True, "the client's address is the peer's, not what a header claims"),
        "normalize_path": said(True, "one spelling of a path, so that no other spelling slips past a route"),
        "merge_slashes": said(True, "as above"),
        "path_with_escaped_slashes_action": said("REJECT_REQUEST", "%2F in a path is only ever an attempt"),
        "max_request_headers_kb": said(HEAD_KIB, "the gateway's own limit: refuse at the edge"),
        "common_http_protocol_options": {
            "idle_timeout": said("75s", "connections without a stream are closed"),
            "headers_with_underscores_action": said(
                "REJECT_REQUEST", "x_session_id and x-session-id are one header to some servers and two to others"
            ),
        },
        "http2_protocol_options": {
            "max_concurrent_streams": said(256, "of one connection; a client that needs more opens another"),
            "initial_stream_window_size": said(65536, "bounds what is held for a reader that does not read"),
            "initial_connection_window_size": said(1048576, "enough for all streams of a connection together"),
        },
        "request_headers_timeout": said("10s", "slow heads hold a connection; the gateway's limit is the same"),
        "request_timeout": said("120s", "to receive the whole request; says nothing about the answer"),
        "stream_idle_timeout": said(
            f"{STREAM_IDLE_S}s",
            "the default 300 s cuts a long prefill; above the gateway's 600 s, so that its error arrives",
        ),
        "delayed_close_timeout": said("5s", "lets the last event reach a slow client"),
        "access_log": [_access_log()],
        "http_filters": said(
            [
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"},
                }
            ],
            "no buffer, compressor or body filter: each event of a stream goes out when it comes in",
        ),
        "route_config": _routes(edge),
    }


def _access_log() -> Node:
    fields: dict[str, Node] = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "path": said("%PATH(NQ)%", "without the query"),
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "bytes_in": "%BYTES_RECEIVED%",
        "bytes_out": "%BYTES_SENT%",
        "duration_ms": "%DURATION%",
        "first_byte_ms": "%RESPONSE_DURATION%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "upstream": "%UPSTREAM_HOST%",
        "request_id": "%RESP(X-REQUEST-ID)%",
        "decision": "%RESP(X-ROADWORTHY-DECISION)%",
    }
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": f"{TYPES}.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": said(
                {"json_format": fields},
                "no prompt, no key and no session: bodies and such headers are never named here",
            ),
        },
    }


def _routes(edge: Edge) -> Node:
    return {
        "name": "edge",
        "virtual_hosts": [
            {
                "name": "api",
                "domains": said(["*"], "one service; narrow it to the names of the certificate if there are several"),
                **_dropped_headers(edge),
                "routes": [
                    {
                        "name": "streams",
                        "match": {
                            "prefix": edge.prefix,
                            "headers": [{"name": "accept", "string_match": {"contains": "text/event-stream"}}],
                        },
                        "route": _route(
                            edge, "HIGH", "a client that says it reads events: its own circuit breaker, not batch's"
                        ),
                    },
                    {
                        "name": "plain",
                        "match": said({"prefix": edge.prefix}, edge.prefix_why),
                        "route": _route(edge, "DEFAULT", "answers at once; held back first when all is full"),
                    },
                ],
            }
        ],
    }


def _dropped_headers(edge: Edge) -> dict[str, Node]:
    if not edge.drop_headers:
        return {}
    why = "they steer vLLM's scheduler and ranks; callers must not"
    return {"request_headers_to_remove": said(list(edge.drop_headers), why)}


def _route(edge: Edge, priority: str, priority_why: str) -> Node:
    return {
        "cluster": edge.upstream.name,
        "priority": said(priority, priority_why),
        "timeout": said("0s", "no limit on a whole answer: a long stream is not a fault"),
        "idle_timeout": said(f"{STREAM_IDLE_S}s", "silence, not length, ends a stream"),
        "hash_policy": said(
            [{"header": {"header_name": edge.session_header}, "terminal": True}],
            "turns of a session meet the same cache; without the header any host serves",
            source="gw.session-affinity",
        ),
        "retry_policy": {
            **edge.retry,
            "num_retries": said(1, "a request that breaks what it meets must not go through all of them"),
            "retry_host_predicate": said(
                [
                    {
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": {"@type": f"{TYPES}.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
                    }
                ],
                "elsewhere than where it failed",
            ),
            "host_selection_retry_max_attempts": said(
                "20",
                "each look hashes anew and may meet the same host: of two hosts, one in a million misses twenty times",
            ),
            "retry_back_off": said({"base_interval": "0.025s", "max_interval": "0.25s"}, "little: someone is waiting"),
        },
    }
