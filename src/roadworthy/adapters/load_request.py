"""What one measured run is asked to do, and the schedule that it makes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from roadworthy.advise.arrivals import Arrivals, Schedule
from roadworthy.advise.traces import Replay, TraceSchedule
from roadworthy.core.errors import SpecError
from roadworthy.spec.values import RequestProfile, Sla, Tenant

if TYPE_CHECKING:
    from roadworthy.adapters.load_target import ServedModel

CONTEXT_USED_RATIO = 0.95
"""Planned share of the model's context at most: prompts are sized in words, so tokens come out a little off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What to measure.

    Args:
        url: the target, ``http://host:port``.
        keys: API key of each tenant id; of the empty id when there are no tenants.
        requests: how many to send, or None; ``duration_s`` likewise; at least one is given, or a ``replay``.
        replay: a trace instead of ``workload``, which then only starts and paces what the trace does not time.
        tokenizer: folder or file of the model's tokenizer, which then sizes the prompts.
        send_priorities: whether each request carries its tenant's priority, for engines scheduled by priority.
        warmup_s: requests scheduled this soon after the first count in no number; ``auto`` finds out how long.
        timeout_s: of one request.
        temperature: of sampling; 0 takes the likeliest token, and noise such as random weights then repeats itself.
        salt: the texts of the prompts follow from it; a fresh one meets no prefix that an earlier run left cached.
    """

    url: str
    workload: RequestProfile
    sla: Sla = field(default_factory=Sla)
    tenants: tuple[Tenant, ...] = ()
    keys: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    seed: int = 0
    requests: int | None = None
    duration_s: float | None = None
    replay: Replay | None = None
    model: str | None = None
    tokenizer: Path | None = None
    send_priorities: bool = False
    max_concurrency: int | None = None
    warmup_s: float | Literal["auto"] = 0.0
    timeout_s: float = 600.0
    temperature: float = 0.0
    salt: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def first_key(self) -> str | None:
        return next(iter(self.keys.values()), None)

    @property
    def even_rate(self) -> bool:
        """Whether requests are meant to come at one rate all along, unlike in waves, bursts, ramps and traces."""
        return self.replay is None and self.workload.arrivals.pattern in ("poisson", "constant")

    @property
    def priorities(self) -> Mapping[str, int]:
        """What to send as priority, by tenant."""
        return {tenant.id: tenant.priority for tenant in self.tenants} if self.send_priorities else {}


def schedule_of(
    request: BenchRequest, model: ServedModel, *, tokens_of: Callable[[str], int] | None = None
) -> Schedule:
    """The load that ``request`` asks for, within the context of ``model``.

    Args:
        tokens_of: counts the tokens of a text, where a tokenizer is at hand.

    Raises:
        SpecError: the mix names tenants that do not exist.
    """
    length = model.max_model_len_tokens
    most = max(2, int(length * CONTEXT_USED_RATIO)) if length else None
    replay = request.replay
    if replay is not None:
        return TraceSchedule(
            replay.trace,
            request.workload,
            seed=request.seed,
            requests=request.requests,
            duration_s=request.duration_s,
            speed=replay.speed,
            max_gap_s=replay.max_gap_s,
            tenants=request.tenants,
            max_context_tokens=most,
            tokens_of=tokens_of,
        )
    try:
        return Arrivals(
            request.workload,
            seed=request.seed,
            requests=request.requests,
            duration_s=request.duration_s,
            tenants=request.tenants,
            max_context_tokens=most,
        )
    except ValueError as error:
        raise SpecError(f"workload: {error}", hint="correct the document, or the options that override it") from error
