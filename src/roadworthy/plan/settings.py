"""Engine settings: what the operator fixed, what the plan chooses, and why; in the engine's own spelling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from roadworthy.catalog.engines import batch_defaults, engine_line, known_lines, sequences_ceiling
from roadworthy.core.errors import Problem, SpecError, Unsupported
from roadworthy.core.units import GIB, format_gib, parse_size
from roadworthy.plan.cache_groups import HYBRID_ALIGNMENT_TOKENS, CacheOptions
from roadworthy.plan.layouts import PARALLEL_SETTINGS, kda_attention, mla_attention
from roadworthy.plan.values import Layout, Setting

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.cache import CacheLayout
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment, RequestProfile, Scalar

UTILISATION_CAREFUL_RATIO, UTILISATION_MAX_RATIO = 0.90, 0.95
"""Tried before and after the engine's own default (`catalog/engines.yaml`); recipes for Hopper go to 0.95."""
BATCHED_TOKENS_LEAST, BATCHED_TOKENS_MIN, WINDOW_BATCHED_TOKENS_MAX = 8192, 1024, 4096
"""The largest budget tried is the engine's default, at least the first (what it takes on GPUs of 80 GB), then half of
it and so on down to the second. Where start-up charges each request the tokens in flight (DeepSeek-V4), a larger budget
than the third admits fewer requests."""
CPU_POOL_BYTES = GIB
SEQUENCES_FIRST = 256
"""``max_num_seqs`` that memory is first judged with, before the workload says how many."""
ROOM_RATIO, PIPELINE_ROOM_RATIO = 1.5, 2.0
"""``max_num_seqs`` against the mean in flight. A twin of TP8 PP4 with 1.3 of room builds up a queue, with 2 none."""
PIECES_ROOM_MAX = 1.3
"""More of it where prompts take several steps each, which come in bursts and hold up everyone: prompts of 2.7 steps
queue in a twin of TP8 PP4 with 2.5 of room and do not with 3.3."""
CONTEXT_STEP_TOKENS, CONTEXT_MIN_TOKENS = 1024, 4096
FIXED = "fixed in the document: engine.settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What the document fixes; None is left to the plan."""

    utilisation_ratio: float | None = None
    utilisation_ratios: tuple[float, ...] = (UTILISATION_CAREFUL_RATIO, UTILISATION_MAX_RATIO)
    max_model_len_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_pool_bytes: int | None = None
    cache: CacheOptions = field(default_factory=CacheOptions)
    cuda_graphs: bool = True
    scratch_capped: bool = True
    others: Mapping[str, Scalar] | None = None


_KNOWN = frozenset(
    {
        "gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes",
        "block_size", "kv_cache_dtype", "enable_prefix_caching", "mamba_ssm_cache_dtype", "enforce_eager",
    }
)  # fmt: skip


def fixed_settings(deployment: Deployment, model: ModelSpec, gpu: Gpu) -> Fixed:
    """The operator's settings, typed. Raises SpecError naming every one that cannot be."""
    reader = _Reader(deployment.engine.settings)
    length = _context(reader, deployment, model)
    older = _older_than_032(deployment.engine.version)
    kv_dtype = reader.choice("kv_cache_dtype", ("auto", "fp8", "bfloat16"), "auto")
    fixed = Fixed(
        utilisation_ratio=reader.ratio("gpu_memory_utilization"),
        utilisation_ratios=_utilisation_ratios(deployment.engine.version),
        max_model_len_tokens=length,
        max_num_seqs=reader.count("max_num_seqs", 65_536),
        max_num_batched_tokens=reader.count("max_num_batched_tokens", 2**20),
        kv_pool_bytes=reader.size("kv_cache_memory_bytes"),
        cache=CacheOptions(
            kv_dtype=kv_dtype,  # type: ignore[arg-type]
            prefix_caching=reader.flag("enable_prefix_caching", default=True),
            state_dtype=reader.choice("mamba_ssm_cache_dtype", ("auto", "float32", "bfloat16"), "auto"),  # type: ignore[arg-type]
            block_tokens=reader.count("block_size", 65_536),
            on_cpu=gpu.id == "cpu",
            alignment_tokens=16 if older else HYBRID_ALIGNMENT_TOKENS,
        ),
        cuda_graphs=not reader.flag("enforce_eager", default=False),
        scratch_capped=not older,
        others={
            name: value
            for name, value in deployment.engine.settings.items()
            if name not in _KNOWN and name not in PARALLEL_SETTINGS
        },
    )
    reader.check(deployment.name)
    if gpu.id == "cpu" and fixed.kv_pool_bytes is None:
        fixed = replace(fixed, kv_pool_bytes=CPU_POOL_BYTES)
    return fixed


def _utilisation_ratios(version: str) -> tuple[float, ...]:
    """In the order in which they are tried; the default of an engine that is not known is its newest line's."""
    try:
        line = engine_line(version)
    except Unsupported:
        line = known_lines()[0]
    return tuple(sorted({UTILISATION_CAREFUL_RATIO, line.gpu_memory_utilization, UTILISATION_MAX_RATIO}))


def _older_than_032(version: str) -> bool:
    """Memory rules changed between 0.26, which was measured, and 0.32; what lies between is planned as the older."""
    parts = version.split(".")
    return len(parts) > 1 and parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 32


def _context(reader: _Reader, deployment: Deployment, model: ModelSpec) -> int | None:
    asked, named = deployment.model.max_model_len_tokens, reader.count("max_model_len", 2**31)
    if asked is not None and named is not None and asked != named:
        reader.problems.append(
            Problem(
                path="engine.settings.max_model_len", seen=str(named), wanted=f"{asked}, as model.max_model_len says",
                hint="keep one of the two",
            )
        )  # fmt: skip
    length = named if asked is None else asked
    if length is not None and length > model.max_context_tokens:
        where = "engine.settings.max_model_len" if asked is None else "model.max_model_len"
        reader.problems.append(
            Problem(
                path=where, seen=f"{length:,}", wanted=f"at most {model.max_context_tokens:,}, what {model.id} knows"
            )
        )  # fmt: skip
    return length


class _Reader:
    def __init__(self, settings: Mapping[str, Scalar]) -> None:
        self._settings = settings
        self.problems: list[Problem] = []

    def _complain(self, name: str, wanted: str) -> None:
        self.problems.append(Problem(path=f"engine.settings.{name}", seen=repr(self._settings[name]), wanted=wanted))

    def count(self, name: str, most: int) -> int | None:
        value = self._settings.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self._complain(name, f"a whole number from 1 to {most}")
            return None
        return value

    def ratio(self, name: str) -> float | None:
        value = self._settings.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            self._complain(name, "a share above 0 and at most 1, such as 0.9")
            return None
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._settings.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._complain(name, "true or false")
            return default
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self._settings.get(name)
        if value is None:
            return default
        if value == "fp8_e4m3" and "fp8" in choices:  # vLLM's long name of the same format
            return "fp8"
        if value not in choices:
            self._complain(name, "one of " + ", ".join(choices))
            return default
        return str(value)

    def size(self, name: str) -> int | None:
        value = self._settings.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return parse_size(value)
            except ValueError as error:
                self._complain(name, str(error))
                return None
        return self.count(name, 2**60)

    def check(self, name: str) -> None:
        if self.problems:
            raise SpecError(f"{name}: engine settings cannot be as written", problems=tuple(self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """A full choice of the settings that memory depends on."""

    utilisation_ratio: float
    max_model_len_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    fixed: Fixed

    @property
    def kv_pool_bytes(self) -> int | None:
        return self.fixed.kv_pool_bytes


def context_tokens(fixed: Fixed, profile: RequestProfile, model: ModelSpec) -> int:
    """The operator's context length, or one that holds the workload's 99th percentile first prompt and answer.

    Raises SpecError when not even a median prompt fits.
    """
    length = fixed.max_model_len_tokens
    if length is None:
        wanted = profile.prompt_tokens.p99 + profile.output_tokens.p99
        rounded = CONTEXT_STEP_TOKENS * math.ceil(wanted / CONTEXT_STEP_TOKENS)
        length = min(model.max_context_tokens, max(CONTEXT_MIN_TOKENS, rounded))
    if profile.prompt_tokens.p50 >= length:
        problem = Problem(
            path="workload.prompt_tokens.p50",
            seen=f"{profile.prompt_tokens.p50:,}",
            wanted=f"less than the context of {length:,} tokens: the engine would refuse every second request",
            hint=f"raise model.max_model_len (the model knows {model.max_context_tokens:,}) or shorten the prompts",
        )
        raise SpecError("the workload does not fit the context", problems=(problem,))
    return length


def choices(fixed: Fixed, model: ModelSpec, gpu: Gpu, *, max_model_len_tokens: int) -> tuple[Knobs, ...]:
    """Settings to try, best first: the full token budget and the careful utilisation before their alternatives."""
    ratios = fixed.utilisation_ratios if fixed.utilisation_ratio is None else (fixed.utilisation_ratio,)
    budgets = _budgets(model, gpu) if fixed.max_num_batched_tokens is None else (fixed.max_num_batched_tokens,)
    return tuple(
        Knobs(
            utilisation_ratio=ratio,
            max_model_len_tokens=max_model_len_tokens,
            max_num_seqs=fixed.max_num_seqs or SEQUENCES_FIRST,
            max_num_batched_tokens=budget,
            fixed=fixed,
        )
        for ratio in ratios
        for budget in budgets
    )


def _budgets(model: ModelSpec, gpu: Gpu) -> tuple[int, ...]:
    default = batch_defaults(gpu).max_num_batched_tokens
    if gpu.id == "cpu":
        return (default,)
    budget = WINDOW_BATCHED_TOKENS_MAX if model.family == "deepseek_v4" else max(default, BATCHED_TOKENS_LEAST)
    budgets = []
    while budget >= BATCHED_TOKENS_MIN:
        budgets.append(budget)
        budget //= 2
    return tuple(budgets)


def room_ratio(*, stages: int, pieces: float = 1.0) -> float:
    """``max_num_seqs`` over the mean in flight, for prompts computed in so many steps on average."""
    return ROOM_RATIO if stages == 1 else PIPELINE_ROOM_RATIO + min(PIECES_ROOM_MAX, pieces - 1)


def sequences(concurrency: float, holds: int, *, stages: int = 1, pieces: float = 1.0) -> int:
    """``max_num_seqs`` for a mean of ``concurrency`` in flight: room for arrivals that come together.

    At least :data:`ROOM_RATIO` of the mean, with a pipeline :data:`PIPELINE_ROOM_RATIO` (prompts that come while one
    holds it up meet and hold it up longer, which keeps more requests in flight) or more, and three deviations; rounded
    up to a size that CUDA graphs are captured for, at most what the pool ``holds``.
    """
    room = room_ratio(stages=stages, pieces=pieces)
    wanted = max(room * concurrency, concurrency + 3 * math.sqrt(concurrency))
    size = 8 if wanted <= 256 else 16
    return max(1, min(max(size * math.ceil(wanted / size), 8), holds, sequences_ceiling()))


def settings_of(
    knobs: Knobs, model: ModelSpec, layout: Layout, cache: CacheLayout, gpu: Gpu, *, concurrency: float, holds: int,
    pieces: float = 1.0,
) -> Mapping[str, Setting]:  # fmt: skip
    """Every setting with its reason. None leaves it to the engine."""
    fixed = knobs.fixed
    settings = {
        "gpu_memory_utilization": _utilisation(knobs, gpu),
        "max_model_len": Setting(value=knobs.max_model_len_tokens, why=_context_why(knobs, model)),
        "max_num_seqs": Setting(
            value=knobs.max_num_seqs,
            why=FIXED if fixed.max_num_seqs is not None else _sequences_why(layout, concurrency, holds, pieces),
        ),
        "max_num_batched_tokens": Setting(
            value=knobs.max_num_batched_tokens,
            why=FIXED if fixed.max_num_batched_tokens is not None else _batched_why(model, layout, gpu),
        ),
        "block_size": _block_size(model, cache, fixed, gpu),
        "kv_cache_dtype": _kv_dtype(model, fixed),
        "enable_prefix_caching": Setting(
            value=fixed.cache.prefix_caching,
            why="turns of a conversation and system prompts share their prefix"
            if fixed.cache.prefix_caching
            else FIXED,
        ),
    }
    if fixed.kv_pool_bytes is not None:
        settings["kv_cache_memory_bytes"] = Setting(
            value=fixed.kv_pool_bytes,
            why=f"the pool on a CPU is what is set here: {format_gib(fixed.kv_pool_bytes)}"
            if gpu.id == "cpu"
            else FIXED,
        )
    if kda_attention(model) is not None:
        settings["mamba_ssm_cache_dtype"] = Setting(
            value=fixed.cache.state_dtype, why="float32 recurrent state, as the model was trained; bfloat16 halves it"
        )
    if not fixed.cuda_graphs:
        settings["enforce_eager"] = Setting(value=True, why=FIXED)
    settings.update({name: Setting(value=value, why=FIXED) for name, value in (fixed.others or {}).items()})
    return settings


def _sequences_why(layout: Layout, concurrency: float, holds: int, pieces: float) -> str:
    room = "half as many again"
    if layout.pp > 1:
        ratio = room_ratio(stages=layout.pp, pieces=pieces)
        many = "twice" if ratio < 2.05 else f"{ratio:.1f} times"
        room = f"{many} as many, because prompts that meet slow all batches of a pipeline and a limit would queue"
    return (
        f"about {concurrency:.0f} requests in flight by Little's law; room for {room}, up to a captured graph size; "
        f"the pool holds {holds:,} of the workload's mean length; each also costs logits and graph memory"
    )


def _utilisation(knobs: Knobs, gpu: Gpu) -> Setting:
    if gpu.id == "cpu":
        return Setting(value=None, why="not used: the pool on a CPU is set by kv_cache_memory_bytes")
    if knobs.fixed.utilisation_ratio is not None:
        return Setting(value=knobs.utilisation_ratio, why=FIXED)
    outside = format_gib(gpu.device_bytes * (1 - knobs.utilisation_ratio), 1)
    if knobs.utilisation_ratio == UTILISATION_CAREFUL_RATIO:
        why = f"leaves {outside} for context, NCCL and kernel workspaces that start-up does not see"
    else:
        why = f"the model needs the room; only {outside} stay for context, NCCL and unseen workspaces"
    return Setting(value=knobs.utilisation_ratio, why=why)


def _context_why(knobs: Knobs, model: ModelSpec) -> str:
    if knobs.fixed.max_model_len_tokens is not None:
        return f"as the document says; the model knows {model.max_context_tokens:,}"
    return "holds the workload's 99th percentile prompt and answer"


def _batched_why(model: ModelSpec, layout: Layout, gpu: Gpu) -> str:
    if gpu.id == "cpu":
        return "keeps one step short on a CPU"
    if model.family == "deepseek_v4":
        return (
            f"start-up charges each request {layout.pp + 1} batches of these tokens for its windows and states, so a "
            "smaller budget admits more requests and shortens the steps that decoding waits for"
        )
    default = batch_defaults(gpu).max_num_batched_tokens
    if default < BATCHED_TOKENS_LEAST:
        return (
            f"a prompt takes fewer steps than with vLLM's default of {default:,} on this GPU; smaller where the pool "
            "would not hold a request"
        )
    return "vLLM's default for serving; smaller where the pool would not hold a request"


def _block_size(model: ModelSpec, cache: CacheLayout, fixed: Fixed, gpu: Gpu) -> Setting:
    if kda_attention(model) is not None:
        return Setting(
            value=None, why=f"the engine sets {cache.block_tokens} tokens so that state and latent pages are equal"
        )
    if fixed.cache.block_tokens is not None and model.family != "deepseek_v4":
        return Setting(value=fixed.cache.block_tokens, why=FIXED)
    if model.family == "deepseek_v4":
        return Setting(value=cache.block_tokens, why="the block of V4's compressed pages")
    if mla_attention(model) is not None:
        return Setting(value=None, why=f"the attention backend chooses; {cache.block_tokens} tokens assumed")
    return Setting(value=cache.block_tokens, why=f"the engine's default on {'a CPU' if gpu.id == 'cpu' else 'GPUs'}")


def _kv_dtype(model: ModelSpec, fixed: Fixed) -> Setting:
    if model.family == "deepseek_v4" and fixed.cache.kv_dtype == "auto":
        return Setting(value="fp8", why="V4's kernels on Hopper know only the FP8 cache")
    if fixed.cache.kv_dtype != "auto":
        return Setting(value=fixed.cache.kv_dtype, why=FIXED)
    return Setting(value="auto", why="BF16, exact; fp8 would halve the cache and is yours to judge")
