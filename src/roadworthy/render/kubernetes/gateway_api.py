"""Gateway API: an HTTPS listener and a route to the roadworthy gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.kubernetes.objects import GATEWAY_COMPONENT, head, manifest_file, names_of

if TYPE_CHECKING:
    from roadworthy.render.values import Artifact, RenderInput

API = "gateway.networking.k8s.io/v1"
REQUEST_TIMEOUT = "0s"


def gateway_api_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``gateway.yaml`` and ``httproute.yaml``."""
    site = inputs.deployment.kubernetes
    header = (
        f"GatewayClass {site.gateway_class} and the Secret {site.tls_secret} (type kubernetes.io/tls) must be there.\n"
        "ingress-nginx has had no fixes since March 2026: there is no Ingress here."
    )
    return (
        manifest_file("gateway.yaml", _gateway(inputs), header=header),
        manifest_file("httproute.yaml", _route(inputs), header=_route_header(), remarks=_REMARKS),
    )


def _gateway(inputs: RenderInput) -> Node:
    site, names = inputs.deployment.kubernetes, names_of(inputs)
    listener: dict[str, Node] = {
        "name": "https",
        "port": said(443, "HTTPS only: keys travel in a header"),
        "protocol": "HTTPS",
    }
    if site.host_name:
        listener["hostname"] = said(site.host_name, "kubernetes.host_name")
    listener |= {
        "tls": {
            "mode": said("Terminate", "the gateway behind speaks plain HTTP inside the cluster"),
            "certificateRefs": said(
                [{"kind": "Secret", "name": site.tls_secret}], "by reference: no key is in a manifest"
            ),
        },
        "allowedRoutes": {"namespaces": {"from": said("Same", "nobody else's route takes over this name")}},
    }
    return {
        **head(inputs, api=API, kind="Gateway", name=names.deployment, component=GATEWAY_COMPONENT),
        "spec": {
            "gatewayClassName": said(site.gateway_class, "kubernetes.gateway_class", source="gw.gateway-api"),
            "listeners": [listener],
        },
    }


def _route(inputs: RenderInput) -> Node:
    names, site = names_of(inputs), inputs.deployment.kubernetes
    spec: dict[str, Node] = {"parentRefs": said([{"name": names.deployment}], "the Gateway beside this file")}
    if site.host_name:
        spec["hostnames"] = said([site.host_name], "kubernetes.host_name")
    spec["rules"] = [
        {
            "matches": [
                {
                    "path": {
                        "type": "PathPrefix",
                        "value": said("/", "the gateway answers 404 to what it does not serve"),
                    }
                }
            ],
            "timeouts": {
                "request": said(REQUEST_TIMEOUT, "no limit on a whole answer: a long stream is not a fault"),
            },
            "backendRefs": [{"name": said(names.gateway, "the Service of the roadworthy gateway"), "port": 80}],
        }
    ]
    return {
        **head(inputs, api=API, kind="HTTPRoute", name=names.deployment, component=GATEWAY_COMPONENT),
        "spec": spec,
    }


def _route_header() -> str:
    return "From the listener to the roadworthy gateway, which holds keys, quotas and routing over engines."


_REMARKS = """\
Session affinity: sessionPersistence of this API is experimental and sets cookies; it is no hashing. The roadworthy
gateway routes sessions by x-session-id itself. For hashing at the edge: Envoy Gateway's BackendTrafficPolicy
(loadBalancer: ConsistentHash, type Header), Istio's DestinationRule (consistentHash.httpHeaderName).
Streams: also raise the implementation's idle timeout above 600 s, which this API cannot say."""
