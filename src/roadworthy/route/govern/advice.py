"""What would help a tenant that is near a limit: how much is lacking, and how many replicas more that would take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.units import format_bytes, format_count

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.route.govern.values import Quota

COMFORTABLE_RATIO = 0.75
"""Use of a quota at which nobody need think of it: what is advised brings the present use down to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """What one more replica would add, by the plan.

    Args:
        kv_blocks, kv_tokens: its pools of KV cache, all data-parallel ranks; tokens as decoding requests hold them.
        requests: of full length, held at once.
        tokens_per_s: prompt and output at the highest rate within the SLA; None where the plan predicts no speed.
        label: the layout it would have.
    """

    kv_blocks: int
    kv_tokens: int
    requests: int
    tokens_per_s: float | None = None
    label: str = ""

    @classmethod
    def planned(cls, judged: LayoutPlan) -> ReplicaSize:
        """Of one replica with the layout that the plan chose; one block of each pool is vLLM's placeholder."""
        ranks = judged.layout.dp
        predicted, demand = judged.predicted, judged.demand
        tokens_per_s = None
        if predicted is not None and demand is not None and demand.output_mean > 0:
            answers_per_s = predicted.capacity_tokens_per_s / demand.output_mean
            tokens_per_s = answers_per_s * (demand.prompt_mean + demand.output_mean) or None
        return cls(
            kv_blocks=max(0, judged.kv_blocks - 1) * ranks,
            kv_tokens=judged.kv_resident_tokens * ranks,
            requests=judged.resident_requests * ranks,
            tokens_per_s=tokens_per_s,
            label=str(judged.layout),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Sentences for a person, what they rest on, and the replicas more that it comes to, where that can be told."""

    sentences: tuple[str, ...]
    assumptions: tuple[str, ...]
    more_replicas: float | None = None


def advise(
    quota: Quota, used: float, limit: float, *, replica: ReplicaSize | None, block_bytes: int | None = None
) -> Advice:
    """Advice for a tenant that uses ``used`` of ``limit``, both in the quota's own unit."""
    lacking = max(0.0, used / COMFORTABLE_RATIO - limit)
    wanted = limit + lacking
    if quota == "kv_quota":
        return _cache(used, limit, lacking, replica, block_bytes)
    if quota == "tpm":
        return _token_rate(used, limit, lacking, replica)
    unit = {"concurrency": "requests at once", "rpm": "requests a minute", "daily_tokens": "tokens a day"}[quota]
    sentences = [
        f"{format_count(used)} of {format_count(limit)} {unit} are in use; {quota}: {_round_up(wanted)} would bring "
        f"that to {COMFORTABLE_RATIO:.0%}"
    ]
    assumptions = ["the use stays what it is"]
    more = None
    if quota == "concurrency" and replica is not None and replica.requests:
        more = lacking / replica.requests
        sentences.append(
            f"if the engines are full, the {format_count(lacking)} more are {_share(more)} of one more replica"
        )
        assumptions.append(
            f"a replica ({replica.label}) holds {format_count(replica.requests)} requests of full length"
        )
    return Advice(sentences=tuple(sentences), assumptions=tuple(assumptions), more_replicas=more)


def _cache(used: float, limit: float, lacking: float, replica: ReplicaSize | None, block_bytes: int | None) -> Advice:
    def size(blocks: float) -> str:
        text = f"{format_count(blocks)} blocks"
        return f"{text} ({format_bytes(blocks * block_bytes)})" if block_bytes else text

    sentences = [
        f"its requests hold {size(used)} of a quota of {size(limit)}, borrowed blocks included; "
        f"{size(limit + lacking)} would bring that to {COMFORTABLE_RATIO:.0%}"
    ]
    assumptions = ["blocks are those predicted at admission: prompt and expected answer of each request"]
    more = None
    if replica is not None and replica.kv_blocks and lacking:
        more = lacking / replica.kv_blocks
        tokens = lacking * replica.kv_tokens / replica.kv_blocks
        sentences.append(
            f"while others leave room a higher kv_quota is enough; where they do not, the {format_count(lacking)} "
            f"blocks more are about {format_count(tokens)} tokens, {_share(more)} of one more replica"
        )
        assumptions.append(
            f"a replica ({replica.label}) holds {format_count(replica.kv_tokens)} tokens in "
            f"{format_count(replica.kv_blocks)} blocks, as planned, with requests of full length"
        )
    return Advice(sentences=tuple(sentences), assumptions=tuple(assumptions), more_replicas=more)


def _token_rate(used: float, limit: float, lacking: float, replica: ReplicaSize | None) -> Advice:
    sentences = [
        f"{format_count(used)} of {format_count(limit)} tokens a minute are in use; tpm: {_round_up(limit + lacking)} "
        f"would bring that to {COMFORTABLE_RATIO:.0%}"
    ]
    assumptions = ["reservations of requests in progress count as used"]
    more = None
    if replica is not None and replica.tokens_per_s and lacking:
        more = lacking / 60 / replica.tokens_per_s
        sentences.append(
            f"if the engines are busy, the {format_count(lacking)} tokens a minute more are {_share(more)} of one more "
            "replica"
        )
        assumptions.append(
            f"a replica ({replica.label}) serves {format_count(replica.tokens_per_s)} tokens a second, prompts and "
            "answers in the proportion of the document's workload, as predicted"
        )
    return Advice(sentences=tuple(sentences), assumptions=tuple(assumptions), more_replicas=more)


def _round_up(value: float) -> str:
    """Two figures, upwards: 1234 is 1300."""
    whole = max(1, -int(-value // 1))
    step = 10 ** max(0, len(str(whole)) - 2)
    return str(-(-whole // step) * step)


def _share(ratio: float) -> str:
    return f"{ratio:.1%}" if ratio < 1 else f"{ratio:.2g} times the size"
