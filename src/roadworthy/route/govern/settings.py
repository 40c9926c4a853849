"""How a governor weighs: the document's words, and what only an engineer would turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.spec.governance_values import GovernanceSpec, QueueSpec, Rule

if TYPE_CHECKING:
    from roadworthy.spec.values import Deployment

_SPEC = GovernanceSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernSettings:
    """All of it.

    Args:
        queue, borrow_headroom_ratio, rules: as ``spec.governance_values`` says.
        cached_free: prompt tokens that the prefix cache held do not count in fairness.
        expected_output_tokens: how long an answer is taken to be until the tenant's own are known.
        prompt_weight, output_weight: what a token of the prompt and one of the answer cost in fairness (Sheng et al.,
            "Fairness in Serving Large Language Models", OSDI 2024, section 4: 1 and 2).
        charge_every_tokens: streamed tokens between two charges; the counter of a tenant lags by less than this.
        overtaken_most: how many requests that do not fit may be passed over by ones that do, each time.
    """

    queue: QueueSpec = _SPEC.queue
    borrow_headroom_ratio: float = _SPEC.borrow_headroom_ratio
    rules: tuple[Rule, ...] = ()
    cached_free: bool = False
    expected_output_tokens: int = 256
    prompt_weight: float = 1.0
    output_weight: float = 2.0
    charge_every_tokens: int = 32
    overtaken_most: int = 8

    def __post_init__(self) -> None:
        if not 0 <= self.borrow_headroom_ratio <= 1 or self.expected_output_tokens < 1:
            raise ValueError(f"settings of governance that cannot be: {self}")

    @classmethod
    def of(cls, deployment: Deployment) -> GovernSettings:
        """What the document asks for. Until a tenant's answers are known, the workload's 90th percentile stands in."""
        spec = deployment.governance
        return cls(
            queue=spec.queue,
            borrow_headroom_ratio=spec.borrow_headroom_ratio,
            rules=spec.rules,
            cached_free=spec.cached_tokens == "free",
            expected_output_tokens=deployment.workload.output_tokens.p90,
        )
