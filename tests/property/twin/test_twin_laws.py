"""Laws of the twin over random engines and traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.blocks import BlockPool, Holding
from roadworthy.twin.engine import Engine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import EngineStats, Output, TwinRequest
from support.twin import FULL_16, config, ends, step_time

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
def engines(draw: st.DrawFn) -> TwinConfig:
    cache = draw(st.sampled_from([FULL_16, HYBRID, TWO_SIZES]))
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
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))
    for detail in ("requests", "tokens"):
        assert play(twin, asked, detail=detail) == play(twin, asked, detail=detail, repeat_steps=False)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_blocks_are_conserved_and_none_is_held_at_the_end(data: st.DataObject) -> None:
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))

    def check(engine: Engine) -> None:
        pool, holdings = engine._scheduler.pool, [seq.holding for seq in engine._sequences.values()]
        distinct = {id(unit) for holding in holdings for unit in holding.units}
        private = sum(holding.private_blocks for holding in holdings)
        assert all(holding.private_blocks >= 0 for holding in holdings)
        assert pool.free_blocks + len(distinct) * pool.unit_blocks + private == twin.kv_blocks - 1
        assert pool.shared_blocks == len(distinct) * pool.unit_blocks
        assert pool.unused_blocks >= 0

    _, stats = play(twin, asked, check=check)
    assert stats.kv_usage_ratio == 0


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_running_requests_hold_what_the_shared_function_says(data: st.DataObject) -> None:
    """While decoding, a request's blocks are ``CacheLayout.held_blocks`` of the tokens it has or is computing."""
    twin = data.draw(engines())
    asked = data.draw(traffic(twin.max_model_len))

    def check(engine: Engine) -> None:
        pool = engine._scheduler.pool
        for batch in engine._in_flight:
            for seq in batch.decodes:
                context = seq.computed + len(batch.ends_s) + 1
                held = len(seq.holding.units) * pool.unit_blocks + seq.holding.private_blocks
                if seq.holding.covered_tokens:  # else resumed from the cache in this very step
                    assert held == twin.cache.held_blocks(context)

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
        members = [seq for batch in batches for seq in (*batch.decodes, *(seq for seq, _ in batch.prefills))]
        assert len(members) == len(set(map(id, members))), "a request is in at most one batch"
        assert len(batches) <= twin.step_time.pipeline_stages
        assert len(engine._scheduler.running) <= twin.max_num_seqs
        for batch in batches:
            tokens = len(batch.decodes) + sum(tokens for _, tokens in batch.prefills)
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
    pool = BlockPool(cache, 10_000, enable_prefix_caching=False)
    reserved = sum(max(group.held(prompt), group.admitted(prompt, chunk)) for group in cache.groups)
    holding = Holding([])
    computed = min(chunk, prompt)
    assert pool.admit(holding, [], new_tokens=computed, tokens=prompt, in_flight_tokens=chunk)
    while computed < prompt:
        step = min(chunk, prompt - computed)
        assert pool.grow(holding, computed_tokens=computed, new_tokens=step, decoding=False)
        computed += step
        assert holding.private_blocks <= reserved
