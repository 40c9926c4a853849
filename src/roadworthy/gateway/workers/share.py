"""A tenant's limits where each worker counts by itself: divided, so that all together admit no more than one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.route.keys import Change
    from roadworthy.spec.values import Tenant

DIVIDED = {
    "concurrency": "concurrency",
    "requests_per_minute": "rpm",
    "tokens_per_minute": "tpm",
    "daily_tokens": "daily_tokens",
    "kv_quota_bytes": "kv_quota",
}
"""Fields of a tenant that are counted in the worker, with their keys in the document."""


def divided(config: GatewayConfig, index: int) -> GatewayConfig:
    """The configuration of worker ``index`` of ``config.workers``: its share of every limit that it counts by itself.

    Raises:
        SpecError: a limit below the number of workers, which would leave some with nothing.
    """
    if not _divides(config):
        return config
    problems = tuple(
        problem for at, one in enumerate(config.tenants) for problem in _problems(one, f"tenants[{at}]", config.workers)
    )
    if problems:
        raise SpecError("tenants: limits that cannot be divided among the workers", problems=problems)
    return replace(config, tenants=tuple(_share(one, config.workers, index) for one in config.tenants))


def divided_change(change: Change, config: GatewayConfig, index: int) -> Change:
    """What worker ``index`` is told of ``change``. Raises SpecError as ``divided`` does."""
    if not _divides(config) or not change.tenants:
        return change
    problems = tuple(
        problem for one in change.tenants for problem in _problems(one, f"tenant {one.id}", config.workers)
    )
    if problems:
        raise SpecError(
            f"{problems[0].path}: {problems[0].seen} cannot be divided among the workers, wanted {problems[0].wanted}",
            hint=problems[0].hint,
        )
    return replace(change, tenants=tuple(_share(one, config.workers, index) for one in change.tenants))


def are_divided(config: GatewayConfig) -> bool:
    """Whether some tenant's limit is divided, which an operator should hear of."""
    return _divides(config) and any(getattr(one, name) is not None for one in config.tenants for name in DIVIDED)


def _divides(config: GatewayConfig) -> bool:
    return config.workers > 1 and config.meter_url is None


def _problems(tenant: Tenant, path: str, workers: int) -> Iterable[Problem]:
    for name, key in DIVIDED.items():
        limit = getattr(tenant, name)
        if limit is not None and limit < workers:
            yield Problem(
                path=f"{path}.{key}",
                seen=str(limit),
                wanted=f"at least {workers}, one for each worker",
                hint=f"each worker counts by itself and gets its share: raise {key}, run fewer workers, or name a "
                "gateway.state_url or gateway.shared_url that they count in together",
            )


def _share(tenant: Tenant, workers: int, index: int) -> Tenant:
    shares = {
        name: limit // workers + (index < limit % workers)
        for name in DIVIDED
        if (limit := getattr(tenant, name)) is not None
    }
    return replace(tenant, **shares) if shares else tenant
