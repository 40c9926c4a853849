"""A recorded load, sent again: lines of a trace in, a schedule out.

Times are those of the trace from its first request on, faster or slower by a factor, with long silences cut where
that is asked; a trace without times starts its sessions by the profile's arrivals instead. Where a trace has lengths
and no texts, texts are made up, equal where the trace says that they were equal. Where it has texts they are sent, and
the recorded answers stand in the later turns, so that every replay asks the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.advise.arrivals import PlannedRequest
from roadworthy.advise.patterns import start_times
from roadworthy.advise.trace_formats import (
    MOONCAKE_BLOCK_TOKENS,
    Said,
    TraceLine,
)
from roadworthy.twin.prompt import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.advise.trace_reader import Trace
    from roadworthy.spec.values import RequestProfile, Tenant

_BYTES_PER_TOKEN = 4.0
DEFAULT_ANSWER_TOKENS = 256
"""Of a recorded text without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A trace instead of a synthetic load. ``speed`` 2 is twice as fast; silences are cut to ``max_gap_s``."""

    trace: Trace
    name: str
    speed: float = 1.0
    max_gap_s: float | None = None


class TraceSchedule:
    """A :class:`~roadworthy.advise.arrivals.Schedule` that replays ``trace``.

    Args:
        profile: its arrivals and rate start the sessions of a trace without times; its think time is the pause before
            a later turn.
        requests: at most so many are sent; None sends all.
        speed: 2 replays twice as fast.
        max_gap_s: longer silences are cut to this.
        tenants: requests go to the tenant of their line where it is one of these, and to all by weight otherwise.
        max_context_tokens: requests that would exceed it are left out.
        tokens_of: counts the tokens of a text, for answers' lengths and for the context.
    """

    def __init__(
        self,
        trace: Trace,
        profile: RequestProfile,
        *,
        seed: int,
        requests: int | None = None,
        duration_s: float | None = None,
        speed: float = 1.0,
        max_gap_s: float | None = None,
        tenants: Sequence[Tenant] = (),
        max_context_tokens: int | None = None,
        tokens_of: Callable[[str], int] | None = None,
    ) -> None:
        if speed <= 0:
            raise ValueError(f"speed {speed} must be positive")
        self._trace = trace
        self._profile = profile
        self._seed = seed
        self._requests = requests
        self._duration_s = duration_s
        self._speed = speed
        self._max_gap_s = max_gap_s
        self._tenants = tuple(tenant.id for tenant in tenants)
        self._weights = tuple(tenant.weight for tenant in tenants)
        self._max_context_tokens = max_context_tokens
        self._tokens_of = tokens_of or _by_bytes
        self._turns: dict[int, list[PlannedRequest]] = {}
        self.too_long = 0

    @property
    def has_sessions(self) -> bool:
        """Whether conversations have several turns."""
        return any(len(line.turns) > 1 for line in self._trace.lines)

    @property
    def asked_rate_per_s(self) -> float | None:
        """Requests a second over what is replayed; None for a trace of one moment."""
        if not self._trace.timed:
            return self._profile.rate_per_s
        sent, last_s = 0, 0.0
        for line, time_s in zip(self._trace.lines, self._times_s(), strict=True):
            if sent >= (self._requests or math.inf) or time_s > (self._duration_s or math.inf):
                break
            sent, last_s = sent + max(1, len(line.turns)), time_s
        return (sent - 1) / last_s if sent > 1 and last_s > 0 else None

    def first_turns(self) -> Iterator[PlannedRequest]:
        """The first request of every line, by time."""
        self._turns.clear()
        self.too_long = 0
        left = self._requests
        rng = random.Random(f"{self._seed}:trace")
        times_s: Iterable[float] = self._times_s() if self._trace.timed else self._start_times(rng)
        for session, (line, time_s) in enumerate(zip(self._trace.lines, times_s, strict=False)):
            if left == 0 or (self._duration_s is not None and time_s > self._duration_s):
                return
            planned = [one for one in self._planned(line, session, time_s, rng) if self._fits(one)]
            if left is not None:
                planned = planned[:left]
                left -= len(planned)
            if not planned:
                continue
            self._turns[session] = planned[1:]
            yield planned[0]

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:  # noqa: ARG002 - the answer recorded is the one that goes on
        """The next recorded turn, after a pause."""
        later = self._turns.get(request.session)
        if not later:
            self._turns.pop(request.session, None)
            return None
        think_s = self._profile.sessions.think_time_s
        rng = random.Random(f"{self._seed}:{request.session}:{request.turn}")
        pause_s = rng.expovariate(1 / think_s) if think_s else 0.0
        return replace(later.pop(0), t_sched_s=finished_s + pause_s)

    def after_failure(self, request: PlannedRequest, *, finished_s: float) -> PlannedRequest | None:  # noqa: ARG002 - the shape of a Schedule
        """Nothing: a failed turn ends its conversation."""
        self._turns.pop(request.session, None)
        return None

    def _times_s(self) -> Iterator[float]:
        now_s, before_s = 0.0, self._trace.lines[0].at_s or 0.0
        for line in self._trace.lines:
            at_s = line.at_s or 0.0
            gap_s = at_s - before_s
            if self._max_gap_s is not None:
                gap_s = min(gap_s, self._max_gap_s)
            now_s += gap_s / self._speed
            before_s = at_s
            yield now_s

    def _start_times(self, rng: random.Random) -> Iterator[float]:
        turns = sum(max(1, len(line.turns)) for line in self._trace.lines) / len(self._trace.lines)
        length_s = self._duration_s or len(self._trace.lines) * turns / self._profile.rate_per_s
        return start_times(self._profile.arrivals, self._profile.rate_per_s / turns, rng, length_s=length_s)

    def _planned(self, line: TraceLine, session: int, t_s: float, rng: random.Random) -> Iterator[PlannedRequest]:
        tenant = self._tenant(line.tenant, rng)
        if not line.turns:
            prompt, output = line.prompt_tokens or 1, line.output_tokens or 1
            yield PlannedRequest(
                t_sched_s=t_s, session=session, turn=0, turns=1, prompt_tokens=prompt, output_tokens=output,
                segments=_segments(line, session, prompt), tenant=tenant,
            )  # fmt: skip
            return
        for turn, (said, answer) in enumerate(line.turns):
            segments = self._said_segments(said, session)
            output = line.output_tokens or (self._tokens_of(answer) if answer else DEFAULT_ANSWER_TOKENS)
            yield PlannedRequest(
                t_sched_s=t_s, session=session, turn=turn, turns=len(line.turns),
                prompt_tokens=sum(one.tokens for one in segments), output_tokens=max(1, output),
                segments=segments, tenant=tenant, said=said,
            )  # fmt: skip

    def _said_segments(self, said: Said, session: int) -> tuple[Segment, ...]:
        """What a simulation knows of texts: their lengths, and which are the same."""
        return tuple(
            Segment(f"t{session}.{place}{'a' if role == 'assistant' else 'u'}", max(1, self._tokens_of(text)))
            for place, (role, text) in enumerate(said)
        )

    def _fits(self, request: PlannedRequest) -> bool:
        if self._max_context_tokens is None:
            return True
        fits = request.prompt_tokens + request.output_tokens <= self._max_context_tokens
        self.too_long += not fits
        return fits

    def _tenant(self, recorded: str, rng: random.Random) -> str:
        if recorded in self._tenants or not self._tenants:
            return recorded if self._tenants else ""
        return rng.choices(self._tenants, self._weights)[0]


def _segments(line: TraceLine, session: int, prompt_tokens: int) -> tuple[Segment, ...]:
    """Blocks by their hash where the trace has them; otherwise one text of its own."""
    if not line.hash_ids:
        return (Segment(f"t{session}.0u", prompt_tokens),)
    whole = len(line.hash_ids) - 1
    last = prompt_tokens - whole * MOONCAKE_BLOCK_TOKENS
    sizes = [MOONCAKE_BLOCK_TOKENS] * whole + [last]
    return tuple(Segment(f"h{name}", size) for name, size in zip(line.hash_ids, sizes, strict=True))


def _by_bytes(text: str) -> int:
    return max(1, round(len(text.encode()) / _BYTES_PER_TOKEN))
