"""The twin's times against a live vLLM on the CPU: fit its constants on one run, compare throughput and latencies on
others. Run by ``twin_fidelity.py --live``."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from roadworthy.adapters.files import write_atomically
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
LEAST_REPEATS = 3
"""Fewer say nothing of the engine's own spread."""
FIT_RUNS = 3
QUIET_CORES, QUIET_WAIT_S = 0.2, 120.0
WRITTEN = Path(__file__).resolve().parents[1] / "build" / "bench" / "twin-live.json"
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

    def times(self, decode: float, prefill: float, front_s: float) -> Constants:
        """Decoding ``decode`` times and prompts ``prefill`` times as long, behind another front."""
        return Constants(
            launch_s=self.launch_s * decode,
            sequence_s=self.sequence_s * decode,
            context_token_s=self.context_token_s * decode,
            token_s=self.token_s * prefill,
            prefill_launch_s=self.prefill_launch_s * prefill,
            front_s=front_s,
        )

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
    """Plain cases, for the shape: prompts of several lengths alone, and 1 and 24 requests decoding together. The least
    of several times is taken, since other work on the machine can only add to them."""
    asyncio.run(live(url, [Asked(at_s=0.2 * n, prompt_tokens=300, output_tokens=20) for n in range(10)], 90))  # warm
    ttft_s = {}
    for tokens in (50, 2000):
        alone = [Asked(at_s=0, prompt_tokens=tokens, output_tokens=1)]
        ttft_s[tokens] = min(asyncio.run(live(url, alone, 100 + turn + tokens))[0].ttft_s for turn in range(6))
    tpot_s = {}
    for together, prompt in ((1, 30), (24, 30), (1, 3000)):
        load = [Asked(at_s=0, prompt_tokens=prompt, output_tokens=100)] * together
        runs = [asyncio.run(live(url, load, 200 + turn + together + prompt)) for turn in range(3)]
        tpot_s[together, prompt] = min(statistics.median(answer.tpot_s for answer in answers) for answers in runs)
    sequence_s = max(0.0, (tpot_s[24, 30] - tpot_s[1, 30]) / 23)
    launch_s = max(1e-5, tpot_s[1, 30] - sequence_s)
    token_s = max(0.0, (ttft_s[2000] - ttft_s[50]) / 1950)
    return Constants(
        launch_s=launch_s,
        sequence_s=sequence_s,
        context_token_s=max(0.0, (tpot_s[1, 3000] - tpot_s[1, 30]) / 2970),
        token_s=token_s,
        prefill_launch_s=0.0,
        front_s=max(0.0, ttft_s[50] - 50 * token_s - launch_s),
    )


def scaled(constants: Constants, url: str, requests: int) -> Constants:
    """Constants under load, from chats and long prompts by turns, the median of ``FIT_RUNS``: an engine's steps take
    longer beside the streams that it serves than alone. One factor for decoding, so that the chats' median TPOT is the
    engine's; one for prompts, so that long ones take as much longer to their first token as there; and the front's own
    time."""
    asked = loads(constants, requests, seed=50)
    chats, long = asked["chats"], asked["long prompts"]
    runs = [
        (asyncio.run(live(url, chats, 400 + turn)), asyncio.run(live(url, long, 500 + turn)))
        for turn in range(FIT_RUNS)
    ]
    tpot_s = statistics.median(median(of_chats, "tpot_s") for of_chats, _ in runs)
    ttft_s = statistics.median(median(of_chats, "ttft_s") for of_chats, _ in runs)
    apart_s = statistics.median(median(of_long, "ttft_s") for _, of_long in runs) - ttft_s
    decode = prefill = 1.0
    for _ in range(3):
        decode = crossing(
            lambda factor, other=prefill: median(twin(constants.times(factor, other, 0.0), chats), "tpot_s") - tpot_s
        )
        prefill = crossing(
            lambda factor, other=decode: (
                median(twin(constants.times(other, factor, 0.0), long), "ttft_s")
                - median(twin(constants.times(other, factor, 0.0), chats), "ttft_s")
                - apart_s
            )
        )
    told_s = median(twin(constants.times(decode, prefill, 0.0), chats), "ttft_s")
    return constants.times(decode, prefill, max(0.0, ttft_s - told_s))


def median(answers: Sequence[Answer], name: str) -> float:
    return statistics.median(getattr(answer, name) for answer in answers)


def crossing(excess: Callable[[float], float]) -> float:
    """The factor at which a rising ``excess`` is 0, from a sixteenth to 16."""
    low, high = 1 / 16, 16.0
    for _ in range(24):
        factor = math.sqrt(low * high)
        if excess(factor) > 0:
            high = factor
        else:
            low = factor
    return math.sqrt(low * high)


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


def compare_live(*, repeats: int, requests: int, minutes: float) -> int:
    """Print the comparison and write it to ``WRITTEN``; 1 when a figure is outside its limit.

    Args:
        repeats: runs of each load at most.
        minutes: no more are begun than fit into this, ``LEAST_REPEATS`` all the same.
    """
    began_s, missed = time.monotonic(), []
    busy = wait_for_quiet()
    with tempfile.TemporaryDirectory() as folder, running_vllm(Path(folder), ARGUMENTS, environment=pinned()) as engine:
        leave_the_first_core(engine.pid)
        print(f"vLLM {engine.version} at {engine.url}: fitting ...", file=sys.stderr)
        constants = scaled(fit(engine.url), engine.url, requests)
        fitted = ", ".join(f"{name} {getattr(constants, name) * 1e3:.4f}" for name in Constants.__slots__)
        print(f"fitted, in ms: {fitted}")
        print(f"{'load':<15}{'figure':<12}{'engine':>11}{'twin':>11}{'error':>9}{'spread':>9}{'limit':>8}")
        checked = loads(constants, requests)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in checked}
        turn_s = 0.0
        for turn in range(repeats):  # by turns, so that what else the machine does meets all of them
            turn_began_s = time.monotonic()
            if turn >= LEAST_REPEATS and turn_began_s + turn_s > began_s + 60 * minutes:
                print(f"{turn} runs of each load, {minutes:g} minutes are over", file=sys.stderr)
                break
            for name, asked in checked.items():
                runs[name].append(figures(asked, asyncio.run(live(engine.url, asked, 1000 + turn))))
            turn_s = time.monotonic() - turn_began_s
        told = {name: figures(asked, twin(constants, asked)) for name, asked in checked.items()}
        for name, ours in told.items():
            for figure, value in ours.items():
                if not close_enough(name, figure, [run[figure] for run in runs[name]], value):
                    missed.append(f"{name} {figure}")
        version = engine.version
    write_down(version, constants, runs, told, missed, busy)
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


def pinned() -> dict[str, str]:
    """What makes the engine compute with one thread on the first core, if there is another one for all the rest."""
    cores = sorted(os.sched_getaffinity(0))
    return {"VLLM_CPU_OMP_THREADS_BIND": str(cores[0]), "OMP_NUM_THREADS": "1"} if len(cores) > 1 else {}


def leave_the_first_core(server: int) -> None:
    """Move this process, which sends the load, and the engine's server away from where the engine computes."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        threads = [int(entry.name) for entry in Path(f"/proc/{server}/task").iterdir()]
        for thread in (0, *threads):
            os.sched_setaffinity(thread, cores[1:])


def wait_for_quiet() -> float:
    """Wait until other work leaves the machine nearly alone, ``QUIET_WAIT_S`` at most; the share of a core that it
    still takes. An engine on the CPU is timed: whatever else runs is in its times."""
    until_s, busy, said = time.monotonic() + QUIET_WAIT_S, 0.0, False
    while True:
        before = cpu_times()
        time.sleep(2.0)
        busy_s, all_s = (after - earlier for after, earlier in zip(cpu_times(), before, strict=True))
        busy = busy_s / all_s * (os.cpu_count() or 1) if all_s else 0.0
        if busy <= QUIET_CORES or time.monotonic() > until_s:
            break
        if not said:
            print(f"other work takes {busy:.2f} cores: waiting for it to end ...", file=sys.stderr, flush=True)
            said = True
    if busy > QUIET_CORES:
        print(f"other work still takes {busy:.2f} cores; its share is in every time below", file=sys.stderr)
    return busy


def cpu_times() -> tuple[float, float]:
    """(busy, all) ticks of all cores since the machine started; zeros where there is no /proc."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))


def write_down(
    version: str,
    constants: Constants,
    runs: dict[str, list[dict[str, float]]],
    told: dict[str, dict[str, float]],
    missed: Sequence[str],
    busy: float,
) -> None:
    """The comparison as JSON, for whoever was not there."""
    document = {
        "vllm": version,
        "constants_s": asdict(constants),
        "loads": {name: {"engine": by_figure(found), "twin": told[name]} for name, found in runs.items()},
        "outside": list(missed),
        "other_work_cores": busy,
    }
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(WRITTEN, json.dumps(document, indent=2) + "\n")
    print(f"wrote {WRITTEN}", file=sys.stderr)


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
