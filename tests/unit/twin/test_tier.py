"""Blocks that the pool evicts, kept in host memory and loaded back."""

from __future__ import annotations

import pytest

from roadworthy.twin.engine import Engine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import Finished, TwinRequest
from support.twin import STEP_S, config, drain, ends, step_time


def ask(engine: Engine, name: str, text: str, at_s: float, tokens: int = 161) -> Finished:
    engine.add(TwinRequest(id=name, segments=(Segment(text, tokens),), output_tokens=1), at_s)
    return ends(drain(engine))[name]


def tiered(blocks: int, **more: object) -> Engine:
    """Room for two prompts of ten blocks in the pool."""
    return Engine(config(kv_blocks=24, max_model_len=256, offload_blocks=blocks, **more))


@pytest.mark.parametrize(("blocks", "cached"), [(0, 0), (100, 160), (20, 160), (5, 0)])
def test_a_prompt_that_the_pool_has_evicted_is_found_in_the_tier(blocks: int, cached: int) -> None:
    """Of a tier that is too small the least recently stored blocks are gone."""
    engine = tiered(blocks)
    ask(engine, "first", "a", 0.0)
    for index in range(3):
        ask(engine, str(index), f"other {index}", 1.0 + index)
    assert ask(engine, "again", "a", 10.0).cached_tokens == cached


def test_loading_lengthens_the_step_that_takes_the_request_in() -> None:
    engine = tiered(100, offload_tokens_per_s=1000.0, step_time=step_time())
    ask(engine, "first", "a", 0.0)
    for index in range(3):
        ask(engine, str(index), f"other {index}", 1.0 + index)
    done = ask(engine, "again", "a", 10.0)
    assert done.first_token_s - 10.0 == pytest.approx(STEP_S + 160 / 1000)


def test_what_is_loaded_is_found_in_the_pool_the_next_time() -> None:
    engine = tiered(100, offload_tokens_per_s=1000.0, step_time=step_time())
    ask(engine, "first", "a", 0.0)
    for index in range(3):
        ask(engine, str(index), f"other {index}", 1.0 + index)
    ask(engine, "again", "a", 10.0)
    assert ask(engine, "once more", "a", 20.0).first_token_s - 20.0 == pytest.approx(STEP_S)


def test_blocks_are_conserved_with_a_tier() -> None:
    engine = tiered(15)
    for index in range(40):
        ask(engine, str(index), f"text {index % 7}", float(index))
        pool = engine._scheduler.pool
        assert pool.free_blocks == 23
        assert pool.tier is not None
        assert pool.tier.stored <= 15


def test_a_cache_of_several_kinds_is_not_offloaded() -> None:
    from support.scheduling import WINDOWS, layout_of

    with pytest.raises(ValueError, match="only a cache of one full-context group"):
        config(cache=layout_of(WINDOWS), offload_blocks=10)
