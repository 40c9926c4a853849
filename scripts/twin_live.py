"""The twin's times against a live vLLM on the CPU: fit its constants on one run, compare throughput and latencies on
others. Run by ``twin_fidelity.py --live``."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from twin_live_client import Answer, Asked, live
from twin_live_engine import SETTINGS, timed_engine, wait_for_quiet
from twin_live_fit import Constants, shape, sized

from roadworthy.adapters.files import write_atomically
from roadworthy.core.latency import percentile
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.config import TwinConfig
from roadworthy.twin.engine import Engine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import Output, TwinRequest

LIMITS = {"throughput": 0.10, "p50": 0.15, "p99": 0.25}
LEAST_REPEATS = 3
"""Fewer say nothing of the engine's own spread."""
FIT_SEED, CHECK_SEED = 2_000, 3_000
"""Of the schedules, and the first ones of the prompts."""
WRITTEN = Path(__file__).resolve().parents[1] / "build" / "bench" / "twin-live.json"
BUSY_SPREAD = 0.5
"""Equal runs that differ by more say more about the machine than about the engine."""


# -- loads -------------------------------------------------------------------------------------------------------------


def poisson(seed: int, count: int, rate: float, prompt: tuple[int, int], output: tuple[int, int]) -> list[Asked]:
    rng, at_s, asked = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(rate)
        asked.append(Asked(at_s=at_s, prompt_tokens=rng.randint(*prompt), output_tokens=rng.randint(*output)))
    return asked


def loads(constants: Constants, requests: int, seed: int) -> dict[str, list[Asked]]:
    """Three loads: two that fill about half of the engine, and one that fills all of it for a moment. Not all of that
    one comes at once: a figure that lies at the end of one long step or of the next says nothing."""

    def rate(busy: float, prompt: tuple[int, int], output: tuple[int, int]) -> float:
        prompt_mean, output_mean, together = sum(prompt) / 2, sum(output) / 2, 6
        one_s = (constants.launch_s / together + constants.sequence_s) * output_mean
        one_s += constants.prefill_launch_s + (constants.token_s + constants.pair_s * prompt_mean / 2) * prompt_mean
        return busy / one_s

    chat, long = ((20, 400), (20, 120)), ((400, 1400), (10, 60))
    return {
        "chats": poisson(seed, requests, rate(0.5, *chat), *chat),
        "long prompts": poisson(seed + 1, requests, rate(0.5, *long), *long),
        "48 in a second": poisson(seed + 2, 48, 48.0, *chat),
    }


# -- the twin ----------------------------------------------------------------------------------------------------------


def twin(constants: Constants, asked: Sequence[Asked]) -> list[Answer]:
    """The same schedule in virtual time. The twin's steps know no requests, so that what one costs beside its tokens is
    so many tokens more."""
    cache = CacheLayout(groups=(CacheGroup(kind="full", block_tokens=128, layers=2),), bytes_per_block=(1,))
    engine = Engine(
        TwinConfig(models=("tiny",), cache=cache, kv_blocks=4001, step_time=constants.step_time(), **SETTINGS)
    )
    outputs: list[Output] = []
    beside_tokens = round(constants.request_s / constants.token_s) if constants.token_s else 0
    for number, one in sorted(enumerate(asked), key=lambda pair: pair[1].at_s):
        arrives_s = one.at_s + constants.front_s / 2
        outputs += engine.advance(arrives_s)
        segments = (Segment(f"prompt {number}", one.prompt_tokens + beside_tokens),)
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


def told(constants: Constants, asked: Sequence[Asked]) -> dict[str, float]:
    """What the twin with ``constants`` makes of it."""
    return figures(asked, twin(constants, asked))


class Runs:
    """The same loads, sent again and again."""

    def __init__(self, loads: Mapping[str, Sequence[Asked]], first_seed: int) -> None:
        self.loads = loads
        self._seeds = itertools.count(first_seed)
        self.found: dict[str, list[dict[str, float]]] = {name: [] for name in loads}

    def add(self, url: str) -> None:
        """Send them once more, with prompts that nobody has sent: others would be found in the prefix cache."""
        for name, asked in self.loads.items():
            self.found[name].append(figures(asked, live(url, asked, next(self._seeds))))

    def values(self, load: str, figure: str) -> tuple[float, ...]:
        return tuple(run[figure] for run in self.found[load])

    def middle(self) -> dict[str, dict[str, float]]:
        """The median of each figure of each load."""
        return {
            name: {figure: statistics.median(self.values(name, figure)) for figure in runs[0]}
            for name, runs in self.found.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one load: of the engine's runs, and the twin's."""

    load: str
    figure: str
    engine: tuple[float, ...]
    twin: float

    @property
    def middle(self) -> float:
        return statistics.median(self.engine)

    @property
    def error(self) -> float:
        return abs(self.twin - self.middle) / self.middle

    @property
    def spread(self) -> float:
        """How far apart equal runs are, as a share of the middle one."""
        return (max(self.engine) - min(self.engine)) / self.middle

    @property
    def limit(self) -> float:
        return max(fixed_limit(self.figure), 2 * self.spread)

    def line(self) -> str:
        unit = 1.0 if self.figure == "throughput" else 1e3
        return (
            f"{self.load:<15}{self.figure:<12}{self.middle * unit:>11.2f}{self.twin * unit:>11.2f}{self.error:>9.1%}"
            f"{self.spread:>9.1%}{self.limit:>8.0%}{'' if self.error <= self.limit else '  outside'}"
        )


def fixed_limit(figure: str) -> float:
    """How far the twin may be off, however equal the engine's runs are."""
    return LIMITS["throughput" if figure == "throughput" else figure.split()[-1]]


def compare_live(*, repeats: int, requests: int, minutes: float) -> int:
    """Print the comparison and write it to ``WRITTEN``; 1 when a figure is outside its limit.

    Args:
        repeats: runs of each load at most.
        minutes: no more are begun than fit into this, ``LEAST_REPEATS`` all the same.
    """
    began_s, turn_s = time.monotonic(), 0.0
    busy = wait_for_quiet()
    with timed_engine() as engine:
        version = engine.version
        print(f"vLLM {version} at {engine.url}: plain cases ...", file=sys.stderr, flush=True)
        plain = shape(engine.url)
        to_fit, to_check = (loads(plain, requests, seed) for seed in (FIT_SEED, CHECK_SEED))
        fits, checks = Runs(to_fit, FIT_SEED), Runs(to_check, CHECK_SEED)
        for turn in range(repeats):  # by turns, so that what the machine does meanwhile meets the fit and the check
            turn_began_s = time.monotonic()
            if turn >= LEAST_REPEATS and turn_began_s + turn_s > began_s + 60 * minutes:
                print(f"{turn} runs of each load, {minutes:g} minutes are over", file=sys.stderr)
                break
            for runs in (fits, checks):
                runs.add(engine.url)
            turn_s = time.monotonic() - turn_began_s
            print(f"{turn + 1} of {repeats} runs of each load, {turn_s:.0f} s", file=sys.stderr, flush=True)
    constants = sized(plain, to_fit, fits.middle(), fixed_limit, told)
    print("fitted, in ms: " + ", ".join(f"{name} {value * 1e3:.4g}" for name, value in asdict(constants).items()))
    print(f"{'load':<15}{'figure':<12}{'engine':>11}{'twin':>11}{'error':>9}{'spread':>9}{'limit':>8}")
    rows = [
        Row(load=name, figure=figure, engine=checks.values(name, figure), twin=value)
        for name, asked in to_check.items()
        for figure, value in told(constants, asked).items()
    ]
    for row in rows:
        print(row.line())
    within = sum(row.error <= fixed_limit(row.figure) for row in rows)
    outside = [f"{row.load} {row.figure}" for row in rows if row.error > row.limit]
    print(
        f"{within} of {len(rows)} within 10 % (throughput), 15 % (P50) and 25 % (P99), "
        f"{len(rows) - within - len(outside)} more within twice the engine's own spread"
    )
    write_down(version, constants, fits, rows, busy)
    widest = max(row.spread for row in rows)
    if widest > BUSY_SPREAD:
        print(
            f"the engine's own runs differ by up to {widest:.0%}: a machine with less other work says more",
            file=sys.stderr,
        )
    if outside:
        print(f"outside: {', '.join(outside)}", file=sys.stderr)
        return 1
    return 0


def write_down(version: str, constants: Constants, fits: Runs, rows: Sequence[Row], busy: float) -> None:
    """The comparison as JSON, for whoever was not there."""
    document = {
        "vllm": version,
        "constants_s": asdict(constants),
        "fitted_to": fits.found,
        "rows": [{**asdict(row), "error": row.error, "limit": row.limit} for row in rows],
        "other_work_cores": busy,
    }
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(WRITTEN, json.dumps(document, indent=2) + "\n")
    print(f"wrote {WRITTEN}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit("run scripts/twin_fidelity.py --live")
