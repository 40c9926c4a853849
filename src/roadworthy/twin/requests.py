"""What goes into a twin and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from roadworthy.twin.prompt import Segment, segment_tokens
from roadworthy.twin.times import NO_TIMES, Span, TokenTimes

if TYPE_CHECKING:
    from roadworthy.twin.blocks import Holding
    from roadworthy.twin.lane import Lane

EndsWith = Literal["stop", "length"]
FinishReason = Literal["stop", "length", "abort"]


@dataclass(slots=True, kw_only=True)  # not frozen: a million of them are made in a simulation, at four times the cost
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
    prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        segments = self.segments
        self.prompt_tokens = tokens = segments[0].tokens if len(segments) == 1 else segment_tokens(segments)
        if tokens < 1 or self.output_tokens < 1:
            raise ValueError(f"request {self.id}: {tokens} tokens in, {self.output_tokens} out, both from 1")


class Finished(NamedTuple):
    """How a request went. Times are on the caller's clock; ``tokens`` says when each token came and is empty when
    they were told one by one. Queue time is ``scheduled_s - queued_s``, prefill ends at ``first_token_s``."""

    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_s: float
    scheduled_s: float
    first_token_s: float
    last_token_s: float
    preemptions: int
    tokens: TokenTimes = NO_TIMES

    @property
    def token_times_s(self) -> tuple[float, ...]:
        """When each token came: worked out anew on each call, so ask ``tokens.gaps()`` for more than a few."""
        return self.tokens.moments_s()


class Output(NamedTuple):
    """One token of one request at ``at_s``; its last one carries ``finished``."""

    request_id: str
    at_s: float
    finished: Finished | None


_new_finished: Callable[[tuple[object, ...]], Finished] = partial(tuple.__new__, Finished)
new_output: Callable[[tuple[str, float, Finished | None]], Output] = partial(tuple.__new__, Output)
"""Of all their values in order, at half the price of the named tuples' own constructors (``times.new_stretch``)."""


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
    """A request inside the engine, with vLLM's counters.

    ``computed`` tokens have their KV or will when the steps under way end; ``in_flight`` of them are of those steps.
    ``placeholders`` stand for tokens that asynchronous scheduling has scheduled and not seen. ``drafts`` are to be
    verified in the next step. ``stale`` tokens in flight were scheduled before a preemption. In a pipeline with
    asynchronous scheduling it may decode in turn ``next_turn`` of the core's loop again.

    While ``lane`` is set the request decodes in step with others: ``computed`` and ``generated`` are as of its step
    ``joined`` there, until :meth:`tell`.
    """

    __slots__ = (
        "cached_tokens",
        "computed",
        "drafts",
        "first_token_s",
        "generated",
        "holding",
        "in_flight",
        "joined",
        "junction",
        "lane",
        "last_s",
        "limit",
        "next_turn",
        "order",
        "placeholders",
        "preemptions",
        "prompt_tokens",
        "queued_s",
        "request",
        "running",
        "scheduled_s",
        "since",
        "stale",
        "times",
        "unfinished_prefill",
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
        self.in_flight = self.placeholders = self.drafts = self.stale = self.junction = self.next_turn = 0
        self.times: list[float | Span] = []
        self.lane: Lane | None = None
        self.joined = self.since = 0
        self.last_s = -1.0
        self.running = False
        self.unfinished_prefill = False

    @property
    def known(self) -> int:
        """Tokens of prompt and answer that are known."""
        return self.prompt_tokens + self.generated

    def finished(self, reason: FinishReason, last_s: float, tokens: TokenTimes = NO_TIMES) -> Finished:
        """How it went, its last token or its end at ``last_s``."""
        return _new_finished(
            (
                reason,
                self.prompt_tokens,
                self.cached_tokens,
                self.generated,
                self.queued_s,
                self.scheduled_s,
                self.first_token_s,
                last_s,
                self.preemptions,
                tokens,
            )
        )

    def tell(self) -> None:
        """Catch up with the lane, blocks and cached prefixes included."""
        if self.lane is not None:
            self.lane.catch_up(self)
