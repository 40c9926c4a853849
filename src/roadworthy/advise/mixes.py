"""Kinds of session: a chat, questions on a long document, an agent with tools; what each sends, turn by turn.

The numbers of the presets are a starting point for a load, not a claim about anybody's traffic: a document states its
own. A tool's result is sent as a message of the user, since the roles that engines accept for it differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.spec.workload_values import Quantiles

if TYPE_CHECKING:
    from roadworthy.spec.workload_values import MixPart, RequestProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKind:
    """What one kind of session sends.

    Args:
        name: empty for a workload that is not mixed.
        weight: how likely a session that starts is of this kind.
        prompt_tokens: of the first prompt, the shared prefix included.
        added_tokens: new text of a later turn; None takes the unshared share of a draw of ``prompt_tokens``.
        turns: mean of a geometric law.
        tenants: who sends it; empty means all.
    """

    name: str
    weight: float
    prompt_tokens: Quantiles
    added_tokens: Quantiles | None
    output_tokens: Quantiles
    shared_prefix_ratio: float
    turns: float
    think_time_s: float
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preset:
    prompt_tokens: Quantiles
    added_tokens: Quantiles
    output_tokens: Quantiles
    shared_prefix_ratio: float
    turns: float
    think_time_s: float


_PRESETS = {
    "document": _Preset(  # a long text once, then short questions about it
        prompt_tokens=Quantiles(p50=24_000, p90=64_000, p99=110_000),
        added_tokens=Quantiles(p50=40, p90=90, p99=200),
        output_tokens=Quantiles(p50=250, p90=600, p99=1200),
        shared_prefix_ratio=0.0,
        turns=4.0,
        think_time_s=20.0,
    ),
    "agent": _Preset(  # instructions and tool schemas in common; every turn a short call, then the tool's result
        prompt_tokens=Quantiles(p50=5_000, p90=8_000, p99=14_000),
        added_tokens=Quantiles(p50=500, p90=2_500, p99=8_000),
        output_tokens=Quantiles(p50=90, p90=300, p99=900),
        shared_prefix_ratio=0.7,
        turns=15.0,
        think_time_s=0.8,
    ),
}


def session_kinds(profile: RequestProfile) -> tuple[SessionKind, ...]:
    """The kinds of ``profile``, one where it has no mix; their weights add up to 1.

    ``share`` of a part counts requests, so a part of long sessions starts fewer of them.
    """
    if not profile.mix:
        return (
            SessionKind(
                name="",
                weight=1.0,
                prompt_tokens=profile.prompt_tokens,
                added_tokens=None,
                output_tokens=profile.output_tokens,
                shared_prefix_ratio=profile.shared_prefix_ratio,
                turns=profile.sessions.turns,
                think_time_s=profile.sessions.think_time_s,
            ),
        )
    kinds = _named_apart([_kind(part, profile) for part in profile.mix])
    starts = [part.share_ratio / kind.turns for part, kind in zip(profile.mix, kinds, strict=True)]
    return tuple(_weighted(kind, weight / sum(starts)) for kind, weight in zip(kinds, starts, strict=True))


def mean_turns(kinds: tuple[SessionKind, ...]) -> float:
    """Requests of the average session, by which a rate of requests becomes one of sessions."""
    return sum(kind.weight * kind.turns for kind in kinds)


def _kind(part: MixPart, profile: RequestProfile) -> SessionKind:
    preset = _PRESETS.get(part.kind)
    sessions = part.sessions
    turns, think_time_s = (
        (sessions.turns, sessions.think_time_s)
        if sessions is not None
        else (preset.turns, preset.think_time_s)
        if preset is not None
        else (profile.sessions.turns, profile.sessions.think_time_s)
    )
    shared = preset.shared_prefix_ratio if preset is not None else profile.shared_prefix_ratio
    return SessionKind(
        name=part.name or part.kind,
        weight=0.0,
        prompt_tokens=part.prompt_tokens or (preset.prompt_tokens if preset else profile.prompt_tokens),
        added_tokens=part.added_tokens or (preset.added_tokens if preset else None),
        output_tokens=part.output_tokens or (preset.output_tokens if preset else profile.output_tokens),
        shared_prefix_ratio=shared if part.shared_prefix_ratio is None else part.shared_prefix_ratio,
        turns=turns,
        think_time_s=think_time_s,
        tenants=part.tenants,
    )


def _named_apart(kinds: list[SessionKind]) -> list[SessionKind]:
    """``kinds`` with a number after a name that came before: reports and shared texts go by name."""
    seen: dict[str, int] = {}
    named = []
    for kind in kinds:
        seen[kind.name] = times = seen.get(kind.name, 0) + 1
        named.append(kind if times == 1 else replace(kind, name=f"{kind.name}-{times}"))
    return named


def _weighted(kind: SessionKind, weight: float) -> SessionKind:
    return replace(kind, weight=weight)
