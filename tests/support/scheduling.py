"""Workloads for a scheduler, and what the twin and vLLM's own scheduler make of them, step by step.

A trace has one entry a step: ``tokens`` it schedules of each request, where each of them ``starts`` (tokens computed
before, so a request's first entry shows its prefix hit), the ``preemptions`` so far, and the ``free`` blocks.
A request arrives, or leaves unfinished, when as many steps have ended as its ``turn`` (``leaves``) says. Where more
than one step is under way it matters when vLLM's core looks for new requests, so steps take ``step_s`` there and
requests arrive ``at_s`` and leave at ``leaves_s``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.engine import Engine
from roadworthy.twin.lane import Lane
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import TwinRequest
from support.twin import config, step_time

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig

Scenario = dict[str, Any]
Trace = list[dict[str, Any]]

SUPPORT = Path(__file__).resolve().parent / "vllm_scheduler.py"
TWIN_SETTINGS = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "kv_blocks",
    "enable_prefix_caching",
    "policy",
    "async_scheduling",
    "draft_tokens",
    "draft_acceptance_ratio",
)
FULL = ({"kind": "full", "block_tokens": 16},)
WINDOWS = (
    {"kind": "full", "block_tokens": 16},
    {"kind": "window", "block_tokens": 16, "window_tokens": 127},
)
V4_LIKE = (
    {"kind": "full", "block_tokens": 64},
    {"kind": "window", "block_tokens": 16, "window_tokens": 31},
    {"kind": "window", "block_tokens": 16, "window_tokens": 31},
    {"kind": "window", "block_tokens": 4, "window_tokens": 7},
)
STATES = (
    {"kind": "state", "block_tokens": 32},
    {"kind": "state", "block_tokens": 32},
    {"kind": "full", "block_tokens": 32},
)


def _requests(
    rng: random.Random,
    count: int,
    longest: int,
    *,
    turns: tuple[int, ...] = (0, 0, 1, 5, 20, 60),
    outputs: tuple[int, ...] = (1, 2, 17, 60, 200),
    shared: tuple[int, ...] = (0, 0, 30, 32, 64),
    shortest: int = 1,
    priorities: int = 1,
    leave: float = 0.0,
) -> list[dict[str, Any]]:
    requests = []
    for index in range(count):
        system = rng.choice(shared)
        own = rng.randint(shortest, max(shortest, longest - system - 1))
        turn = rng.choice(turns)
        requests.append(
            {
                "id": index,
                "turn": turn,
                "segments": ([["system", system]] if system else []) + [[f"own {index}", own]],
                "output": rng.choice(outputs),
                "priority": rng.randrange(priorities),
                "leaves": turn + rng.randint(1, 40) if rng.random() < leave else 0,
                "at_s": 0.0,
                "leaves_s": 0.0,
            }
        )
    return requests


def _conversations(rng: random.Random, sessions: int, longest: int, shared: int) -> list[dict[str, Any]]:
    """Turns that quote what was said, some long after and so perhaps evicted."""
    requests: list[dict[str, Any]] = []
    for session in range(sessions):
        said: list[list[Any]] = [["system", shared]]
        turn = rng.randint(0, 60)
        for _ in range(rng.randint(1, 4)):
            said = [*said, [f"question {session} {len(said)}", rng.randint(5, 60)]]
            output = rng.choice((3, 20, 45))
            if sum(tokens for _, tokens in said) + output >= longest:
                break
            requests.append(
                {
                    "id": len(requests),
                    "turn": turn,
                    "segments": said,
                    "output": output,
                    "priority": 0,
                    "leaves": 0,
                    "at_s": 0.0,
                    "leaves_s": 0.0,
                }
            )
            said = [*said, [f"answer of {len(requests) - 1}", output]]
            turn += output + rng.choice((5, 40, 150))
    return requests


def _scenario(rng: random.Random, requests: list[dict[str, Any]], **changes: Any) -> Scenario:
    base: Scenario = {
        "max_model_len": 400,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
        "long_prefill_token_threshold": 0,
        "kv_blocks": 400,
        "enable_prefix_caching": True,
        "policy": "fcfs",
        "async_scheduling": False,
        "draft_tokens": 0,
        "draft_acceptance_ratio": 0.0,
        "depth": 1,
        "stages": 1,
        "step_s": 0.0,
        "groups": FULL,
        "requests": requests,
    }
    return base | changes


def _tight(rng: random.Random, layout: tuple[dict[str, Any], ...], longest: int, budget: int, depth: int = 1) -> int:
    """Blocks for one request of full length, and perhaps a few more."""
    groups = layout_of(layout).groups
    least = sum(max(group.held(longest), group.admitted(longest, depth * budget)) for group in groups)
    return least + 1 + rng.choice((0, 3, 10, 30))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind of traffic: what is compared, and how to draw one instance of it."""

    name: str
    draw: Callable[[random.Random], Scenario]


def _chunks(rng: random.Random) -> Scenario:
    budget = rng.choice((24, 48, 100))
    return _scenario(rng, _requests(rng, 10, 390, shortest=100), max_num_batched_tokens=budget)


def _budget(rng: random.Random) -> Scenario:
    requests = _requests(rng, 24, 60, turns=(0, 0, 2, 4, 9), outputs=(40, 80, 120))
    return _scenario(rng, requests, max_num_seqs=24, max_num_batched_tokens=rng.choice((24, 26, 40)))


def _seats(rng: random.Random) -> Scenario:
    return _scenario(rng, _requests(rng, 16, 200), max_num_seqs=rng.choice((1, 2, 3, 5)))


def _burst(rng: random.Random) -> Scenario:
    requests = _requests(rng, 30, 250, turns=tuple(range(12)), outputs=(1, 5, 30, 90))
    return _scenario(rng, requests, max_num_seqs=12, kv_blocks=rng.choice((60, 120)))


def _priorities(rng: random.Random) -> Scenario:
    requests = _requests(rng, 14, 300, priorities=3)
    return _scenario(rng, requests, policy="priority", kv_blocks=_tight(rng, FULL, 400, 256), max_num_seqs=6)


def _preemption(rng: random.Random) -> Scenario:
    requests = _requests(rng, 12, 300, outputs=(60, 120, 200))
    return _scenario(
        rng,
        requests,
        kv_blocks=_tight(rng, FULL, 400, 256),
        enable_prefix_caching=rng.random() < 0.5,
        max_num_batched_tokens=rng.choice((48, 256)),
    )


def _prefixes(rng: random.Random) -> Scenario:
    return _scenario(rng, _conversations(rng, 10, 390, rng.choice((30, 64, 100))), kv_blocks=rng.choice((40, 60, 100)))


def _windows(rng: random.Random) -> Scenario:
    layout = rng.choice((WINDOWS, V4_LIKE))
    budget = rng.choice((64, 256))
    requests = _conversations(rng, 8, 390, 100) if rng.random() < 0.5 else _requests(rng, 12, 380)
    return _scenario(
        rng,
        requests,
        groups=layout,
        max_num_batched_tokens=budget,
        kv_blocks=_tight(rng, layout, 400, budget) + rng.choice((0, 60, 200)),
        enable_prefix_caching=rng.random() < 0.8,
    )


def _states(rng: random.Random) -> Scenario:
    budget = rng.choice((64, 100, 256))
    requests = _conversations(rng, 8, 390, 100) if rng.random() < 0.5 else _requests(rng, 12, 380)
    return _scenario(
        rng,
        requests,
        groups=STATES,
        max_num_batched_tokens=budget,
        kv_blocks=_tight(rng, STATES, 400, budget) + rng.choice((0, 20, 100)),
    )


def _asynchronous(rng: random.Random) -> Scenario:
    layout = rng.choice((FULL, FULL, WINDOWS))
    return _by_the_clock(
        rng,
        _requests(rng, 20, 300, outputs=(1, 2, 17, 60)),
        async_scheduling=True,
        depth=2,
        groups=layout,
        max_num_seqs=rng.choice((3, 8, 16)),
        kv_blocks=_tight(rng, layout, 400, 256, 2) + rng.choice((0, 30, 200)),
    )


def _drafts(rng: random.Random) -> Scenario:
    return _scenario(
        rng,
        _requests(rng, 12, 250),
        draft_tokens=rng.choice((1, 3, 5)),
        draft_acceptance_ratio=rng.choice((0.0, 0.6, 0.9, 1.0)),
        max_num_batched_tokens=rng.choice((48, 100, 256)),
        kv_blocks=_tight(rng, FULL, 400, 256) + rng.choice((0, 20, 200)),
    )


def _long_prompts(rng: random.Random) -> Scenario:
    requests = _requests(rng, 6, 390, shortest=250) + [
        request | {"id": 6 + request["id"]} for request in _requests(rng, 10, 40)
    ]
    return _scenario(rng, requests, max_num_batched_tokens=128, long_prefill_token_threshold=rng.choice((20, 32, 64)))


def _aborts(rng: random.Random) -> Scenario:
    requests = _requests(rng, 16, 300, leave=0.5)
    return _scenario(rng, requests, kv_blocks=_tight(rng, FULL, 400, 256) + rng.choice((0, 40)), max_num_seqs=8)


def _pipeline(rng: random.Random) -> Scenario:
    stages = rng.choice((2, 3, 4, 8))
    return _by_the_clock(
        rng,
        _requests(rng, 24, 380, outputs=(1, 2, 17, 60)),
        depth=stages,
        stages=stages,
        max_num_batched_tokens=rng.choice((48, 100, 256)),
        kv_blocks=_tight(rng, FULL, 400, 256, stages) + rng.choice((0, 40, 400)),
    )


def _asynchronous_pipeline(rng: random.Random) -> Scenario:
    scenario = _pipeline(rng)
    return scenario | {"async_scheduling": True, "depth": scenario["stages"] + 1}


def _by_the_clock(rng: random.Random, requests: list[dict[str, Any]], **changes: Any) -> Scenario:
    """The same requests at moments instead: each alone, close to others, or into a busy engine."""
    step_s = rng.choice((0.008, 0.03, 0.1))
    at_s, gap_s = 0.0, rng.choice((0.05, 0.5, 5, 20)) * step_s
    for request in requests:
        request["at_s"] = at_s
        if request["leaves"]:
            request["leaves_s"] = at_s + (request["leaves"] - request["turn"]) * step_s * rng.random()
        at_s += rng.expovariate(1 / gap_s)
    return _scenario(rng, requests, step_s=step_s, **changes)


def _mixed(rng: random.Random) -> Scenario:
    """Everything that goes together, at random."""
    layout = rng.choice((FULL, WINDOWS, V4_LIKE, STATES))
    asynchronous = rng.random() < 0.4
    drafts = rng.choice((1, 3)) if layout is FULL and not asynchronous and rng.random() < 0.3 else 0
    stages = rng.choice((1, 1, 2, 3)) if not drafts else 1
    depth = stages + asynchronous
    budget = rng.choice((48, 64, 100, 256))
    conversations = rng.random() < 0.3
    requests = (
        _conversations(rng, 8, 390, rng.choice((20, 64, 100)))
        if conversations
        else _requests(rng, 14, 380, priorities=3, leave=rng.choice((0.0, 0.3)))
    )
    return (_by_the_clock if depth > 1 else _scenario)(
        rng,
        requests,
        groups=layout,
        async_scheduling=asynchronous,
        draft_tokens=drafts,
        draft_acceptance_ratio=rng.choice((0.3, 0.8)),
        depth=depth,
        stages=stages,
        max_num_batched_tokens=budget,
        max_num_seqs=rng.choice((2, 5, 8, 16)),
        long_prefill_token_threshold=rng.choice((0, 0, 40)),
        policy=rng.choice(("fcfs", "priority")),
        kv_blocks=_tight(rng, layout, 400, budget, depth) + rng.choice((0, 10, 60, 300)),
        enable_prefix_caching=layout is STATES or rng.random() < 0.7,
    )


WORKLOADS = (
    Workload(name="chunked prefill", draw=_chunks),
    Workload(name="token budget", draw=_budget),
    Workload(name="max_num_seqs", draw=_seats),
    Workload(name="first come, first served", draw=_burst),
    Workload(name="priority", draw=_priorities),
    Workload(name="preemption by recompute", draw=_preemption),
    Workload(name="prefix cache and eviction", draw=_prefixes),
    Workload(name="sliding windows", draw=_windows),
    Workload(name="recurrent state", draw=_states),
    Workload(name="asynchronous scheduling", draw=_asynchronous),
    Workload(name="speculative tokens", draw=_drafts),
    Workload(name="long prefills", draw=_long_prompts),
    Workload(name="aborted requests", draw=_aborts),
    Workload(name="pipeline stages", draw=_pipeline),
    Workload(name="stages, asynchronous", draw=_asynchronous_pipeline),
    Workload(name="all of it mixed", draw=_mixed),
)


def scenarios(workload: Workload, count: int, first_seed: int = 0) -> list[Scenario]:
    """``count`` instances of a workload."""
    return [workload.draw(random.Random(f"{workload.name} {first_seed + seed}")) for seed in range(count)]


# -- the two schedulers ------------------------------------------------------------------------------------------------


def layout_of(groups: tuple[dict[str, Any], ...]) -> CacheLayout:
    """A scenario's cache groups as the twin takes them."""
    return CacheLayout(
        groups=tuple(
            CacheGroup(
                kind=group["kind"],
                block_tokens=group["block_tokens"],
                layers=1,
                window_tokens=group.get("window_tokens", 0),
                resident_blocks=2 if group["kind"] == "state" else 1,
                admission_blocks=2 if group["kind"] == "state" else 1,
            )
            for group in groups
        ),
        bytes_per_block=(1,),
    )


def twin_of(scenario: Scenario) -> TwinConfig:
    """The twin of a scenario's engine; its steps take the same time whatever they hold."""
    asynchronous = scenario["async_scheduling"]
    twin: TwinConfig = config(
        step_time=step_time(step_s=scenario["step_s"] or 0.01, stages=scenario["stages"]),
        cache=layout_of(scenario["groups"]),
        concurrent_batches=scenario["stages"] + 1 if asynchronous else 1,
        **{name: scenario[name] for name in TWIN_SETTINGS},
    )
    return twin


def twin_trace(scenario: Scenario, *, repeat_steps: bool = True) -> Trace:
    """What the twin schedules."""
    engine = Engine(twin_of(scenario), detail="tokens", repeat_steps=repeat_steps)
    if scenario["step_s"]:
        return _timed_trace(engine, scenario)
    arriving = {str(request["id"]): request for request in scenario["requests"]}
    leaving = {str(request["id"]): request["leaves"] for request in scenario["requests"] if request["leaves"]}
    steps: Trace = []
    ended, now_s = 0, 0.0

    def let_in_and_out(turn: int) -> None:
        for name, request in list(arriving.items()):
            if request["turn"] <= turn:
                engine.add(_twin_request(request), now_s)
                del arriving[name]
        for name, leaves in list(leaving.items()):
            if leaves <= turn and name not in arriving:
                engine.abort(name, now_s)
                del leaving[name]

    engine.on_scheduled = lambda: steps.append(_step_of(engine, engine._in_flight[-1]))
    let_in_and_out(0)
    while arriving or engine.next_event_s() is not None:
        due_s = engine.next_event_s()
        if due_s is None:
            ended = min(request["turn"] for request in arriving.values())
            let_in_and_out(ended)
            continue
        ends = bool(engine._in_flight) and engine._in_flight[0].done_s <= due_s
        now_s = due_s
        if ends:
            ended += 1
            let_in_and_out(ended)
        engine.advance(now_s)
    return steps


def _timed_trace(engine: Engine, scenario: Scenario) -> Trace:
    steps: Trace = []
    engine.on_scheduled = lambda: steps.append(_step_of(engine, engine._in_flight[-1]))
    moments = [(request["at_s"], request) for request in scenario["requests"]]
    moments += [(request["leaves_s"], str(request["id"])) for request in scenario["requests"] if request["leaves_s"]]
    for at_s, what in sorted(moments, key=lambda moment: moment[0]):
        while (due_s := engine.next_event_s()) is not None and due_s < at_s:
            engine.advance(due_s)
        if isinstance(what, str):
            engine.abort(what, at_s)
        else:
            engine.add(_twin_request(what), at_s)
    while (due_s := engine.next_event_s()) is not None:
        engine.advance(due_s)
    return steps


def _step_of(engine: Engine, flight: Any) -> dict[str, Any]:
    tokens = {seq.request.id: entry.tokens for seq, entry in flight.entries.items()}
    starts = {seq.request.id: seq.computed - entry.tokens for seq, entry in flight.entries.items()}
    if isinstance(flight, Lane):
        for seq in flight.members:
            tokens[seq.request.id] = 1
            starts[seq.request.id] = seq.computed + flight.steps - seq.joined
    return {
        "tokens": tokens,
        "starts": starts,
        "preemptions": engine._scheduler.preemptions,
        "free": engine._scheduler.pool.free_blocks,
    }


def _twin_request(request: dict[str, Any]) -> TwinRequest:
    return TwinRequest(
        id=str(request["id"]),
        segments=tuple(Segment(text, tokens) for text, tokens in request["segments"]),
        output_tokens=request["output"],
        answer_id=f"answer of {request['id']}",
        priority=request["priority"],
    )


def vllm_traces(model: Path, asked: list[Scenario], *, timeout_s: float = 600) -> list[Trace]:
    """What vLLM's own scheduler does with each scenario, from one process. Raises RuntimeError when it does not run."""
    ended = subprocess.run(
        [sys.executable, str(SUPPORT)],
        input=json.dumps({"model": str(model), "scenarios": asked}),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ},
    )
    marked = [line for line in ended.stdout.splitlines() if line.startswith("TRACES ")]
    if ended.returncode != 0 or not marked:
        raise RuntimeError(f"vLLM's scheduler did not run:\n{ended.stderr[-3000:]}")
    traces: list[Trace] = json.loads(marked[0].removeprefix("TRACES "))
    return traces


# -- comparison --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How many of ``steps`` are equal in batch, preemptions and prefix hits, and how many in free blocks too."""

    steps: int
    equal: int
    equal_with_blocks: int
    preemptions: int
    hit_tokens: int
    chunks: int

    @property
    def ratio(self) -> float:
        return self.equal / self.steps if self.steps else 1.0

    def __add__(self, other: Agreement) -> Agreement:
        names = ("steps", "equal", "equal_with_blocks", "preemptions", "hit_tokens", "chunks")
        return Agreement(**{name: getattr(self, name) + getattr(other, name) for name in names})


NO_STEPS = Agreement(steps=0, equal=0, equal_with_blocks=0, preemptions=0, hit_tokens=0, chunks=0)


def agreement(ours: Trace, theirs: Trace) -> Agreement:
    """Compare step by step; a step that only one of them has is unequal."""
    equal = with_blocks = hits = chunks = 0
    begun: set[str] = set()
    for index, step in enumerate(theirs):
        for name, tokens in step["tokens"].items():
            if name not in begun:
                begun.add(name)
                hits += step["starts"][name]
            elif tokens > 1:
                chunks += 1
        if index < len(ours):
            same = all(ours[index][what] == step[what] for what in ("tokens", "starts", "preemptions"))
            equal += same
            with_blocks += same and ours[index]["free"] == step["free"]
    return Agreement(
        steps=max(len(ours), len(theirs)),
        equal=equal,
        equal_with_blocks=with_blocks,
        preemptions=theirs[-1]["preemptions"] if theirs else 0,
        hit_tokens=hits,
        chunks=chunks,
    )
