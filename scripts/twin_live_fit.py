"""The constants of a live engine's steps: their shape by the engine's own clock, their size from one run of the loads.

A step of an engine on one CPU core costs a launch, more for each decoding sequence and each token of context, and for
prompts more for each token and for each pair of token and context (attention). Those come from plain cases, timed by
the counters of the engine's ``/metrics``, in which neither its server nor the client has a part. What is left of a
client's time to the first token is the front's: HTTP, and the way to the engine's core and back.

Under load two things are not as in a plain case. A request that arrives during a step is read by a thread of the
interpreter that computes it, and the step takes some milliseconds longer; and cores are shared, clocks drift. So what a
request costs the core, the launch, what sequences add, what prompts add and the front's time are then moved until the
twin's figures are nearest to those of the run to fit.
"""

from __future__ import annotations

import itertools
import math
import statistics
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from descend import descend
from twin_live_client import Asked, live

from roadworthy.plan.timing import RooflineStepTime

WARM_TURNS, CASE_TURNS = 2, 7
FIRST_SEED = 1_000
"""Of prompts, apart from those of the loads: one drawn twice would be found in the prefix cache."""
PROMPTS = (100, 250, 500, 1000, 2000)
"""Tokens of the prompts that are timed alone, each in one step."""
DECODES = ((1, 30, 120), (8, 30, 120), (16, 30, 120), (1, 3000, 120), (8, 250, 320))
"""Sequences that decode together, the tokens of their prompts and of their answers."""
FITTED = ("launch", "sequences", "prompts", "requests", "front")
REQUEST_S = 0.002
"""What a request costs the core beside its steps, before it is fitted: no plain case shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Seconds: of a step, ``request_s`` that a request adds to some step, and ``front_s`` of all that is not one."""

    launch_s: float
    sequence_s: float
    context_token_s: float
    prefill_launch_s: float
    token_s: float
    pair_s: float
    request_s: float
    front_s: float

    def times(self, *, launch: float, sequences: float, prompts: float, requests: float, front: float) -> Constants:
        """Each part so many times as long."""
        return Constants(
            launch_s=self.launch_s * launch,
            sequence_s=self.sequence_s * sequences,
            context_token_s=self.context_token_s * sequences,
            prefill_launch_s=self.prefill_launch_s * prompts,
            token_s=self.token_s * prompts,
            pair_s=self.pair_s * prompts,
            request_s=self.request_s * requests,
            front_s=self.front_s * front,
        )

    def step_time(self) -> RooflineStepTime:
        """The twin's model with these as seconds: at a rate of 1 a second, nothing hides anything."""
        return RooflineStepTime(
            pipeline_stages=1, launch_s=self.launch_s, fixed_weight_bytes=0, expert_weight_bytes=0,
            expert_pick_ratio=0, kv_bytes_per_context_token=max(0.0, self.context_token_s - self.pair_s),
            state_bytes_per_sequence=0, flops_per_token=self.token_s, flops_per_context_pair=self.pair_s,
            hbm_bytes_per_s=1, flops_per_s=1, comm_bytes_per_token=0, link_bytes_per_s=1, comm_latency_s=0,
            prefill_launch_s=self.prefill_launch_s, sequence_s=max(0.0, self.sequence_s - self.token_s),
            unhidden_ratio=1.0,
        )  # fmt: skip


# -- shape -------------------------------------------------------------------------------------------------------------


def shape(url: str) -> Constants:
    """Plain cases by turns, the median of each: prompts alone, and requests that decode together."""
    prompts_s: dict[int, list[float]] = {tokens: [] for tokens in PROMPTS}
    decode_s: dict[tuple[int, int, int], list[float]] = {case: [] for case in DECODES}
    fronts_s: list[float] = []
    seeds = itertools.count(FIRST_SEED)
    for _ in range(WARM_TURNS + CASE_TURNS):
        for tokens in PROMPTS:
            before = clocks(url)
            (answer,) = live(url, [Asked(at_s=0, prompt_tokens=tokens, output_tokens=1)], next(seeds))
            prompts_s[tokens].append(passed(before, clocks(url), "prefill"))
            fronts_s.append(answer.ttft_s - prompts_s[tokens][-1])
        for case in DECODES:
            count, prompt, answer_tokens = case
            before = clocks(url)
            load = [Asked(at_s=0, prompt_tokens=prompt, output_tokens=answer_tokens)] * count
            live(url, load, next(seeds))
            decode_s[case].append(passed(before, clocks(url), "decode") / (answer_tokens - 1))
    launch_s, sequence_s, context_token_s = least_squares(
        [(1.0, count, count * (prompt + answer_tokens / 2)) for count, prompt, answer_tokens in DECODES],
        [statistics.median(times[WARM_TURNS:]) for times in decode_s.values()],
    )
    first_s, token_s, pair_s = least_squares(
        [(1.0, tokens, tokens**2 / 2) for tokens in PROMPTS],
        [statistics.median(times[WARM_TURNS:]) for times in prompts_s.values()],
    )
    return Constants(
        launch_s=launch_s,
        sequence_s=sequence_s,
        context_token_s=context_token_s,
        prefill_launch_s=max(0.0, first_s - launch_s),
        token_s=token_s,
        pair_s=pair_s,
        request_s=REQUEST_S,
        front_s=max(1e-6, statistics.median(fronts_s[WARM_TURNS * len(PROMPTS) :])),
    )


def least_squares(parts: Sequence[tuple[float, float, float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """What each part costs, so that the relative errors of ``seconds`` have the least squares; nothing is negative."""
    rows = np.array(parts, dtype=float) / np.array(seconds)[:, None]
    found, kept = np.zeros(rows.shape[1]), list(range(rows.shape[1]))
    while kept:
        costs, *_ = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)
        if (costs >= 0).all():
            found[kept] = costs
            break
        kept.pop(int(np.argmin(costs)))
    return tuple(float(cost) for cost in found)


def clocks(url: str) -> dict[str, float]:
    """The engine's counters of what its requests have taken, seconds and how many."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {
        part + kind: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + kind))
        for part in ("prefill", "decode")
        for name in (f"vllm:request_{part}_time_seconds",)
        for kind in ("_sum", "_count")
    }


def passed(before: Mapping[str, float], after: Mapping[str, float], part: str) -> float:
    """Mean seconds of a request in ``part`` between two readings of :func:`clocks`."""
    count = after[f"{part}_count"] - before[f"{part}_count"]
    if not count:
        raise SystemExit(f"twin_fidelity: the engine's /metrics counted no {part} time: wanted a request's")
    return (after[f"{part}_sum"] - before[f"{part}_sum"]) / count


# -- size --------------------------------------------------------------------------------------------------------------

Told = Callable[[Constants, Sequence[Asked]], dict[str, float]]


def sized(
    constants: Constants,
    loads: Mapping[str, Sequence[Asked]],
    seen: Mapping[str, Mapping[str, float]],
    limits: Callable[[str], float],
    told: Told,
) -> Constants:
    """The constants, each of ``FITTED`` moved until the squares of the errors, in parts of their limits, are least.

    Args:
        loads: what was sent in the run to fit.
        seen: its figures.
        limits: of a figure by its name.
        told: the twin's figures with such constants.
    """

    def error(factors: Mapping[str, float]) -> float:
        moved = constants.times(**factors)
        total = 0.0
        for name, asked in loads.items():
            ours = told(moved, asked)
            total += sum((math.log(ours[figure] / value) / limits(figure)) ** 2 for figure, value in seen[name].items())
        return total

    # two at a time as well: where one makes up for another, the errors form a valley that no single step leads along
    moves = [move for move in itertools.product((-1, 0, 1), repeat=len(FITTED)) if 1 <= sum(map(abs, move)) <= 2]

    def near(factors: Mapping[str, float], step: float) -> list[Mapping[str, float]]:
        return [{name: factors[name] * step**power for name, power in zip(FITTED, move, strict=True)} for move in moves]

    factors, _ = descend(dict.fromkeys(FITTED, 1.0), error, near)
    return constants.times(**factors)
