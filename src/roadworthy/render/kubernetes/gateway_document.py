"""The document that a gateway in the cluster reads: the parts it needs, with the engines' names and without any key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB
from roadworthy.render.commented_yaml import Node, said, yaml_text
from roadworthy.render.kubernetes.objects import gateway_admin_port, gateway_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.render.values import RenderInput
    from roadworthy.spec.values import Tenant

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")


def gateway_document(inputs: RenderInput, engines: Sequence[str]) -> str:
    """Text of a document for ``roadworthy gateway``; every key of a tenant comes from the environment."""
    deployment = inputs.deployment
    model: dict[str, Node] = {"config": deployment.model.config, "served_name": deployment.model.served_name}
    if deployment.model.weights != "native":
        model["weights"] = deployment.model.weights
    if deployment.model.max_model_len_tokens is not None:
        model["max_model_len"] = deployment.model.max_model_len_tokens
    tree: dict[str, Node] = {
        "name": deployment.name,
        "model": model,
        "engine": {
            "version": deployment.engine.version,
            "endpoints": said([{"url": url} for url in engines], "one for each port that answers"),
        },
        "gateway": {
            "host": said("0.0.0.0", "every interface of the pod"),
            "port": gateway_port(inputs),
            "admin_port": gateway_admin_port(inputs),
        },
    }
    if deployment.tenants:
        tree["tenants"] = [_tenant(tenant, variable) for tenant, variable in key_variables(inputs)]
    return yaml_text(tree)


def key_variables(inputs: RenderInput) -> tuple[tuple[Tenant, str], ...]:
    """Each tenant with the variable that holds its key: the document's own, or one by its place."""
    return tuple(
        (tenant, tenant.key_env if tenant.key_env and VARIABLE.fullmatch(tenant.key_env) else f"ROADWORTHY_KEY_{index}")
        for index, tenant in enumerate(inputs.deployment.tenants)
    )


def secret_key(tenant: Tenant, variable: str) -> str:
    """Under which key of the Secret the tenant's key lies: its id where a Secret can have it."""
    return tenant.id if SECRET_KEY.fullmatch(tenant.id) and tenant.id not in {".", ".."} else variable


def _tenant(tenant: Tenant, variable: str) -> Node:
    written: dict[str, Node] = {"id": tenant.id, "key_env": variable}
    limits: dict[str, Node] = {
        "weight": tenant.weight if tenant.weight != 1.0 else None,
        "priority": tenant.priority or None,
        "kv_quota": _size(tenant.kv_quota_bytes),
        "rpm": tenant.requests_per_minute,
        "tpm": tenant.tokens_per_minute,
        "daily_tokens": tenant.daily_tokens,
        "concurrency": tenant.concurrency,
        "models": list(tenant.models) or None,
        "fallback": tenant.fallback,
    }
    return written | {key: value for key, value in limits.items() if value is not None}


def _size(size_bytes: int | None) -> str | None:
    if size_bytes is None:
        return None
    return f"{size_bytes // GIB}GiB" if size_bytes % GIB == 0 else f"{size_bytes}B"
