"""How the document says tenants are governed: queue, reserve, billing, alerts and business rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Billing = Literal["exact", "final"]
"""``exact`` counts tokens as they stream (continuous usage, switched on towards the engine), ``final`` reads the
answer's own ``usage`` and estimates where an answer was cut."""

OnStateLoss = Literal["closed", "open"]
"""What happens while the store of quotas or of the ledger cannot be reached: refuse, or serve unmetered."""

QueueClass = Literal["high", "normal", "low"]
RuleAction = Literal["refuse", "degrade", "queue"]

Comparison = Literal[">", ">=", "<", "<=", "=", "!=", "in", "not in"]
TextFact = Literal["tenant", "model", "operation"]
NumberFact = Literal["prompt_tokens", "io_wait_ms", "itl_p99_ms", "ttft_ms"]

TEXT_FACTS: tuple[TextFact, ...] = get_args(TextFact)
NUMBER_FACTS: tuple[NumberFact, ...] = get_args(NumberFact)
FACTS_AFTER: tuple[NumberFact, ...] = ("itl_p99_ms", "ttft_ms")
"""Known only once a request has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """``FACT COMPARISON VALUE``. ``number`` is set for facts that are numbers, ``names`` for those that are text."""

    fact: TextFact | NumberFact
    comparison: Comparison
    number: float | None = None
    names: tuple[str, ...] = ()

    @property
    def after(self) -> bool:
        """Whether it can be judged only once the request has ended."""
        return self.fact in FACTS_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A business rule.

    Args:
        scenario: which requests it is about; all conditions hold. Empty means every request.
        when: what must hold of such a request for the rule to act, or with ``in_a_row`` for it to be counted.
        action: refuse with ``code`` (422), send to ``model`` instead, or queue as ``queue`` says.
        model: for ``degrade``; None is the tenant's own fallback.
        message: what the client is told; None means a sentence of ours.
        in_a_row: so many finished requests of the scenario, one after the other on one group of engines, bring the
            action on for the whole scenario. None acts on each request by itself, or counts to 3 where ``when`` holds
            a fact that is known only afterwards.
        hold_s: how long the action stays on before one request tries whether it may end.
    """

    name: str
    when: tuple[Condition, ...]
    scenario: tuple[Condition, ...] = ()
    action: RuleAction = "refuse"
    model: str | None = None
    queue: QueueClass = "low"
    code: str = "BUSINESS_OVERRUN"
    message: str | None = None
    in_a_row: int | None = None
    hold_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Requests that wait for room, in each gateway process.

    Args:
        max_wait_s: after this a request is given up with 429; one that cannot make it is refused at once.
        ageing_s: for each such time that a request has waited it moves one class up.
    """

    total: int = 10_000
    per_tenant: int = 1_000
    max_wait_s: float = 60.0
    ageing_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Smtp:
    """Where alerts are mailed. ``password_env`` names the environment variable that holds the password of ``user``."""

    host: str
    sender: str
    to: tuple[str, ...]
    port: int = 25
    security: Literal["plain", "starttls", "tls"] = "plain"
    user: str | None = None
    password_env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSpec:
    """When somebody is told of a quota that is nearly used up, and how."""

    at_ratio: float = 0.9
    for_s: float = 300.0
    webhook: str | None = None
    smtp: Smtp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernanceSpec:
    """All of it.

    Args:
        borrow_headroom_ratio: of KV blocks and of slots, never given to work beyond its tenant's quota.
        slots_per_engine: requests at an engine at once; None is not bounded here, the engine then queues.
        prefill_backlog_s: how long an engine may be busy with prompts that were sent to it and are not computed; 0 is
            not bounded here, None a quarter of ``sla.ttft_p99`` or a second.
        billing: None is ``exact`` where some tenant has tpm, daily_tokens or kv_quota, else ``final``.
        cached_tokens: whether prompt tokens that the prefix cache held count in fairness.
        lease_ttl_s: after this a shared quota takes back what a process that died held.
        ledger: whether each request is written down.
    """

    borrow_headroom_ratio: float = 0.1
    slots_per_engine: int | None = None
    prefill_backlog_s: float | None = None
    billing: Billing | None = None
    cached_tokens: Literal["charged", "free"] = "charged"
    queue: QueueSpec = QueueSpec()
    lease_ttl_s: float = 30.0
    on_state_loss: OnStateLoss = "closed"
    alert: AlertSpec = AlertSpec()
    rules: tuple[Rule, ...] = ()
    ledger: bool = True
