"""The twin's times against a live vLLM on the CPU: fit its constants on one run, compare throughput and latencies on
others. Run by ``twin_fidelity.py --live``."""

from __future__ import annotations

import asyncio
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from roadworthy.core.latency import percentile
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.plan.timing import RooflineStepTime
from roadworthy.twin.config import TwinConfig
from roadworthy.twin.engine import Engine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import TwinRequest
from support.vllm_process import running_vllm

SETTINGS = {"max_num_seqs": 32, "max_num_batched_tokens": 2048, "max_model_len": 4096}
ARGUMENTS = ("--max-num-batched-tokens", "2048", "--kv-cache-memory-bytes", str(512 * 2**20), "--no-async-scheduling")
LIMITS = {"throughput": 0.10, "p50": 0.15, "p99": 0.25}
BUSY_SPREAD = 0.5
"""Equal runs that differ by more say more about the machine than about the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a schedule."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How it went: seconds from its scheduled moment."""

    ttft_s: float
    e2e_s: float
    output_tokens: int

    @property
    def tpot_s(self) -> float:
        return (self.e2e_s - self.ttft_s) / max(1, self.output_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What one run of the engine says of its steps. ``front_s`` is all that is not a step: HTTP, tokens, queues."""

    launch_s: float
    sequence_s: float
    context_token_s: float
    prefill_launch_s: float
    token_s: float
    front_s: float

    def times(self, factor: float, *, front_s: float) -> Constants:
        """Steps ``factor`` times as long, behind another front."""
        steps = {name: getattr(self, name) * factor for name in Constants.__slots__ if name != "front_s"}
        return Constants(front_s=front_s, **steps)

    def step_time(self) -> RooflineStepTime:
        return RooflineStepTime(
            pipeline_stages=1, launch_s=self.launch_s, fixed_weight_bytes=0, expert_weight_bytes=0,
            expert_pick_ratio=0, kv_bytes_per_context_token=self.context_token_s, state_bytes_per_sequence=0,
            flops_per_token=0, flops_per_context_pair=0, hbm_bytes_per_s=1, flops_per_s=1,
            comm_bytes_per_token=self.token_s, link_bytes_per_s=1, comm_latency_s=0,
            prefill_launch_s=self.prefill_launch_s, sequence_s=max(0.0, self.sequence_s - self.token_s),
        )  # fmt: skip


# -- loads -------------------------------------------------------------------------------------------------------------


def poisson(seed: int, count: int, rate: float, prompt: tuple[int, int], output: tuple[int, int]) -> list[Asked]:
    rng, at_s, asked = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(rate)
        asked.append(Asked(at_s=at_s, prompt_tokens=rng.randint(*prompt), output_tokens=rng.randint(*output)))
    return asked


def loads(constants: Constants, requests: int, seed: int = 1) -> dict[str, list[Asked]]:
    """Three loads: two that fill about half of the engine, and one that fills all of it for a moment."""

    def rate(busy: float, prompt: tuple[int, int], output: tuple[int, int]) -> float:
        prompt_mean, output_mean, together = sum(prompt) / 2, sum(output) / 2, 6
        one_s = (constants.launch_s / together + constants.sequence_s) * output_mean
        one_s += constants.prefill_launch_s + constants.token_s * prompt_mean
        return busy / one_s

    chat, long = ((20, 400), (20, 120)), ((600, 2000), (10, 60))
    burst = [Asked(at_s=0.05 * (one.at_s > 0), prompt_tokens=one.prompt_tokens, output_tokens=one.output_tokens)
             for one in poisson(seed + 2, 48, 1.0, *chat)]  # fmt: skip
    return {
        "chats": poisson(seed, requests, rate(0.5, *chat), *chat),
        "long prompts": poisson(seed + 1, requests, rate(0.5, *long), *long),
        "a burst of 48": burst,
    }


# -- live --------------------------------------------------------------------------------------------------------------


async def send(host: str, port: int, asked: Asked, start_s: float, seed: int) -> Answer:
    """Send one request at its moment and read its stream."""
    at_s = start_s + asked.at_s
    await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
    rng = random.Random(seed)
    body = json.dumps(
        {
            "model": "tiny", "prompt": [rng.randrange(8, 500) for _ in range(asked.prompt_tokens)], "stream": True,
            "max_tokens": asked.output_tokens, "ignore_eos": True, "temperature": 0,
        }
    ).encode()  # fmt: skip
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    first_s = last_s = 0.0
    tail = b""
    while data := await reader.read(1 << 16):
        now_s = time.perf_counter()
        if b"data: {" in tail[-8:] + data:
            first_s, last_s = first_s or now_s, now_s
        tail = (tail + data)[-64:]
        if b"[DONE]" in tail:
            break
    writer.close()
    if not first_s:
        raise ConnectionError("the engine answered without a token")
    return Answer(ttft_s=first_s - at_s, e2e_s=last_s - at_s, output_tokens=asked.output_tokens)


async def live(url: str, asked: Sequence[Asked], seed: int) -> list[Answer]:
    parts = urlsplit(url)
    start_s = time.perf_counter() + 0.05
    host, port = str(parts.hostname), int(parts.port or 80)
    return list(
        await asyncio.gather(*(send(host, port, one, start_s, seed * 10_000 + n) for n, one in enumerate(asked)))
    )


def fit(url: str) -> Constants:
    """One run of plain cases: prompts of several lengths alone, then 1, 8 and 24 requests decoding together."""
    asyncio.run(live(url, [Asked(at_s=0.2 * n, prompt_tokens=300, output_tokens=20) for n in range(10)], 90))  # warm
    prefill: list[tuple[float, float]] = []
    for turn, tokens in enumerate((50, 400, 1000, 2000) * 5):
        (answer,) = asyncio.run(live(url, [Asked(at_s=0, prompt_tokens=tokens, output_tokens=1)], 100 + turn))
        prefill.append((tokens, answer.ttft_s))
    token_s, alone_s = line([(n, median_of(prefill, n)) for n in (50, 400, 1000, 2000)])
    decode = []
    for turn, together in enumerate((1, 8, 24) * 3):
        answers = asyncio.run(live(url, [Asked(at_s=0, prompt_tokens=30, output_tokens=100)] * together, 200 + turn))
        decode.append((together, statistics.median(answer.tpot_s for answer in answers)))
    sequence_s, launch_s = line([(n, median_of(decode, n)) for n in (1, 8, 24)])
    (far,) = asyncio.run(live(url, [Asked(at_s=0, prompt_tokens=3000, output_tokens=100)], 300))
    context_token_s = max(0.0, (far.tpot_s - median_of(decode, 1)) / 3000)
    first_s = alone_s - launch_s  # not a step: the front, and what a prompt costs beyond its tokens
    return Constants(
        launch_s=launch_s, sequence_s=sequence_s, context_token_s=context_token_s, token_s=token_s,
        prefill_launch_s=max(0.0, first_s) / 2, front_s=max(0.0, first_s) / 2,
    )  # fmt: skip


def scaled(constants: Constants, engine_url: str, requests: int) -> Constants:
    """Constants under load, from one run of chats: beside the streams that it serves, every step of an engine takes
    longer than alone. One factor for the steps, so that the median TPOT is the engine's, and the front's own time."""
    asked = loads(constants, requests, seed=50)["chats"]
    answers = asyncio.run(live(engine_url, asked, 400))
    tpot_s = statistics.median(answer.tpot_s for answer in answers)
    ttft_s = statistics.median(answer.ttft_s for answer in answers)
    low, high = 0.25, 16.0
    for _ in range(30):
        factor = math.sqrt(low * high)
        told = twin(constants.times(factor, front_s=0.0), asked)
        if statistics.median(answer.tpot_s for answer in told) > tpot_s:
            high = factor
        else:
            low = factor
    return constants.times(factor, front_s=max(0.0, ttft_s - statistics.median(answer.ttft_s for answer in told)))


def median_of(pairs: Sequence[tuple[float, float]], key: float) -> float:
    return statistics.median(value for name, value in pairs if name == key)


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope (not negative) and intercept (positive) of the least-squares line."""
    fitted = statistics.linear_regression(*zip(*points, strict=True))
    return max(0.0, fitted.slope), max(1e-5, fitted.intercept)


# -- the twin ----------------------------------------------------------------------------------------------------------


def twin(constants: Constants, asked: Sequence[Asked]) -> list[Answer]:
    """The same schedule in virtual time."""
    cache = CacheLayout(groups=(CacheGroup(kind="full", block_tokens=128, layers=2),), bytes_per_block=(1,))
    engine = Engine(
        TwinConfig(models=("tiny",), cache=cache, kv_blocks=4001, step_time=constants.step_time(), **SETTINGS)
    )
    outputs = []
    for number, one in sorted(enumerate(asked), key=lambda pair: pair[1].at_s):
        arrives_s = one.at_s + constants.front_s / 2
        outputs += engine.advance(arrives_s)
        segments = (Segment(f"prompt {number}", one.prompt_tokens),)
        engine.add(TwinRequest(id=str(number), segments=segments, output_tokens=one.output_tokens), arrives_s)
    while (due_s := engine.next_event_s()) is not None:
        outputs += engine.advance(due_s)
    answers: dict[int, Answer] = {}
    for output in outputs:
        number, done = int(output.request_id), output.finished
        assert done is not None
        late_s = constants.front_s / 2 - asked[number].at_s
        first_s, last_s = done.first_token_s + late_s, done.last_token_s + late_s
        answers[number] = Answer(ttft_s=first_s, e2e_s=last_s, output_tokens=done.output_tokens)
    return [answers[number] for number in range(len(asked))]


# -- comparison --------------------------------------------------------------------------------------------------------


def figures(asked: Sequence[Asked], answers: Sequence[Answer]) -> dict[str, float]:
    """Throughput in output tokens per second, and percentiles in seconds."""
    ends_s = max(one.at_s + answer.e2e_s for one, answer in zip(asked, answers, strict=True))
    found = {"throughput": sum(one.output_tokens for one in asked) / ends_s}
    for name in ("ttft", "tpot", "e2e"):
        values = sorted(getattr(answer, f"{name}_s") for answer in answers)
        found[f"{name} p50"], found[f"{name} p99"] = percentile(values, 50), percentile(values, 99)
    return found


def compare_live(*, repeats: int, requests: int) -> int:
    """Print the comparison; 1 when a figure is outside its limit."""
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as folder, running_vllm(Path(folder), ARGUMENTS) as engine:
        print(f"vLLM {engine.version} at {engine.url}: fitting ...", file=sys.stderr)
        constants = scaled(fit(engine.url), engine.url, requests)
        fitted = ", ".join(f"{name} {getattr(constants, name) * 1e3:.4f}" for name in Constants.__slots__)
        print(f"fitted, in ms: {fitted}")
        print(f"{'load':<15}{'figure':<12}{'engine':>11}{'twin':>11}{'error':>9}{'spread':>9}{'limit':>8}")
        checked = loads(constants, requests)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in checked}
        for turn in range(repeats):  # by turns, so that what else the machine does meets all of them
            for name, asked in checked.items():
                runs[name].append(figures(asked, asyncio.run(live(engine.url, asked, 1000 + turn))))
        for name, asked in checked.items():
            for figure, ours in figures(asked, twin(constants, asked)).items():
                if not close_enough(name, figure, [run[figure] for run in runs[name]], ours):
                    missed.append(f"{name} {figure}")
    widest = max(spread(told) for found in runs.values() for told in by_figure(found).values())
    if widest > BUSY_SPREAD:
        print(
            f"the engine's own runs differ by up to {widest:.0%}: a machine with less other work says more",
            file=sys.stderr,
        )
    if missed:
        print(f"outside: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


def by_figure(runs: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {figure: [run[figure] for run in runs] for figure in runs[0]}


def spread(told: Sequence[float]) -> float:
    """How far apart equal runs are, as a share of the middle one."""
    return (max(told) - min(told)) / statistics.median(told)


def close_enough(load: str, figure: str, theirs: Sequence[float], ours: float) -> bool:
    """Print one line; whether the twin is within the limit, or within twice the engine's own spread."""
    middle = statistics.median(theirs)
    error, apart = abs(ours - middle) / middle, spread(theirs)
    limit = max(LIMITS["throughput" if figure == "throughput" else figure.split()[-1]], 2 * apart)
    unit = 1.0 if figure == "throughput" else 1e3
    print(
        f"{load:<15}{figure:<12}{middle * unit:>11.2f}{ours * unit:>11.2f}{error:>9.1%}{apart:>9.1%}{limit:>8.0%}"
        f"{'' if error <= limit else '  outside'}",
        flush=True,
    )
    return error <= limit


if __name__ == "__main__":
    sys.exit("run scripts/twin_fidelity.py --live")
