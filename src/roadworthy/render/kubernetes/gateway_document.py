"""The document that a gateway in the cluster reads: the deployment's own, with the engines' names there and without any
key, password or path of another machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from roadworthy.render.commented_yaml import Node, said, yaml_text
from roadworthy.render.kubernetes.model_cache import MODEL_MOUNT
from roadworthy.render.kubernetes.objects import gateway_admin_port, gateway_port
from roadworthy.render.names import object_name
from roadworthy.spec.values import looks_like_a_path
from roadworthy.spec.write import document_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.render.values import RenderInput
    from roadworthy.spec.values import Tenant

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
NOT_FOR_GATEWAYS = ("cost", "kubernetes")
OF_ONE_HOST = ("tls", "access_log")
"""Keys of `gateway` that name files of a host: TLS ends at the edge, and a pod logs to its standard output."""


def gateway_document(inputs: RenderInput, engines: Sequence[str]) -> str:
    """Text of a document for ``roadworthy gateway``; every key of a tenant comes from the environment."""
    tree: dict[str, Any] = document_tree(inputs.deployment)
    for key in NOT_FOR_GATEWAYS:
        tree.pop(key, None)
    if looks_like_a_path(inputs.deployment.model.config):
        tree["model"]["config"] = said(checkpoint_folder(inputs), "the checkpoint on the mounted volume")
    engine: dict[str, Node] = {**tree.get("engine", {}), "version": inputs.deployment.engine.version}
    engine["endpoints"] = said([{"url": url} for url in engines], "one for each port that answers")
    tree["engine"] = engine
    tree["gateway"] = _gateway(inputs, tree.get("gateway", {}))
    if inputs.deployment.tenants:
        tree["tenants"] = [
            _tenant(written, variable)
            for written, (_, variable) in zip(tree["tenants"], key_variables(inputs), strict=True)
        ]
    return yaml_text(tree)


def checkpoint_folder(inputs: RenderInput) -> str:
    """Where a checkpoint of one's own lies on the volume."""
    return f"{MODEL_MOUNT}/{object_name(inputs.deployment.model.served_name)}"


def left_out(inputs: RenderInput) -> tuple[str, ...]:
    """What of the document's `gateway` section the pods' document does not hold, and why."""
    written = document_tree(inputs.deployment).get("gateway", {})
    remarks = []
    if "tls" in written:
        remarks.append("gateway.tls is left out: TLS ends at the edge (targets envoy and gateway-api).")
    if "access_log" in written:
        remarks.append("gateway.access_log goes to standard output.")
    if _names_engines(written):
        remarks.append("gateway.lanes is left out: its engines are URLs of another place.")
    remarks += [
        f"gateway.{name} is left out: it may hold a password."
        for name in ("state_url", "shared_url")
        if getattr(inputs.deployment.gateway, name) is not None
    ]
    return tuple(remarks)


def _gateway(inputs: RenderInput, written: dict[str, Any]) -> Node:
    kept = {key: value for key, value in written.items() if key not in OF_ONE_HOST}
    if _names_engines(written):
        kept.pop("lanes")
    return {
        **kept,
        "host": said("0.0.0.0", "every interface of the pod"),
        "port": gateway_port(inputs),
        "admin_port": gateway_admin_port(inputs),
    }


def _names_engines(gateway: dict[str, Any]) -> bool:
    return bool(gateway.get("lanes", {}).get("long", {}).get("engines"))


def key_variables(inputs: RenderInput) -> tuple[tuple[Tenant, str], ...]:
    """Each tenant with the variable that holds its key: the document's own, or one by its place."""
    return tuple(
        (tenant, tenant.key_env if tenant.key_env and VARIABLE.fullmatch(tenant.key_env) else f"ROADWORTHY_KEY_{index}")
        for index, tenant in enumerate(inputs.deployment.tenants)
    )


def secret_key(tenant: Tenant, variable: str) -> str:
    """Under which key of the Secret the tenant's key lies: its id where a Secret can have it."""
    return tenant.id if SECRET_KEY.fullmatch(tenant.id) and tenant.id not in {".", ".."} else variable


def _tenant(written: dict[str, Any], variable: str) -> Node:
    return {"id": written["id"], "key_env": variable} | {
        key: value for key, value in written.items() if key not in {"id", "key_env"}
    }
