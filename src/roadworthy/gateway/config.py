"""What a gateway is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roadworthy.core.errors import SpecError
from roadworthy.core.units import MIB
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.poller import PollPolicy
from roadworthy.route.breaker import BreakerPolicy
from roadworthy.route.govern.prefill import backlog_s_of
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.settings import RoutingSettings
from roadworthy.spec.gateway_values import DocumentsSpec, TlsSpec
from roadworthy.spec.governance_values import GovernanceSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roadworthy.route.govern.advice import ReplicaSize
    from roadworthy.route.govern.footprint import BlockShape
    from roadworthy.route.govern.prefill import PrefillPace
    from roadworthy.spec.governance_values import Billing
    from roadworthy.spec.values import Deployment, Tenant


LEAST_READER_BYTES = 256 * MIB
"""Numerical libraries ask again and again for memory that they do not get when they are loaded: 40 MiB hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Where to listen, what to relay to, and for whom.

    Args:
        name: of the deployment, for alerts.
        endpoints: engines' URLs, at least one; they need not answer yet.
        kv_events: where engines publish their KV cache events, by engine URL.
        tenants: with their keys filled in; empty means open access.
        host: the data port's address.
        port, admin_port: 0 takes a free one.
        admin_host: the admin port's address. Health and metrics need no key there: keep it private.
        workers: processes that share the data port.
        session_header: names the conversation that a request belongs to.
        tls: of the data port.
        access_log: path of the access log, ``-`` for stdout, None for none.
        otlp_endpoint: where spans go, None for nowhere.
        documents: what tenants may store and ask about; off without its ``home``.
        remote_media: let engines fetch media by URL.
        governance: billing, the ledger, what happens when a store is lost.
        govern: queue, reserve, rules.
        state_url: the database of tenants, keys and the ledger; None keeps them in this process.
        shared_url: where limits are counted that several processes share; None counts them in each.
        engine_priority: engines schedule by priority, so each request tells them its own.
        shape: of KV blocks and state of the model, from the document's plan; None where engines tell what they can.
        replica: what one more would add, from the plan; advice on quotas names replicas by it.
        prefill: how fast an engine computes prompts, from the plan; None lets any number of prompts through.
        backlog_s: so long an engine may be busy with prompts that were sent to it; None for any time.
    """

    endpoints: tuple[str, ...]
    kv_events: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tenants: tuple[Tenant, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    admin_host: str = "127.0.0.1"
    admin_port: int = 0
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    poll: PollPolicy = field(default_factory=PollPolicy)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    session_header: str = "x-session-id"
    tls: TlsSpec = field(default_factory=TlsSpec)
    documents: DocumentsSpec = field(default_factory=DocumentsSpec)
    access_log: str | None = None
    otlp_endpoint: str | None = None
    remote_media: bool = False
    governance: GovernanceSpec = field(default_factory=GovernanceSpec)
    govern: GovernSettings = field(default_factory=GovernSettings)
    state_url: str | None = None
    shared_url: str | None = None
    engine_priority: bool = False
    name: str = ""
    shape: BlockShape | None = None
    replica: ReplicaSize | None = None
    prefill: PrefillPace | None = None
    backlog_s: float | None = None

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
        if (self.tls.cert is None) != (self.tls.key is None) or (self.tls.client_ca and not self.tls.cert):
            raise SpecError(
                "gateway.tls: cert and key are needed together", hint="give both, and client_ca only beside them"
            )
        if self.documents.reader_memory_bytes < LEAST_READER_BYTES:
            raise SpecError(
                f"gateway.documents.reader_memory: {self.documents.reader_memory_bytes:,} bytes, wanted 256MiB or more",
                hint="with less a reader may hang before it has begun",
            )
        if self.documents.home and self.tls.cert and not self.documents.gateway_url:
            raise SpecError(
                "gateway.documents.gateway_url: none, and the data port speaks TLS",
                hint="name the https URL that the certificate is for: questions to documents go through it",
            )

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
        workers: int | None = None,
    ) -> GatewayConfig:
        """The document's gateway. What is given here goes before what the document says; ``tenants`` are its own with
        their keys filled in.

        Raises:
            SpecError: no engine.
        """
        spec = deployment.gateway
        named = deployment.engine.endpoints
        return cls(
            name=deployment.name,
            endpoints=tuple(endpoints) if endpoints is not None else tuple(one.url for one in named),
            kv_events=tuple((one.url, one.kv_events) for one in named if one.kv_events) if endpoints is None else (),
            tenants=tuple(tenants),
            host=host if host is not None else spec.host,
            port=port if port is not None else spec.port,
            admin_port=admin_port if admin_port is not None else spec.admin_port,
            workers=workers if workers is not None else spec.workers,
            limits=Limits(first_byte_s=spec.first_byte_timeout_s),
            routing=RoutingSettings.of(spec),
            session_header=spec.routing.session_header,
            tls=spec.tls,
            documents=spec.documents,
            access_log=spec.access_log,
            otlp_endpoint=spec.otlp_endpoint,
            remote_media=spec.remote_media == "allow",
            governance=deployment.governance,
            govern=GovernSettings.of(deployment),
            state_url=spec.state_url,
            shared_url=spec.shared_url,
            backlog_s=backlog_s_of(deployment),
            engine_priority=deployment.engine.settings.get("scheduling_policy") == "priority",
        )

    @property
    def meter_url(self) -> str | None:
        """Where limits are counted that several processes share: what the document names for it, or for the workers of
        one host the database. None where each process counts by itself."""
        return self.shared_url or (self.state_url if self.workers > 1 else None)

    def counts(self, tenants: Iterable[Tenant]) -> Billing | None:
        """How streams are counted while these are the tenants: as the document says, or exactly where a limit depends
        on it; None where nobody needs a count."""
        billing = self.governance.billing
        if billing is not None:
            return billing
        if any(one.tokens_per_minute or one.daily_tokens or one.kv_quota_bytes for one in tenants):
            return "exact"
        return "final" if self.governance.ledger and self.state_url is not None else None


def not_enforced(config: GatewayConfig) -> tuple[str, ...]:
    """The document's words for what is set and cannot be carried out; an operator must hear of them."""
    unknown = config.shape is None or config.shape.block_bytes is None
    if unknown and any(one.kv_quota_bytes is not None for one in config.tenants):
        return ("tenants[].kv_quota (no plan tells the size of a block)",)
    return ()
