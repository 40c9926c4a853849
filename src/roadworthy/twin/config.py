"""What one twin is: the settings and the memory of one data-parallel rank of an engine, as a file can hold them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from roadworthy.core.errors import SpecError
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.plan.cache_groups import in_flight_tokens
from roadworthy.plan.timing import RooflineStepTime

Policy = Literal["fcfs", "priority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinConfig:
    """One engine core of vLLM v1, in the engine's own settings.

    Args:
        models: names it answers to; the first is the one it reports.
        cache: how many blocks a request holds.
        kv_blocks: blocks of the pool, block 0 included, which is a placeholder that nobody gets.
        max_num_seqs: requests that run at once.
        max_num_batched_tokens: token budget of one step.
        max_model_len: prompt and answer of one request together, in tokens.
        step_time: seconds of a step, and how many pipeline stages it passes.
        max_num_queued_reqs: unfinished requests above which a new one is refused; None never refuses.
        policy: ``fcfs``, or ``priority`` (lower goes first, and is preempted last).
        async_scheduling: schedule a step while the one before it runs, as vLLM does where it can: a new request waits
            for the step under way and the one behind it, and the host's work is hidden.
        late_admission: what of asynchronous scheduling a client notices, at no cost in time to simulate: a request that
            comes while a step is under way joins the one after the next, which is formed already.
        long_prefill_token_threshold: the most that one prompt gets of a step while others wait or run; 0 is no limit.
        draft_tokens: verified for each sequence in a step, one sequence at a time and unevenly; 0 leaves speculative
            decoding to ``step_time``, which knows it on average.
        draft_acceptance_ratio: chance that a draft is right when those before it were.
        lookahead_tokens: slots that drafting needs beyond the step's tokens (vLLM: ``num_lookahead_tokens``).
        concurrent_batches: steps that vLLM counts as scheduled and not settled when it reserves blocks; None is one
            more than the pipeline has stages, its default.
        offload_blocks: room in host memory for cached blocks that the pool evicts, for models with one kind of cache; 0
            is none. What is found there is loaded before the step that takes a request in.
        offload_tokens_per_s: how fast that is.
        answer_tokens: length of an answer whose request sets no limit; the twin has no end-of-text of its own.
        engine_version: the version of vLLM that is modelled.
        label: what every surface of the twin says it is.

    Raises:
        ValueError: a number is not positive, or the pool cannot hold one request of ``max_model_len``, which vLLM
            refuses at start-up too.
    """

    models: tuple[str, ...]
    cache: CacheLayout
    kv_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    step_time: RooflineStepTime
    enable_prefix_caching: bool = True
    max_num_queued_reqs: int | None = None
    policy: Policy = "fcfs"
    async_scheduling: bool = False
    late_admission: bool = False
    long_prefill_token_threshold: int = 0
    draft_tokens: int = 0
    draft_acceptance_ratio: float = 0.0
    lookahead_tokens: int = 0
    concurrent_batches: int | None = None
    offload_blocks: int = 0
    offload_tokens_per_s: float = 1e6
    answer_tokens: int = 256
    engine_version: str = ""
    label: Literal["simulated"] = "simulated"

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models: a twin needs at least one name to answer to")
        for name in ("max_num_seqs", "max_num_batched_tokens", "answer_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not positive")
        if self.max_model_len < 2:
            raise ValueError(f"max_model_len {self.max_model_len} has no room for one token in and one out")
        if self.policy not in ("fcfs", "priority"):
            raise ValueError(f"policy {self.policy!r} is neither fcfs nor priority")
        for name in ("long_prefill_token_threshold", "draft_tokens", "lookahead_tokens", "offload_blocks"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} is negative")
        if self.late_admission and self.async_scheduling:
            raise ValueError("late_admission: instead of async_scheduling")
        if not 0 <= self.draft_acceptance_ratio <= 1:
            raise ValueError(f"draft_acceptance_ratio {self.draft_acceptance_ratio} is not between 0 and 1")
        if self.offload_tokens_per_s <= 0:
            raise ValueError(f"offload_tokens_per_s {self.offload_tokens_per_s} is not positive")
        if self.offload_blocks and [group.kind for group in self.cache.groups] != ["full"]:
            raise ValueError("offload_blocks: only a cache of one full-context group can be offloaded here")
        if self.label != "simulated":
            raise ValueError(f"label {self.label!r}: a twin is always labelled simulated")
        needed = largest_request_blocks(self.cache, self.max_model_len, self.in_flight_tokens)
        if needed > self.kv_blocks - 1:
            raise ValueError(
                f"kv_blocks {self.kv_blocks} hold no request of max_model_len {self.max_model_len}: "
                f"it takes {needed} and block 0 is a placeholder"
            )

    @property
    def turns_between_tokens(self) -> int:
        """Turns of the core's loop from one step of a decoding request to its next; 0 where each result opens the next
        (vLLM 0.32 ``AsyncScheduler.decode_stagger``, V2 model runner)."""
        return self.step_time.pipeline_stages if self.async_scheduling and self.step_time.pipeline_stages > 1 else 0

    @property
    def in_flight_tokens(self) -> int:
        """Tokens that vLLM takes to be scheduled and not settled when it sizes one request's reservation."""
        if self.concurrent_batches is not None:
            return self.concurrent_batches * self.max_num_batched_tokens
        return in_flight_tokens(pp=self.step_time.pipeline_stages, max_num_batched_tokens=self.max_num_batched_tokens)

    def to_json(self) -> str:
        """The configuration as one JSON document that :meth:`from_json` reads back to an equal value."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> TwinConfig:
        """The configuration in ``text``. Raises SpecError with the place when it is not one."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise SpecError(f"twin configuration: not JSON: {error}") from error
        if not isinstance(document, dict):
            raise SpecError(f"twin configuration: {type(document).__name__}, wanted an object")
        try:
            cache = document.pop("cache")
            groups = tuple(CacheGroup(**group) for group in cache.pop("groups"))
            layout = CacheLayout(groups=groups, bytes_per_block=tuple(cache.pop("bytes_per_block")), **cache)
            step_time = RooflineStepTime(**document.pop("step_time"))
            return cls(models=tuple(document.pop("models")), cache=layout, step_time=step_time, **_scalars(document))
        except KeyError as error:
            raise SpecError(f"twin configuration: {error} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise SpecError(f"twin configuration: {error}") from error


def accepted_drafts(acceptance_ratio: float, request_id: str, generated: int, drafts: int) -> int:
    """How many of ``drafts`` are right after ``generated`` tokens: drawn for every place anew, and the same for the
    same request and place. Each draft is right with ``acceptance_ratio`` if those before it were."""
    word = zlib.crc32(f"{request_id} {generated}".encode()) / 2**32
    accepted, chance = 0, 1.0
    while accepted < drafts:
        chance *= acceptance_ratio
        if word >= chance:
            break
        accepted += 1
    return accepted


def _scalars(document: Mapping[str, Any]) -> dict[str, Any]:
    """The remaining fields, each of the type its default or neighbour shows."""
    texts = {"policy", "engine_version", "label"}
    for name, value in document.items():
        if name in ("enable_prefix_caching", "async_scheduling", "late_admission"):
            fits = isinstance(value, bool)
        elif name in ("draft_acceptance_ratio", "offload_tokens_per_s"):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif name in texts:
            fits = isinstance(value, str)
        else:
            fits = isinstance(value, int) or (name in ("max_num_queued_reqs", "concurrent_batches") and value is None)
        if not fits:
            raise ValueError(f"{name}: {value!r} is of the wrong type")
    return dict(document)


def largest_request_blocks(cache: CacheLayout, max_model_len: int, in_flight: int) -> int:
    """Blocks that one request of ``max_model_len`` may hold at its peak, prefill chunks included."""
    return sum(max(group.held(max_model_len), group.admitted(max_model_len, in_flight)) for group in cache.groups)
