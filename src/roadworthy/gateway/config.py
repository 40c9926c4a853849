"""What a gateway is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.poller import PollPolicy
from roadworthy.route.breaker import BreakerPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.spec.values import Deployment, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Where to listen, what to relay to, and for whom.

    Args:
        endpoints: engines' URLs, at least one; they need not answer yet.
        tenants: with their keys filled in; empty means open access.
        host: the data port's address.
        port, admin_port: 0 takes a free one.
        admin_host: the admin port's address. It has no key: keep it private.
    """

    endpoints: tuple[str, ...]
    tenants: tuple[Tenant, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    admin_host: str = "127.0.0.1"
    admin_port: int = 0
    limits: Limits = field(default_factory=Limits)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    poll: PollPolicy = field(default_factory=PollPolicy)

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise SpecError(
                "engine.endpoints: none, and a gateway needs an engine",
                hint="name them in the document, such as engine: {endpoints: [{url: http://127.0.0.1:8000}]}, "
                "or start engines and gateway together with `roadworthy up`",
            )
        if len(set(self.endpoints)) != len(self.endpoints):
            twice = next(url for url in self.endpoints if self.endpoints.count(url) > 1)
            raise SpecError(f"engine.endpoints: {twice} is named twice", hint="name each engine once")

    @classmethod
    def from_deployment(
        cls,
        deployment: Deployment,
        *,
        tenants: Sequence[Tenant],
        endpoints: Sequence[str] | None = None,
        host: str | None = None,
        port: int | None = None,
        admin_port: int | None = None,
    ) -> GatewayConfig:
        """The document's gateway. What is given here goes before what the document says; ``tenants`` are its own with
        their keys filled in.

        Raises:
            SpecError: no engine.
            Unsupported: settings that this version does not carry out.
        """
        spec = deployment.gateway
        if spec.workers > 1:
            raise Unsupported(
                f"gateway.workers: {spec.workers}, but this version runs one worker",
                hint="leave workers at 1; several gateways behind a TCP balancer work, with limits counted by each",
            )
        for name, value in (("state_url", spec.state_url), ("shared_url", spec.shared_url)):
            if value is not None:
                raise Unsupported(
                    f"gateway.{name}: shared and stored state is not there yet",
                    hint=f"leave {name} out: tenants come from the document, limits are kept in memory",
                )
        return cls(
            endpoints=tuple(endpoints)
            if endpoints is not None
            else tuple(one.url for one in deployment.engine.endpoints),
            tenants=tuple(tenants),
            host=host if host is not None else spec.host,
            port=port if port is not None else spec.port,
            admin_port=admin_port if admin_port is not None else spec.admin_port,
        )


NOT_ENFORCED = {
    "tokens_per_minute": "tpm",
    "daily_tokens": "daily_tokens",
    "kv_quota_bytes": "kv_quota",
    "fallback": "fallback",
}
"""Fields of a tenant that this version reads and does not carry out, with their keys in the document."""


def not_enforced(tenants: Sequence[Tenant]) -> tuple[str, ...]:
    """The document's words for tenants' settings that are set and not carried out; an operator must hear of them."""
    return tuple(
        key for field_name, key in NOT_ENFORCED.items() if any(getattr(one, field_name) is not None for one in tenants)
    )
