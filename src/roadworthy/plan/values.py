"""What a plan is made of. Bytes are ``int``, times ``float`` seconds, ratios 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.plan.cache import CacheLayout
    from roadworthy.plan.timing import RooflineStepTime
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.model import ModelSpec

Feasible = Literal[True, False, "uncertain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one deployment is split.

    World size is tp * pp * dp. ``ep`` does not multiply it: with expert parallelism on, whole experts are spread over
    the tp * dp ranks of a stage, so ``ep`` is 1 (off) or tp * dp, which is what vLLM's
    ``--enable-expert-parallel`` does. ``replicas`` counts independent engines, each of tp * pp * dp ranks.
    """

    tp: int
    pp: int
    dp: int
    ep: int
    stage_layers: tuple[int, ...]
    replicas: int = 1

    def __post_init__(self) -> None:
        if len(self.stage_layers) != self.pp:
            raise ValueError(f"{self.pp} stages but layers {self.stage_layers}")
        if self.ep not in (1, self.tp * self.dp):
            raise ValueError(f"ep {self.ep} is neither 1 nor tp * dp = {self.tp * self.dp}")

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def label(self) -> str:
        """``TP8 PP4``, ``TP8 DP4 EP32``, ``2 x TP8``."""
        parts = [f"TP{self.tp}"]
        parts += [f"PP{self.pp}"] if self.pp > 1 else []
        parts += [f"DP{self.dp}"] if self.dp > 1 else []
        parts += [f"EP{self.ep}"] if self.ep > 1 else []
        return (f"{self.replicas} x " if self.replicas > 1 else "") + " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """One distinct rank; ``count`` ranks share it. The seven parts add up to ``device_bytes``.

    ``activation_bytes`` is the transient peak and persistent workspaces; ``runtime_bytes`` is the CUDA context and
    ``comm_bytes`` NCCL and all-reduce buffers, both outside the utilisation budget; ``free_bytes`` may be negative
    when the rank does not fit.
    """

    rank: int
    count: int
    stage: int
    device_bytes: int
    weights_bytes: int
    activation_bytes: int
    comm_bytes: int
    runtime_bytes: int
    cudagraph_bytes: int
    kv_pool_bytes: int
    free_bytes: int

    def __post_init__(self) -> None:
        parts = (
            self.weights_bytes + self.activation_bytes + self.comm_bytes + self.runtime_bytes
            + self.cudagraph_bytes + self.kv_pool_bytes + self.free_bytes
        )  # fmt: skip
        if parts != self.device_bytes:
            raise ValueError(f"rank {self.rank}: parts add up to {parts}, device has {self.device_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One engine setting the plan chose, in the engine's spelling, and why."""

    value: str | int | float | bool | None
    why: str


NEAR_SATURATION_RATIO = 0.5
"""Of what a layout carries at all, at any latency. Below it the analytic TPOT is within 20 % of the twin's in all of 72
cases (docs/reference/plan-against-twin.md); above, where a little more load makes answers much longer, in two of 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Speed of one replica, all its data-parallel ranks, at the workload's concurrency and before queueing.

    Args:
        error_band: how far the numbers may be off either way, as a ratio (0.3: 30 %).
        concurrency: requests in flight on one replica at the asked rate (Little's law), at most what it holds.
        request_rate_per_s: what one replica carries at that concurrency.
        saturated: the asked rate is more than the layout carries, so queues would grow without end.
        capacity_tokens_per_s: output tokens a second of one replica at the highest rate that meets the SLA, or at
            full concurrency where there is none or no rate meets it.
        meets_sla: every latency objective holds at the asked rate; None without objectives.
        load_ratio: the asked rate by what the layout carries at full concurrency, at any latency.
    """

    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    output_tokens_per_s: float
    source: str
    error_band: float
    concurrency: float = 0.0
    request_rate_per_s: float = 0.0
    saturated: bool = False
    capacity_tokens_per_s: float = 0.0
    meets_sla: bool | None = None
    load_ratio: float = 0.0

    @property
    def near_saturation(self) -> bool:
        """Carried, but at a rate where latencies climb steeply and an analytic figure says little."""
        return self.load_ratio > NEAR_SATURATION_RATIO and not self.saturated


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupWarning:
    """Something that start-up or the first hours would bring to light, and the setting that mends it.

    ``code`` is stable and low in number; ``size_bytes`` is what it costs a rank, 0 where it is not about memory.
    """

    code: str
    message: str
    mend: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOption:
    """Another way to run the chosen layout, or another layout, and what it changes.

    Args:
        settings: what to set, in the engine's spelling; empty where the layout itself is the change.
        possible: False where the engine, the model or the memory does not allow it; ``message`` says why.
        device_bytes: change of what a rank takes beside its KV pool; negative frees memory.
        host_bytes: host memory that one replica takes.
        resident_requests: change of the requests of full length that one data-parallel rank holds, None when not
            applicable.
        tpot_s: median time per output token with the option, None when not modelled.
    """

    name: str
    settings: Mapping[str, str | int | float | bool]
    possible: bool
    message: str
    device_bytes: int = 0
    host_bytes: int = 0
    resident_requests: int | None = None
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPlan:
    """One layout judged.

    ``kv_capacity_tokens`` and ``max_concurrency`` are vLLM's start-up figures for the pool of one data-parallel rank
    at full context; ``resident_requests`` is how many decoding requests of that same length the pool holds and
    ``kv_resident_tokens`` their tokens. ``ranks`` counts the ranks of all replicas. ``demand`` is the workload as its
    prefix cache leaves it. ``scheduled_ahead``: vLLM forms a step while the one before it runs, so that a new request
    waits for two.
    """

    layout: Layout
    feasible: Feasible
    reasons: tuple[str, ...]
    short_by_bytes: int
    ranks: tuple[MemoryBudget, ...]
    tightest_rank: int
    cache: CacheLayout
    kv_blocks: int
    kv_capacity_tokens: int
    max_concurrency: float
    kv_resident_tokens: int
    resident_requests: int
    settings: Mapping[str, Setting]
    predicted: Predicted | None
    step_time: RooflineStepTime | None
    warnings: tuple[StartupWarning, ...] = ()
    demand: Demand | None = None
    scheduled_ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every layout considered, best first, with what was assumed."""

    model: ModelSpec
    weights_bytes_total: int
    assumptions: tuple[str, ...]
    layouts: tuple[LayoutPlan, ...]

    @property
    def best(self) -> LayoutPlan | None:
        """The first layout that is not refused, or None."""
        return next((layout for layout in self.layouts if layout.feasible is not False), None)
