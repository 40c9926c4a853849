"""Envoy in front of the gateways, or straight in front of engines where no gateway runs.

Two bootstraps from one builder. They differ in what a 503 means: from a gateway it says that all engines are full or
that this one gateway is stopping, from an engine that this engine refused the request before it did any work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said, settings_of, yaml_text
from roadworthy.render.names import (
    engine_addresses,
    engines_are_named,
    gateway_address,
    gateway_admin_address,
)
from roadworthy.render.services.envoy_cluster import Upstream, cluster
from roadworthy.render.services.envoy_listener import CERTIFICATE_FILE, TYPES, Edge, listener, socket
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

FOLDER = "/etc/envoy"
ADMIN_PORT = 9901
STEERING_HEADERS = ("x-vllm-priority", "x-data-parallel-rank")
"""Headers that steer vLLM for everyone; the gateway never passes them on, without it the edge must take them off."""


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


CERTIFICATE_HEADER = (
    "The certificate of the listener. Envoy watches its folder: a renewed one is used without a restart."
)


def _header(edge: Edge, inputs: RenderInput) -> str:
    lines = [
        f"Envoy for {inputs.deployment.name}: {edge.upstream.what}.",
        f"Start: envoy -c {FOLDER}/{edge.file}   Check: envoy --mode validate -c {FOLDER}/{edge.file}",
        f"TLS key and certificate: {FOLDER}/tls/tls.key and tls.crt, named in {CERTIFICATE_FILE}.",
    ]
    if edge.upstream.name == "gateways" and inputs.deployment.gateway.tls.client_ca is not None:
        lines.append(
            "gateway.tls.client_ca asks for client certificates: add one of Envoy's to the cluster's TLS context."
        )
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
        session_header=inputs.deployment.gateway.routing.session_header,
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
        session_header=inputs.deployment.gateway.routing.session_header,
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
            {"address": socket("127.0.0.1", ADMIN_PORT)}, "no key guards it and it can stop Envoy: loopback only"
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
            "listeners": [listener(edge, folder=folder)],
            "clusters": [cluster(edge.upstream)],
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
