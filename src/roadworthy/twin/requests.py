"""What goes into a twin and what comes out."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from roadworthy.twin.prompt import Segment, segment_tokens

if TYPE_CHECKING:
    from roadworthy.twin.blocks import Holding

EndsWith = Literal["stop", "length"]
FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRequest:
    """One request.

    Args:
        id: unique among the unfinished ones.
        segments: the prompt; at least one token.
        output_tokens: tokens the answer will have, unless ``max_model_len`` ends it sooner.
        ends_with: the finish reason when all of them came: ``stop`` for an end of text, ``length`` for a limit.
        answer_id: names the text of the answer, so that a later prompt that contains it can hit its cached blocks.
        priority: with the ``priority`` policy, lower goes first.
        contents: what each full unit (``Engine.unit_tokens``) of prompt and answer holds, from a caller that knows
            the text; equal values mean equal text. None cuts them from the segments.
        cache_salt: requests of different salts share no cached block, as in vLLM.
    """

    id: str
    segments: tuple[Segment, ...]
    output_tokens: int
    ends_with: EndsWith = "length"
    answer_id: str = ""
    priority: int = 0
    contents: tuple[Hashable, ...] | None = None
    cache_salt: str = ""

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(
                f"request {self.id}: {self.prompt_tokens} tokens in, {self.output_tokens} out, both from 1"
            )

    @property
    def prompt_tokens(self) -> int:
        return segment_tokens(self.segments)


class Finished(NamedTuple):
    """How a request went. Times are on the caller's clock; ``token_times_s`` is empty when tokens were told one by
    one. Queue time is ``scheduled_s - queued_s``, prefill ends at ``first_token_s``."""

    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_s: float
    scheduled_s: float
    first_token_s: float
    last_token_s: float
    preemptions: int
    token_times_s: tuple[float, ...]


class Output(NamedTuple):
    """One token of one request at ``at_s``; its last one carries ``finished``."""

    request_id: str
    at_s: float
    finished: Finished | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The state and the counters that `/metrics` of vLLM shows, under the same meaning.

    ``prefix_cache_*_tokens`` count once, when a request is first admitted. ``busy_s`` is the time that one pipeline
    stage computed; divided by the time passed it is the engine's utilisation.
    """

    running: int
    waiting: int
    kv_usage_ratio: float
    prompt_tokens: int
    generation_tokens: int
    prefix_cache_query_tokens: int
    prefix_cache_hit_tokens: int
    preemptions: int
    refused: int
    finished: dict[FinishReason, int]
    steps: int
    busy_s: float


class Sequence:
    """A request inside the engine. ``computed`` tokens have their KV; one step later than ``generated`` rises.

    ``generated``, ``computed`` and ``times_s`` lag behind while its batch repeats plain decode steps and are caught
    up when the batch changes.
    """

    __slots__ = (
        "batch",
        "cached_tokens",
        "computed",
        "first_token_s",
        "generated",
        "holding",
        "limit",
        "order",
        "preemptions",
        "prompt_tokens",
        "queued_s",
        "request",
        "running",
        "scheduled_s",
        "times_s",
    )

    def __init__(self, request: TwinRequest, holding: Holding, *, limit: int, order: int, queued_s: float) -> None:
        self.request = request
        self.holding = holding
        self.prompt_tokens = request.prompt_tokens
        self.limit = limit
        self.order = order
        self.queued_s = queued_s
        self.scheduled_s = self.first_token_s = -1.0
        self.generated = self.computed = self.cached_tokens = self.preemptions = 0
        self.times_s: list[float] = []
        self.batch: object | None = None
        self.running = False
