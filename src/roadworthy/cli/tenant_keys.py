"""Tenants' keys out of the environment: read once, here at the edge, for `up` and `gateway`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.spec.values import Tenant


def with_keys(tenants: Sequence[Tenant], environment: Mapping[str, str]) -> tuple[Tenant, ...]:
    """``tenants`` with ``key`` filled in from ``key_env`` where it is not given.

    Raises:
        SpecError: naming every tenant whose variable is not set, or that has neither.
    """
    problems: list[Problem] = []
    filled = []
    for index, tenant in enumerate(tenants):
        key = tenant.key
        if key is None and tenant.key_env is not None:
            key = environment.get(tenant.key_env) or None
            if key is None:
                problems.append(
                    Problem(
                        path=f"tenants[{index}].key_env",
                        seen=f"{tenant.key_env}, which is not set",
                        wanted="a variable that holds the key",
                        hint=f"export {tenant.key_env}=...",
                    )
                )
        elif key is None:
            problems.append(
                Problem(
                    path=f"tenants[{index}]",
                    seen=f"tenant {tenant.id!r} without a key",
                    wanted="key or key_env",
                    hint="key_env names a variable, and keeps the key out of the document",
                )
            )
        filled.append(replace(tenant, key=key))
    if problems:
        raise SpecError("tenants: keys are missing", problems=tuple(problems))
    return tuple(filled)
