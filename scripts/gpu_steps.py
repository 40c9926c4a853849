#!/usr/bin/env python3
"""Single steps of a real vLLM under live load on an H200 against the step model, by the GPU's clock.

    gpu_steps.py [--write]

Reads tests/data/gpu_steps_2026_12.json, which `scripts/measure-live-gpu.py` measured: for each iteration what it
computed, what the GPU took and at which clock. ``--write`` renews docs/reference/gpu-steps.md. Nothing is fitted here
but the exponent with which times follow the clock. Needs neither a GPU nor the network.
"""

from __future__ import annotations

import argparse
import bisect
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from twin_against_gpu import config_of

from roadworthy.plan.timing import StepLoad

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data" / "gpu_steps_2026_12.json"
PAGE = ROOT / "docs" / "reference" / "gpu-steps.md"
PROMPT_TOKENS, DECODE_CONTEXT_TOKENS = 238, 360
"""Means of these loads; a step attends over half of its prompts' own length on average."""
HIGHEST_MHZ, PAUSE_CYCLES = 1980, 79_200_000
FULL_DECODING, FULL_PROMPT_TOKENS = 500, (500, 700)
DECODING = ((1, 64), (64, 128), (128, 256), (256, 384), (384, 513))
GRAPH_TOKENS = 512
FEW = 30
NAMES = {
    "llama8b-steps": "as served",
    "llama8b-steps-graphs": "graphs to 1,024 tokens",
    "llama8b-steps-paused": "paused before each step",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One iteration: what it computed, the GPU's time and clock, how long the core waited, and what the model says."""

    run: str
    prompt_tokens: int
    decoding: int
    gpu_ms: float
    period_ms: float
    waited_ms: float
    clock_mhz: float
    model_ms: float

    @property
    def ratio(self) -> float:
        return self.gpu_ms / self.model_ms

    @property
    def full(self) -> bool:
        least, most = FULL_PROMPT_TOKENS
        return self.decoding >= FULL_DECODING and least <= self.prompt_tokens <= most


def steps_of(data: dict[str, Any]) -> list[Step]:
    """All iterations that computed something, but for those of one user alone."""
    found = []
    known: dict[tuple[int, int], float] = {}
    step_time = config_of({"model": "meta-llama/Llama-3.1-8B", **data["cases"][0]}).step_time
    for case in data["cases"]:
        for step in case["steps"]:
            if step["step"] == "alone":
                continue
            moments = [row[0] for row in step["clocks"]]
            for row in step["iterations"]:
                one = dict(zip(case["iteration_columns"], row, strict=True))
                load = prompt, decoding = one["context_tokens"], one["decoding"]
                if load not in known:
                    known[load] = 1e3 * step_time.step_s(
                        StepLoad(
                            prefill_tokens=prompt,
                            prefill_context_tokens=prompt * PROMPT_TOKENS // 2,
                            decode_sequences=decoding,
                            decode_context_tokens=decoding * DECODE_CONTEXT_TOKENS,
                        )
                    )
                clock = step["clocks"][min(len(moments) - 1, bisect.bisect(moments, one["t_s"]))][1]
                if case["pause_ms"] and case["pause_ms"] - 1 < one["gpu_gap_ms"] < 1.25 * case["pause_ms"]:
                    clock = PAUSE_CYCLES / one["gpu_gap_ms"] / 1e3  # the GPU counted so many of its cycles
                found.append(
                    Step(
                        run=f"{NAMES[case['case']]}, {step['step'].removeprefix('chats-')}/s",
                        prompt_tokens=prompt,
                        decoding=decoding,
                        gpu_ms=one["gpu_ms"],
                        period_ms=one["period_ms"],
                        waited_ms=one["waited_ms"],
                        clock_mhz=clock,
                        model_ms=known[load],
                    )
                )
    return found


def exponent(steps: Sequence[Step]) -> tuple[float, float]:
    """``ratio = at_highest * (clock / highest) ** exponent`` by least squares of logarithms: exponent, at_highest."""
    clocks = [math.log(step.clock_mhz / HIGHEST_MHZ) for step in steps]
    ratios = [math.log(step.ratio) for step in steps]
    clock, ratio = sum(clocks) / len(clocks), sum(ratios) / len(ratios)
    slope = sum((c - clock) * (r - ratio) for c, r in zip(clocks, ratios, strict=True)) / sum(
        (c - clock) ** 2 for c in clocks
    )
    return slope, math.exp(ratio - slope * clock)


def full_rows(steps: Iterable[Step]) -> list[tuple[str, ...]]:
    """Steps of a full engine with a prompt or two, by run."""
    runs: dict[str, list[Step]] = {}
    for step in steps:
        if step.full:
            runs.setdefault(step.run, []).append(step)
    return [
        (
            run,
            f"{len(of):,}",
            f"{median(step.clock_mhz for step in of):,.0f}",
            f"{median(step.gpu_ms for step in of):.1f}",
            f"{median(step.model_ms for step in of):.1f}",
            f"{median(step.ratio for step in of):.2f}",
            f"{median(step.waited_ms for step in of):.1f}",
        )
        for run, of in runs.items()
        if len(of) >= FEW
    ]


def kind_rows(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """Kinds of steps for which the host was not the slower side: ratio, and how it follows the clock."""
    waited = [step for step in steps if step.waited_ms > 2]
    prompts = [step for step in waited if step.prompt_tokens]
    rows = []
    for least, beyond in DECODING:
        for name, chosen in (
            ("decode only", [one for one in waited if not one.prompt_tokens]),
            ("with a prompt, from a graph", [one for one in prompts if _tokens(one) <= GRAPH_TOKENS]),
            ("with a prompt, without", [one for one in prompts if _tokens(one) > GRAPH_TOKENS]),
        ):
            of = [one for one in chosen if least <= one.decoding < beyond]
            if len(of) < FEW:
                continue
            slope, highest = exponent(of)
            spread = sorted(one.clock_mhz for one in of)
            low, high = spread[len(of) // 10], spread[len(of) * 9 // 10]
            rows.append(
                (
                    name, f"{least} to {beyond - 1}", f"{len(of):,}", f"{low:,.0f} to {high:,.0f}",
                    f"{median(one.ratio for one in of):.2f}", f"{highest:.2f}",
                    f"{slope:+.2f}" if high / low > 1.05 else "",
                )
            )  # fmt: skip
    return rows


def _tokens(step: Step) -> int:
    return step.prompt_tokens + step.decoding


def clock_rows(data: dict[str, Any]) -> list[tuple[str, ...]]:
    """Clock and power of each run, its first five seconds left out."""
    return [
        (
            f"{NAMES[case['case']]}, {step['step'].removeprefix('chats-')}",
            f"{median(row[1] for row in later):,.0f}",
            f"{median(row[3] for row in later):,.0f}",
            f"{step['output_tokens_per_s']:,.0f}",
        )
        for case in data["cases"]
        for step in case["steps"]
        if (later := [row for row in step["clocks"] if row[0] > 5])
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *rows))


def page(data: dict[str, Any]) -> str:
    steps = steps_of(data)
    parts = [
        "# Steps on a GPU under load",
        "Single steps of vLLM 0.26 with Llama-3.1-8B on one H200, under chats, against the plan's step model. Written "
        "by `scripts/gpu_steps.py --write`; do not edit.",
        "Under sustained load of this kind the GPU stands at its power limit (700 W) and lowers its clock. Steps that "
        "compute much take longer then, those that read much do not, and the step model, whose constants come from "
        "short runs, knows of neither. It is why the engine was full sooner than the twin says ([the twin against a "
        "real GPU](twin-against-gpu.md)): near saturation expect steps of many sequences to take up to a fifth longer "
        "than planned.",
        "## A full engine",
        f"At least {FULL_DECODING} decoding, {FULL_PROMPT_TOKENS[0]} to {FULL_PROMPT_TOKENS[1]} tokens of prompts; "
        "medians. *Paused*: the GPU counts cycles for 40 ms before each step, so that its clock stays high and the "
        "host is never late. CUDA graphs for such steps change nothing of the GPU's time, only how long the core has "
        "to wait.",
        _table(("run", "steps", "MHz", "GPU, ms", "model, ms", "ratio", "core waits, ms"), full_rows(steps)),
        "## By kind of step",
        "Where the core waited for the GPU for more than 2 ms, so that the host was not the slower side. Clocks from "
        "the 10th to the 90th percentile; the ratio would be that of the last column but one at 1,980 MHz, and follows "
        "the clock with the exponent.",
        _table(("step", "decoding", "steps", "MHz", "GPU / model", "at 1,980 MHz", "exponent"), kind_rows(steps)),
        "## Clock and power",
        "Medians after the first five seconds.",
        _table(("run", "MHz", "W", "output tokens/s"), clock_rows(data)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew the page")
    options = parser.parse_args()
    text = page(json.loads(DATA.read_text(encoding="utf-8")))
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
