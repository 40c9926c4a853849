"""Where a load goes and as whom: a URL, a document, or what `up` and `gateway` wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.ready_file import Ready
    from roadworthy.spec.values import Deployment, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where the load goes and as whom. ``deployment``, and the ``text`` it was read from, are None when no document was
    named."""

    url: str
    deployment: Deployment | None
    tenants: tuple[Tenant, ...]
    keys: Mapping[str, str | None]
    text: str | None = None


def aim_at(target: str | None, *, spec: str | None, ready_file: Path | None, key: str | None) -> Aim:
    """The target of the arguments. Raises SpecError when they name none, or two."""
    from roadworthy.adapters.ready_file import read_ready

    ready = read_ready(ready_file) if ready_file is not None else None
    if target is None and ready is None:
        raise SpecError("nothing to measure: no target", hint="name a URL, a document, or --ready-file FILE")
    is_url = target is not None and "://" in target
    if target is not None and not is_url and re.fullmatch(r"[\w.-]+:\d+", target):
        raise SpecError(f"{target}: neither a document nor a URL", hint=f"write http://{target}")
    if not is_url and target is not None and spec is not None:
        raise SpecError(f"two documents: {target} and --spec {spec}", hint="with --spec, the target is a URL")
    named = spec if is_url or target is None else target
    deployment, text = _load(named) if named is not None else (None, None)
    if is_url and target is not None:
        url = target
    else:
        url = ready.data_url if ready is not None else _address(deployment, named)
    tenants, keys = _tenants(deployment, ready, key)
    return Aim(url=url, deployment=deployment, tenants=tenants, keys=keys, text=text)


def _load(path: str) -> tuple[Deployment, str]:
    from roadworthy.adapters.documents import parse_document, read_document

    text = read_document(path)
    return parse_document(text, path), text


def _address(deployment: Deployment | None, name: str | None) -> str:
    """The fixed address that the document gives: its gateway's, or its only engine's."""
    if deployment is not None and deployment.gateway.port:
        host = deployment.gateway.host
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{host}:{deployment.gateway.port}"
    endpoints = deployment.engine.endpoints if deployment is not None else ()
    if len(endpoints) == 1:
        return endpoints[0].url
    problem = "several engines and no gateway port" if endpoints else "no gateway port and no engine endpoint"
    raise SpecError(
        f"{name}: the document gives {problem}, so there is no one address to measure",
        hint=f"start it with `roadworthy up {name} --ready-file ready.json`, then add --ready-file ready.json here",
    )


def _tenants(
    deployment: Deployment | None, ready: Ready | None, key: str | None
) -> tuple[tuple[Tenant, ...], Mapping[str, str | None]]:
    """Who sends, and each one's key: --key before the ready file before the document."""
    from roadworthy.cli.tenant_keys import with_keys
    from roadworthy.spec.values import Tenant

    tenants = deployment.tenants if deployment is not None else ()
    if ready is not None and not tenants:
        tenants = tuple(Tenant(id=tenant.id) for tenant in ready.tenants)
    if not tenants:
        return (), {"": key}
    if key is not None:
        return tenants, dict.fromkeys((tenant.id for tenant in tenants), key)
    handed_out = {tenant.id: tenant.key for tenant in ready.tenants} if ready is not None else {}
    missing = [tenant for tenant in tenants if tenant.id not in handed_out]
    keys = {tenant.id: tenant.key for tenant in with_keys(missing, os.environ)}
    return tenants, {tenant.id: handed_out.get(tenant.id) or keys.get(tenant.id) for tenant in tenants}
