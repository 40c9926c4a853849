#!/usr/bin/env python3
"""Our decode times beside aiconfigurator-core's, and both beside what was measured on H200.

    second_opinion.py ask     ask the package (extra `perf`), keep its answers in tests/data/second_opinion.json
    second_opinion.py         compute ours anew beside the kept answers and print the comparison
    second_opinion.py write   the same, into docs/reference/second-opinion.md

Three comparisons. Estimates against each other, over models and layouts without stages. Both against vLLM on one H200
(tests/data/gpu_measured_2026_11.json). And our time of a layer's routed experts against the kernel times that the
wheel ships (Apache-2.0, NVIDIA; vLLM 0.24 on H200), none of which our constants were fitted to.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.cache_groups import CacheOptions
from roadworthy.plan.expert_load import expert_load
from roadworthy.plan.operating import operating_point
from roadworthy.plan.speed import CALIBRATIONS, HBM_ACHIEVED_RATIO, Traffic, step_time_of
from roadworthy.plan.timing import RooflineStepTime
from roadworthy.plan.values import Layout
from roadworthy.plan.workload import Demand
from roadworthy.spec.values import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "tests" / "data" / "second_opinion.json", ROOT / "docs" / "reference" / "second-opinion.md"
MEASURED = ROOT / "tests" / "data" / "gpu_measured_2026_11.json"

# model, weights, GPU, hosts, tp, dp, ep, sequences a rank, prompt, answer
CASES: tuple[tuple[str, str, str, int, int, int, int, int, int, int], ...] = (
    *(("Llama-3.1-8B", "native", "H200", 1, 1, 1, 1, batch, 1024, 128) for batch in (1, 8, 32, 64, 128)),
    *(("Llama-3.1-70B", "native", "H100", 1, 8, 1, 1, batch, 1000, 200) for batch in (1, 16, 64, 128)),
    *(("Qwen3-235B-A22B", "native", "H200", 1, 8, 1, ep, batch, 1000, 200) for ep in (1, 8) for batch in (1, 16, 64)),
    *(("DeepSeek-V3", "native", "H200", 1, 8, 1, ep, batch, 1000, 200) for ep in (1, 8) for batch in (1, 16, 64, 128)),
    *(("DeepSeek-V3", "native", "H200", 1, 1, 8, 8, batch, 1000, 200) for batch in (4, 16)),
    *(("DeepSeek-V4-Pro", "fp8", "H200", 2, 8, 2, 16, batch, 1000, 200) for batch in (4, 16, 64)),
    ("DeepSeek-V4-Pro", "native", "H200", 1, 8, 1, 1, 16, 1000, 200),
    ("DeepSeek-V4-Pro", "native", "H100", 4, 8, 4, 32, 16, 238, 197),
    *(("DeepSeek-V4-Pro", "native", "B200", 1, 8, 1, 1, batch, 1000, 200) for batch in (1, 16, 32)),
    *(("Kimi-K3", "native", "H200", 4, 8, 4, 32, batch, 1000, 200) for batch in (1, 4, 16)),
    *(("gpt-oss-120b", "native", "H100", 1, 2, 1, 1, batch, 1000, 200) for batch in (1, 16, 64)),
)
# model, hidden or latent width, inner width, experts a token, experts, their name of the format, ranks
KERNELS = (
    ("Qwen3-30B-A3B", 2048, 768, 8, 128, "bfloat16", (1, 8)),
    ("Qwen3-235B-A22B", 4096, 1536, 8, 128, "bfloat16", (1, 8, 32)),
    ("DeepSeek-V3", 7168, 2048, 8, 256, "fp8_block", (1, 8, 32)),
    ("Kimi-K3", 3584, 3072, 16, 896, "w4a16_mxfp4", (8, 32)),
)
KERNEL_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16_384)
KERNEL_BYTES = {"bfloat16": 2.0, "fp8_block": 1.0, "w4a16_mxfp4": 17 / 32}
FAMILY = {"Qwen3-30B-A3B": "qwen3_moe", "Qwen3-235B-A22B": "qwen3_moe", "DeepSeek-V3": "deepseek_v3",
    "Kimi-K3": "kimi_k3"}  # fmt: skip


def layout_of(model: Any, tp: int, dp: int, ep: int) -> Layout:
    return Layout(tp=tp, pp=1, dp=dp, ep=ep, stage_layers=(model.num_layers,))


def ask() -> dict[str, Any]:
    """The package's answers for every case, its kernel times, and its decode times for the measured rows."""
    from roadworthy.adapters.second_opinion import TABLES, VERSION, SecondOpinion

    answers = []
    for name, weights, gpu, hosts, tp, dp, ep, sequences, prompt, answer in CASES:
        model = model_by_id(name, weights=weights)  # type: ignore[arg-type]
        opinion = SecondOpinion(model, gpu_by_name(gpu), weights=weights).tpot(  # type: ignore[arg-type]
            layout_of(model, tp, dp, ep), sequences=sequences, prompt_tokens=prompt, output_tokens=answer,
            batched_tokens=8192,
        )  # fmt: skip
        answers.append(
            {"model": name, "weights": weights, "gpu": gpu, "hosts": hosts, "tp": tp, "dp": dp, "ep": ep,
             "sequences": sequences, "prompt_tokens": prompt, "output_tokens": answer, "tpot_s": opinion.tpot_s,
             "refused": opinion.refused}
        )  # fmt: skip
    return {
        "source": f"aiconfigurator-core {VERSION}, vLLM {TABLES} tables, Apache-2.0, NVIDIA",
        "tpot": answers, "measured": measured_rows(), "experts": kernel_rows(),
    }  # fmt: skip


def measured_rows() -> list[dict[str, Any]]:
    """Decode steps of Llama-3.1-8B that vLLM 0.26 took on one H200, with the package's step at the same batch."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    engine = EngineHandle.compile("meta-llama/Meta-Llama-3.1-8B", "h200_sxm", "vllm", backend_version="0.24.0")
    rows = json.loads(MEASURED.read_text())["rows"]
    runs = next(row for row in rows if row["case"] == "llama8b-tp1")["runs"]
    return [
        {"batch": run["batch"], "prompt_tokens": run["in"], "measured_s": run["tpot_ms"] / 1e3,
         "theirs_s": engine.decode_step_latency(run["batch"], run["in"], 128) / 1e3}
        for run in runs if run.get("tpot_ms")
    ]  # fmt: skip


def kernel_rows() -> list[dict[str, Any]]:
    """Measured milliseconds of one layer's routed experts on one H200, from the wheel's table."""
    import aiconfigurator_core
    import pandas

    folder = Path(aiconfigurator_core.__file__).parent / "systems" / "data" / "h200_sxm" / "moe" / "vllm" / "0.24.0"
    table = pandas.read_parquet(folder / "moe_perf.parquet")
    rows = []
    for name, width, inner, per_token, experts, form, ranks in KERNELS:
        shape = table[
            (table.hidden_size == width) & (table.inter_size == inner) & (table.topk == per_token)
            & (table.num_experts == experts) & (table.moe_dtype == form) & (table.moe_tp_size == 1)
            & table.moe_ep_size.isin(ranks) & table.num_tokens.isin(KERNEL_TOKENS)
        ]  # fmt: skip
        best = shape.groupby(["moe_ep_size", "num_tokens", "distribution"]).latency.min().reset_index()
        for (ep, tokens), group in best.groupby(["moe_ep_size", "num_tokens"]):
            times = dict(zip(group.distribution, group.latency, strict=True))
            skewed = [times[key] for key in times if key.startswith("power_law")]
            if "balanced" in times and skewed:
                rows.append(
                    {"model": name, "ranks": int(ep), "tokens": int(tokens), "balanced_s": times["balanced"] / 1e3,
                     "skewed_s": statistics.mean(skewed) / 1e3}
                )  # fmt: skip
    return rows


def ours_s(row: dict[str, Any]) -> float:
    """Our time per output token with the row's requests always in flight, experts as popular as we assume."""
    model = model_by_id(row["model"], weights=row["weights"])
    cluster = ClusterSpec(nodes=row["hosts"], gpus_per_node=8, gpu=row["gpu"])
    prompt, output = row["prompt_tokens"], row["output_tokens"]
    demand = Demand(
        rate_per_s=1.0, prompt_mean=prompt, prompt_p50=prompt, prompt_p99=prompt, output_mean=output, output_p99=output
    )
    step = step_time_of(
        model, layout_of(model, row["tp"], row["dp"], row["ep"]), cluster, gpu_by_name(row["gpu"]),
        cache=CacheOptions(), traffic=Traffic(context_tokens=demand.context_mean, expert_skew=0.5),
    )  # fmt: skip
    return operating_point(step, demand, concurrency=row["sequences"], max_num_batched_tokens=8192).tpot_p50_s


def experts_s(row: dict[str, Any], skew: float) -> float:
    """Our time of a layer's routed experts: reading against computing, as in a step, nothing else."""
    name, width, inner, per_token, experts, form, _ = next(entry for entry in KERNELS if entry[0] == row["model"])
    gpu, calibration = gpu_by_name("H200"), CALIBRATIONS[FAMILY[name]]
    load = expert_load(experts=experts, per_token=per_token, ranks=row["ranks"], skew=skew)
    flops = gpu.dense_flops_per_s["fp8" if form == "fp8_block" else "bf16"]
    local = experts / row["ranks"] * 3 * width * inner
    step = RooflineStepTime(
        pipeline_stages=1, launch_s=0.0, fixed_weight_bytes=0.0, expert_weight_bytes=local * KERNEL_BYTES[form],
        expert_pick_ratio=per_token / experts, kv_bytes_per_context_token=0.0, state_bytes_per_sequence=0.0,
        flops_per_token=0.0, routed_flops_per_token=2 * local * per_token / experts, flops_per_context_pair=0.0,
        hbm_bytes_per_s=gpu.hbm_bytes_per_s * HBM_ACHIEVED_RATIO, flops_per_s=flops * calibration.compute_ratio,
        comm_bytes_per_token=0.0, link_bytes_per_s=1.0, comm_latency_s=0.0,
        unhidden_ratio=calibration.unhidden_ratio, expert_floor=load.floor, expert_spread=load.spread,
        expert_excess_ratio=load.excess_ratio, expert_noise=load.noise, expert_read_noise=load.read_noise,
    )  # fmt: skip
    return step.seconds(row["tokens"], 0, 0, 0)


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (names, ("---",) * len(names), *rows)]


def estimates(data: dict[str, Any]) -> list[str]:
    """The package's answers beside ours, refusals in its words."""
    rows, ratios = [], []
    for row in data["tpot"]:
        model, ours = model_by_id(row["model"]), ours_s(row)
        layout = f"{row['gpu']}, {layout_of(model, row['tp'], row['dp'], row['ep']).label}"
        cells = [row["model"], row["weights"], layout, str(row["sequences"]), f"{ours * 1e3:.1f}"]
        if row["tpot_s"] is None:
            rows.append((*cells, "refused", row["refused"]))
        else:
            ratios.append(row["tpot_s"] / ours)
            rows.append((*cells, f"{row['tpot_s'] * 1e3:.1f}", f"{ratios[-1]:.2f}"))
    return [
        "## Estimate against estimate", "",
        f"The same number of requests always in flight, prompts of a steady load included. {len(ratios)} cases, of "
        f"which {sum(0.67 <= ratio <= 1.5 for ratio in ratios)} within a factor of 1.5; the ratio of theirs to ours is "
        f"{statistics.median(ratios):.2f} in the median, {min(ratios):.2f} to {max(ratios):.2f}.", "",
        *table(("model", "weights", "layout", "sequences a rank", "ours, ms", "theirs, ms", "theirs / ours"), rows), "",
    ]  # fmt: skip


def against_measured(data: dict[str, Any]) -> list[str]:
    """Decode steps of vLLM on one H200, and how far each estimate is off."""
    step = step_time_of(
        model_by_id("Llama-3.1-8B"), layout_of(model_by_id("Llama-3.1-8B"), 1, 1, 1),
        ClusterSpec(gpus_per_node=1, gpu="H200"), gpu_by_name("H200"), cache=CacheOptions(),
        traffic=Traffic(context_tokens=1000),
    )  # fmt: skip
    rows, ours_off, theirs_off = [], [], []
    for row in data["measured"]:
        ours, seen = step.seconds(0, 0, row["batch"], row["batch"] * (row["prompt_tokens"] + 32)), row["measured_s"]
        ours_off.append(ours / seen - 1)
        theirs_off.append(row["theirs_s"] / seen - 1)
        rows.append(
            (f"{row['batch']} x {row['prompt_tokens']:,}", f"{seen * 1e3:.2f}", f"{ours * 1e3:.2f}",
             f"{ours_off[-1]:+.0%}", f"{row['theirs_s'] * 1e3:.2f}", f"{theirs_off[-1]:+.0%}")
        )  # fmt: skip
    return [
        "## Both against vLLM on one H200", "",
        f"Llama-3.1-8B, vLLM 0.26, decode steps ([rows](gpu-measurements.md)). Median error: ours "
        f"{statistics.median(map(abs, ours_off)):.0%} (two thirds of these rows are in our fit), theirs "
        f"{statistics.median(map(abs, theirs_off)):.0%} (none is).", "",
        *table(("batch x prompt", "measured, ms", "ours", "error", "theirs", "error"), rows), "",
    ]  # fmt: skip


def against_kernels(data: dict[str, Any]) -> list[str]:
    """Our time of a layer's routed experts against the wheel's kernel times."""
    rows = []
    off: dict[str, list[float]] = {"one": [], "few": [], "many": []}
    for row in data["experts"]:
        even, uneven = experts_s(row, 0.0), experts_s(row, 0.5)
        kind = "one" if row["ranks"] == 1 else "few" if row["tokens"] <= 256 else "many"
        off[kind].append(abs(uneven / row["skewed_s"] - 1))
        rows.append(
            (row["model"], f"EP{row['ranks']}", f"{row['tokens']:,}", f"{row['balanced_s'] * 1e3:.3f}",
             f"{even * 1e3:.3f}", f"{even / row['balanced_s'] - 1:+.0%}", f"{row['skewed_s'] * 1e3:.3f}",
             f"{uneven * 1e3:.3f}", f"{uneven / row['skewed_s'] - 1:+.0%}")
        )  # fmt: skip
    medians = {kind: f"{statistics.median(errors):.0%}" for kind, errors in off.items()}
    return [
        "## Routed experts of one layer, against kernel times in the wheel", "",
        "None of these was used for our constants. `even` is their balanced routing against ours without skew, "
        "`uneven` the mean of their two power laws against our skew of 0.5. Their balanced routing picks as many "
        "distinct experts as it can, which chance does not: at 16 tokens up to twice what uneven traffic reads.", "",
        f"- All experts on one GPU: median error {medians['one']}. The share of experts that a batch reads is right.",
        f"- Expert parallelism, up to 256 tokens: median error {medians['few']}, ours less. A rank's share is then so "
        "small that the kernel's own cost, which we count per layer and not here, is most of it.",
        f"- Expert parallelism, more tokens: median error {medians['many']}, ours less. Their kernels take nearly as "
        "long with an eighth of the experts as with all, and longer when the load is even than when it is not: the "
        "table seems to count work on tokens of other ranks. No whole step of vLLM was measured to tell: until one is, "
        "take our prefill times with expert parallelism as the lower end.", "",
        *table(("model", "ranks", "tokens", "even, ms", "ours", "error", "uneven, ms", "ours", "error"), rows), "",
    ]  # fmt: skip


def page(data: dict[str, Any]) -> str:
    """The whole comparison; ours is computed anew."""
    head = [
        "# A second opinion on decode speed", "",
        "Written by `scripts/second_opinion.py write`; do not edit. `roadworthy plan --second-opinion` asks for the "
        "same on your document.", "",
        f"Theirs: {data['source']}. It adds up kernel times that NVIDIA measured; ours is a roofline fitted to whole "
        "steps of vLLM on one H200. Only its time per output token is used: its memory, time to first token and "
        "pipelines are not (it assumes that layers divide evenly over stages).", "",
    ]  # fmt: skip
    return "\n".join([*head, *estimates(data), *against_measured(data), *against_kernels(data)])


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted == "ask":
        DATA.write_text(json.dumps(ask(), indent=1) + "\n", encoding="utf-8")
        return 0
    text = page(json.loads(DATA.read_text(encoding="utf-8")))
    if wanted == "write":
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
