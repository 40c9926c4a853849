"""Laws of the twin over random engines and traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.blocks import NOTHING, BlockPool
from roadworthy.twin.engine import Engine
from roadworthy.twin.lane import Lane
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import EngineStats, Output, TwinRequest
from roadworthy.twin.runs import holders_runs
from roadworthy.twin.times import NO_TIMES
from support.twin import FULL_16, assert_alike, config, ends, step_time

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig

HYBRID = CacheLayout(
    groups=(
        CacheGroup(kind="full", block_tokens=32, layers=1),
        CacheGroup(kind="window", block_tokens=8, layers=1, window_tokens=31),
        CacheGroup(kind="state", block_tokens=32, layers=1, resident_blocks=2, admission_blocks=3),
    ),
    bytes_per_block=(1,),
)
TWO_SIZES = CacheLayout(
    groups=(
        CacheGroup(kind="full", block_tokens=16, layers=1),
        CacheGroup(kind="full", block_tokens=24, layers=1),
    ),
    bytes_per_block=(1,),
)


@st.composite
def engines(draw: st.DrawFn, caches: tuple[CacheLayout, ...] = (FULL_16, HYBRID, TWO_SIZES)) -> TwinConfig:
    cache = draw(st.sampled_from(caches))
    max_model_len = draw(st.integers(40, 300))
    budget = draw(st.integers(8, 200))
    stages = draw(st.integers(1, 3))
    least = sum(
        max(group.held(max_model_len), group.admitted(max_model_len, (stages + 1) * budget)) for group in cache.groups
    )
    return config(
        cache=cache,
        max_model_len=max_model_len,
        kv_blocks=least + 1 + draw(st.integers(0, 2 * least)),
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=budget,
        enable_prefix_caching=draw(st.booleans()),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        late_admission=draw(st.booleans()),
        step_time=step_time(step_s=0.01, stages=stages, token_s=1e-4, context_token_s=1e-6),
    )


@st.composite
def traffic(draw: st.DrawFn, max_model_len: int) -> list[tuple[float, TwinRequest, float | None]]:
    """Requests by time of arrival, each with the moment its client leaves, if it does."""
    asked, at_s = [], 0.0
    for index in range(draw(st.integers(1, 12))):
        at_s += draw(st.sampled_from([0.0, 0.0, 0.004, 0.013, 0.1]))
        shared = draw(st.integers(0, max_model_len // 3))
        own = draw(st.integers(1, max_model_len // 2))
        segments = (*((Segment("system", shared),) if shared else ()), Segment(f"prompt {index}", own))
        request = TwinRequest(
            id=str(index),
            segments=segments,
            output_tokens=draw(st.integers(1, max_model_len)),
            priority=draw(st.integers(0, 2)),
        )
        leaves = draw(st.sampled_from([None, None, None, 0.02, 0.25]))
        asked.append((at_s, request, None if leaves is None else at_s + leaves))
    return asked


def play(
    twin: TwinConfig, asked: list[tuple[float, TwinRequest, float | None]], *, check: Any = None, **how: Any
) -> tuple[list[Output], EngineStats]:
    """Run the traffic to the end; ``check`` sees the engine at every event."""
    engine = Engine(twin, **how)
    outputs: list[Output] = []
    plan: list[tuple[float, int, Any]] = [(at_s, order, request) for order, (at_s, request, _) in enumerate(asked)]
    plan += [
        (left_s, 1000 + order, request.id) for order, (_, request, left_s) in enumerate(asked) if left_s is not None
    ]

    def go(until_s: float) -> None:
        while (at_s := engine.next_event_s()) is not None and at_s <= until_s:
            outputs.extend(engine.advance(at_s))
            if check is not None:
                check(engine)

    for at_s, _, what in sorted(plan, key=lambda item: item[:2]):
        go(at_s)
        if isinstance(what, TwinRequest):
            engine.add(what, at_s)
        else:
            engine.abort(what, at_s)
        if check is not None:
            check(engine)
    go(1e9)
    return outputs, engine.stats()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_repeated_steps_give_exactly_what_scheduling_each_step_gives(data: st.DataObject) -> None:
    """With one kind of cache. With windows or states a lane is a block generous, and of equal prefixes cached while
    decoding with several block sizes another copy may answer; see the next law."""
    twin = data.draw(engines((FULL_16,)))
    asked = data.draw(traffic(twin.max_model_len))
    for detail in ("requests", "tokens"):
        assert_alike(play(twin, asked, detail=detail), play(twin, asked, detail=detail, repeat_steps=False))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_many_steps_at_once_end_like_one_at_a_time(data: st.DataObject) -> None:
    """Telling every token makes every step an event of its own."""
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))
    runs = [play(twin, asked, detail=detail) for detail in ("requests", "tokens")]
    told = [[output for output in outputs if output.finished is not None] for outputs, _ in runs]
    ended = [
        [output._replace(finished=output.finished._replace(tokens=NO_TIMES)) for output in outputs if output.finished]
        for outputs in told
    ]
    assert_alike((ended[0], runs[0][1]), (ended[1], runs[1][1]))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_blocks_are_conserved_and_none_is_held_at_the_end(data: st.DataObject) -> None:
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))

    def check(engine: Engine) -> None:
        pool, holdings = engine._scheduler.pool, [seq.holding for seq in engine._sequences.values()]
        parts = [part for holding in holdings for part in holding.parts]
        used = {id(run): run.hi - run.lo for part in parts for hold in part.holds for run in holders_runs(hold)}
        bare = sum(part.held - part.hashed for part in parts)
        # what a lane has taken for its members and not yet noted on each of them
        noted = [lane_blocks(lane) for lane in (*engine._in_flight, engine._resting) if isinstance(lane, Lane)]
        assert pool.unused_blocks >= 0
        assert pool.free_blocks + sum(used.values()) + bare + sum(noted) == twin.kv_blocks - 1
        assert all(part.held >= part.hashed >= 0 for part in parts)

    _, stats = play(twin, asked, check=check)
    assert stats.kv_usage_ratio == 0


def lane_blocks(lane: Lane) -> int:
    """Blocks that members' parts do not show yet: those of the steps since they joined or were last looked at."""
    missing = 0
    for seq in lane.members:
        ahead = lane.started - seq.joined
        for group, part in zip(lane._pool.groups, seq.holding.parts, strict=True):
            if not group.most_decoding():
                missing += group.lacks(part, seq.computed + ahead)
    return missing


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_running_requests_hold_what_the_shared_function_says(data: st.DataObject) -> None:
    """While decoding, a request's blocks are ``CacheLayout.held_blocks`` of the tokens it has or is computing."""
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))

    def check(engine: Engine) -> None:
        for lane in engine._in_flight:
            for seq in tuple(lane.members) if isinstance(lane, Lane) else ():
                seq.tell()
                context = seq.computed + lane.started - lane.steps
                kept = 0
                for group, part in zip(twin.cache.groups, seq.holding.parts, strict=True):
                    if group.kind == "full":
                        assert part.held == group.held(context)
                    else:
                        assert part.held >= group.held(context) or group.kind == "state"
                    kept += part.held
                assert kept <= twin.cache.held_blocks(1 << 30) or twin.cache.groups[0].kind == "full"

    play(twin, asked, check=check)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_every_request_that_nobody_aborts_ends_with_all_its_tokens(data: st.DataObject) -> None:
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))
    outputs, stats = play(twin, asked)
    done = ends(outputs)
    for at_s, request, left_s in asked:
        finished = done.get(request.id)
        if finished is None:
            assert left_s is not None
            continue
        room = twin.max_model_len - request.prompt_tokens
        assert finished.output_tokens == len(finished.token_times_s) == min(request.output_tokens, room)
        assert list(finished.token_times_s) == sorted(finished.token_times_s)
        assert at_s == finished.queued_s <= finished.scheduled_s < finished.first_token_s
        assert finished.cached_tokens < request.prompt_tokens
    assert len(done) + stats.finished["abort"] == len(asked)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_limits_hold_in_every_step(data: st.DataObject) -> None:
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))

    def check(engine: Engine) -> None:
        batches = engine._in_flight
        decoding = [seq for batch in batches if isinstance(batch, Lane) for seq in batch.members]
        sampling = [seq for batch in batches for seq, entry in batch.entries.items() if entry.samples]
        assert len(decoding) + len(sampling) == len({*decoding, *sampling}), "a request puts out one token at a time"
        stages = twin.step_time.pipeline_stages
        assert len(batches) <= stages + (stages > 1 and twin.late_admission)
        assert len(engine._scheduler.running) <= twin.max_num_seqs
        for batch in batches:
            tokens = sum(entry.tokens for entry in batch.entries.values())
            tokens += len(batch.members) if isinstance(batch, Lane) else 0
            assert tokens <= twin.max_num_batched_tokens

    play(twin, asked, check=check)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_the_same_traffic_gives_the_same_run(data: st.DataObject) -> None:
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))
    assert play(twin, asked) == play(twin, asked)


@given(
    cache=st.sampled_from([FULL_16, HYBRID, TWO_SIZES]),
    prompt=st.integers(1, 200),
    chunk=st.integers(1, 64),
)
@settings(max_examples=100, deadline=None)
def test_a_prompt_in_chunks_never_holds_more_than_was_reserved(cache: CacheLayout, prompt: int, chunk: int) -> None:
    """The admission check charges the peak, so prefill never finds the pool short of what it was promised."""
    pool = BlockPool(cache, 10_000, enable_prefix_caching=False, in_flight_tokens=chunk, longest=prompt)
    reserved = sum(max(group.held(prompt), group.admitted(prompt, chunk)) for group in cache.groups)
    holding = pool.holding((), prompt)
    computed = min(chunk, prompt)
    assert pool.admit(holding, NOTHING, new_tokens=computed, tokens=prompt)
    while computed < prompt:
        step = min(chunk, prompt - computed)
        assert pool.grow(holding, computed=computed, new_tokens=step, settled=computed, known=prompt, lookahead=0)
        computed += step
        assert sum(part.held for part in holding.parts) <= reserved


@given(
    st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=25),
    st.integers(64, 512),
    st.sampled_from([1, 1, 2, 3, 4]),
)
@settings(max_examples=100, deadline=None)
def test_late_admission_times_tokens_as_asynchronous_scheduling_does(
    asked: list[tuple[float, int, int]], budget: int, stages: int
) -> None:
    """Where seats and blocks are plenty; it is kept in lanes, the other is not."""
    seen = []
    for changes in ({"late_admission": True}, {"async_scheduling": True}):
        twin = config(
            max_num_seqs=32,
            kv_blocks=5001,
            max_num_batched_tokens=budget,
            enable_prefix_caching=False,
            step_time=step_time(stages=stages, token_s=1e-4),
            **changes,
        )
        engine = Engine(twin)
        outputs, now_s = [], 0.0
        for number, (gap_s, prompt, output) in enumerate(asked):
            now_s += gap_s
            outputs += engine.advance(now_s)
            segments = (Segment(f"prompt {number}", prompt),)
            engine.add(TwinRequest(id=str(number), segments=segments, output_tokens=output), now_s)
        while (due_s := engine.next_event_s()) is not None:
            outputs += engine.advance(due_s)
        seen.append({name: (done.first_token_s, done.last_token_s) for name, done in ends(outputs).items()})
    late, exact = seen
    assert late.keys() == exact.keys()
    for name, moments in exact.items():
        assert late[name] == pytest.approx(moments)
