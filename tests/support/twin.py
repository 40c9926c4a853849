"""Small twins whose steps take round times, so that tests can say what must happen when."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isclose
from typing import TYPE_CHECKING, Any

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.plan.timing import RooflineStepTime
from roadworthy.twin.config import TwinConfig
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import EngineStats, Finished, Output, TwinRequest
from roadworthy.twin.times import TokenTimes

if TYPE_CHECKING:
    from roadworthy.twin.engine import Engine

STEP_S = 0.01
FULL_16 = CacheLayout(groups=(CacheGroup(kind="full", block_tokens=16, layers=4),), bytes_per_block=(1,))


def step_time(
    *, step_s: float = STEP_S, stages: int = 1, token_s: float = 0.0, context_token_s: float = 0.0
) -> RooflineStepTime:
    """A step that takes ``step_s``, plus ``token_s`` a token and ``context_token_s`` a token of decode context."""
    return RooflineStepTime(
        pipeline_stages=stages,
        launch_s=step_s,
        fixed_weight_bytes=0,
        expert_weight_bytes=0,
        expert_pick_ratio=0,
        kv_bytes_per_context_token=context_token_s,
        state_bytes_per_sequence=0,
        flops_per_token=0,
        flops_per_context_pair=0,
        hbm_bytes_per_s=1,
        flops_per_s=1,
        comm_bytes_per_token=token_s,
        link_bytes_per_s=1,
        comm_latency_s=0,
    )


def config(**changes: Any) -> TwinConfig:
    """A twin with blocks of 16 tokens, 1,000 of them, and steps of 10 ms."""
    base = TwinConfig(
        models=("fake-model",),
        cache=FULL_16,
        kv_blocks=1001,
        max_num_seqs=8,
        max_num_batched_tokens=256,
        max_model_len=1024,
        step_time=step_time(),
    )
    return replace(base, **changes)


def request(name: str, prompt: int, output: int, **more: Any) -> TwinRequest:
    """A request whose prompt nobody shares."""
    return TwinRequest(id=name, segments=(Segment(f"prompt {name}", prompt),), output_tokens=output, **more)


def drain(engine: Engine, limit: int = 100_000) -> list[Output]:
    """Everything that comes out until the engine is idle."""
    outputs: list[Output] = []
    for _ in range(limit):
        at_s = engine.next_event_s()
        if at_s is None:
            return outputs
        outputs += engine.advance(at_s)
    raise AssertionError("the engine does not come to rest")


def ends(outputs: list[Output]) -> dict[str, Finished]:
    """How each finished request went."""
    return {output.request_id: output.finished for output in outputs if output.finished is not None}


Run = tuple[list[Output], EngineStats]


def assert_alike(one: Run, other: Run) -> None:
    """Two runs put out the same tokens of the same requests and counted the same; their moments agree to a part in a
    billion, for a sum of many step times depends in its last bits on the order of adding."""
    for ours, theirs in zip(_by_moment(one[0]), _by_moment(other[0]), strict=True):
        assert ours.request_id == theirs.request_id
        assert isclose(ours.at_s, theirs.at_s), (ours, theirs)
        if ours.finished is None or theirs.finished is None:
            assert ours.finished is theirs.finished
            continue
        _assert_close(ours.finished._asdict(), theirs.finished._asdict(), ours.request_id)
        times_s, expected_s = ours.finished.token_times_s, theirs.finished.token_times_s
        assert len(times_s) == len(expected_s)
        assert all(map(isclose, times_s, expected_s)), ours.request_id
    _assert_close(asdict(one[1]), asdict(other[1]), "counters")


def _assert_close(ours: dict[str, Any], theirs: dict[str, Any], what: str) -> None:
    for name, expected in theirs.items():
        if isinstance(expected, float):
            assert isclose(ours[name], expected, abs_tol=1e-12), (what, name, ours[name], expected)
        elif not isinstance(expected, TokenTimes):
            assert ours[name] == expected, (what, name, ours[name], expected)


def _by_moment(outputs: list[Output]) -> list[Output]:
    """Outputs by time, those of one step by request."""
    return sorted(outputs, key=lambda output: (round(output.at_s, 7), output.request_id))
