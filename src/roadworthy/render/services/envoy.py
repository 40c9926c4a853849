"""Envoy in front of the gateways, or straight in front of engines where no gateway runs.

Two bootstraps from one builder. They differ in what a 503 means: from a gateway it says that all engines are full or
that this one gateway is stopping, from an engine that this engine refused the request before it did any work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said, settings_of, yaml_text
from roadworthy.render.names import (
    engine_addresses,
    engines_are_named,
    gateway_address,
    gateway_admin_address,
)
from roadworthy.render.services.envoy_cluster import Upstream, cluster
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.render.values import RenderInput

FOLDER = "/etc/envoy"
LISTEN_PORT, ADMIN_PORT = 8443, 9901
HEAD_KIB = 32
SESSION_HEADER = "x-session-id"
STREAM_IDLE_S = 660
"""Above the gateway's own 600 s of patience with a silent engine, so that the client hears the gateway's error."""
TYPES = "type.googleapis.com/envoy.extensions"
STEERING_HEADERS = ("x-vllm-priority", "x-data-parallel-rank")
"""Headers that steer vLLM for everyone; the gateway never passes them on, without it the edge must take them off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One bootstrap: what it stands in front of, and what may be retried there."""

    file: str
    upstream: Upstream
    retry: Mapping[str, Node]
    prefix: str = "/"
    prefix_why: str = "the gateway answers 404 to what it does not serve"
    drop_headers: tuple[str, ...] = ()


def envoy_artifacts(inputs: RenderInput, *, folder: str = FOLDER) -> tuple[Artifact, ...]:
    """``envoy.yaml`` (to the gateways), ``envoy-engines.yaml`` (to the engines), and the certificate's own file.

    Args:
        folder: where the files and ``tls/`` lie on the host that runs Envoy.
    """
    files = [
        (edge.file, _header(edge, inputs), _bootstrap(edge, folder=folder))
        for edge in (_gateway_edge(inputs), _engine_edge(inputs))
    ]
    files.append((CERTIFICATE_FILE, CERTIFICATE_HEADER, _certificate(folder)))
    return tuple(
        Artifact(path=path, text=yaml_text(tree, header=header), settings=settings_of(tree))
        for path, header, tree in files
    )


CERTIFICATE_FILE = "tls-certificate.yaml"
CERTIFICATE_HEADER = (
    "The certificate of the listener. Envoy watches its folder: a renewed one is used without a restart."
)


def _header(edge: Edge, inputs: RenderInput) -> str:
    lines = [
        f"Envoy for {inputs.deployment.name}: {edge.upstream.what}.",
        f"Start: envoy -c {FOLDER}/{edge.file}   Check: envoy --mode validate -c {FOLDER}/{edge.file}",
        f"TLS key and certificate: {FOLDER}/tls/tls.key and tls.crt, named in {CERTIFICATE_FILE}.",
    ]
    if edge.upstream.name == "engines":
        lines.append(
            "Keys, quotas and body checks live in the gateway: use this file only on a network that you trust."
        )
        if not engines_are_named(inputs):
            lines.append(
                "The document names no engine.endpoints or cluster.hosts: give the names below an address in DNS."
            )
    return "\n".join(lines)


def _gateway_edge(inputs: RenderInput) -> Edge:
    return Edge(
        file="envoy.yaml",
        upstream=Upstream(
            name="gateways",
            what="in front of the roadworthy gateways",
            addresses=(gateway_address(inputs),),
            health_path="/readyz",
            health_port=gateway_admin_address(inputs).port,
            health_why="the admin port; start gateways with --admin-host, or Envoy cannot ask it",
            idle_s=60,
            idle_why="below the gateway's 75 s, so that Envoy closes first and no request meets a closing connection",
        ),
        retry={
            "retry_on": said(
                "connect-failure,refused-stream,reset-before-request,retriable-headers",
                "only what cannot have started work, and only before the first byte of the answer",
            ),
            "retriable_headers": said(
                [{"name": "x-roadworthy-decision", "string_match": {"exact": "shutting_down"}}],
                "a gateway that stops; other 503 and 429 are about engines or quotas and the same everywhere",
            ),
        },
    )


def _engine_edge(inputs: RenderInput) -> Edge:
    return Edge(
        file="envoy-engines.yaml",
        upstream=Upstream(
            name="engines",
            what="straight in front of the engines, without a gateway",
            addresses=engine_addresses(inputs),
            health_path="/health",
            health_port=None,
            health_why="503 only when the engine core is dead; a paused engine still answers 200",
            idle_s=4,
            idle_why="vLLM closes an idle connection after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE): close before it does",
        ),
        retry={
            "retry_on": said(
                "connect-failure,refused-stream,reset-before-request,retriable-status-codes",
                "only what cannot have started work, and only before the first byte of the answer",
            ),
            "retriable_status_codes": said(
                [503],
                "a full engine refuses before it starts; streams refused inside a 200 are seen by the gateway only",
            ),
        },
        prefix="/v1/",
        prefix_why="all else is 404: engines' other routes have no key",
        drop_headers=STEERING_HEADERS,
    )


def _bootstrap(edge: Edge, *, folder: str) -> dict[str, Node]:
    return {
        "node": said(
            {"id": "edge", "cluster": edge.upstream.name}, "Envoy wants a name before it reads secrets from files"
        ),
        "admin": said(
            {"address": _socket("127.0.0.1", ADMIN_PORT)}, "no key guards it and it can stop Envoy: loopback only"
        ),
        "overload_manager": {
            "resource_monitors": said(
                [
                    {
                        "name": "envoy.resource_monitors.global_downstream_max_connections",
                        "typed_config": {
                            "@type": f"{TYPES}.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                            "max_active_downstream_connections": 20000,
                        },
                    }
                ],
                "a flood of connections is turned away before it takes all descriptors",
            )
        },
        "static_resources": {
            "listeners": [_listener(edge, folder=folder)],
            "clusters": [cluster(edge.upstream)],
        },
    }


def _socket(host: str, port: int) -> Node:
    return {"socket_address": {"address": host, "port_value": port}}


def _listener(edge: Edge, *, folder: str) -> Node:
    return {
        "name": "https",
        "address": said(_socket("0.0.0.0", LISTEN_PORT), "above 1024, so that Envoy needs no root"),
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


def _certificate(folder: str) -> dict[str, Node]:
    return {
        "resources": [
            {
                "@type": f"{TYPES}.transport_sockets.tls.v3.Secret",
                "name": "listener-certificate",
                "tls_certificate": {
                    "certificate_chain": said(
                        {"filename": f"{folder}/tls/tls.crt"}, "the server's certificate first, then the intermediates"
                    ),
                    "private_key": said(
                        {"filename": f"{folder}/tls/tls.key"}, "by reference: the key itself is in no rendered file"
                    ),
                },
            }
        ]
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
            [{"header": {"header_name": SESSION_HEADER}, "terminal": True}],
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
