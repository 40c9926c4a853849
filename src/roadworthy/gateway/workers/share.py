"""A tenant's limits where each worker counts by itself: divided, so that all together admit no more than one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.spec.values import Tenant

DIVIDED = {"concurrency": "concurrency", "requests_per_minute": "rpm"}
"""Fields of a tenant that are counted in the worker, with their keys in the document."""


def divided(config: GatewayConfig, index: int) -> GatewayConfig:
    """The configuration of worker ``index`` of ``config.workers``: its share of every limit that it counts by itself.

    Raises:
        SpecError: a limit below the number of workers, which would leave some with nothing.
    """
    workers = config.workers
    if workers == 1:
        return config
    problems = tuple(_problems(config.tenants, workers))
    if problems:
        raise SpecError("tenants: limits that cannot be divided among the workers", problems=problems)
    return replace(config, tenants=tuple(_share(one, workers, index) for one in config.tenants))


def are_divided(config: GatewayConfig) -> bool:
    """Whether some tenant's limit is divided, which an operator should hear of."""
    return config.workers > 1 and any(getattr(one, name) is not None for one in config.tenants for name in DIVIDED)


def _problems(tenants: Iterable[Tenant], workers: int) -> Iterable[Problem]:
    for index, tenant in enumerate(tenants):
        for name, key in DIVIDED.items():
            limit = getattr(tenant, name)
            if limit is not None and limit < workers:
                yield Problem(
                    path=f"tenants[{index}].{key}",
                    seen=str(limit),
                    wanted=f"at least {workers}, one for each worker",
                    hint=f"each worker counts by itself and gets its share: raise {key}, or run fewer workers",
                )


def _share(tenant: Tenant, workers: int, index: int) -> Tenant:
    shares = {
        name: limit // workers + (index < limit % workers)
        for name in DIVIDED
        if (limit := getattr(tenant, name)) is not None
    }
    return replace(tenant, **shares) if shares else tenant
