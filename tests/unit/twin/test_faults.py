"""What each fault does to requests, and that an engine without faults is the plain one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from roadworthy.core.errors import Refused
from roadworthy.twin.engine import Engine
from roadworthy.twin.faults import Fault, FaultyEngine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import TwinRequest
from support.twin import STEP_S, assert_alike, config, drain, ends, request, step_time


def test_without_faults_it_is_the_plain_engine() -> None:
    engines = [Engine(config()), FaultyEngine(config(), ())]
    runs = []
    for engine in engines:
        for index in range(5):
            engine.add(request(str(index), 50 + index, 40), 0.0)
        runs.append((drain(engine), engine.stats()))
    assert_alike(runs[0], runs[1])


def test_a_crash_loses_every_request_and_says_how_far_it_was() -> None:
    engine = FaultyEngine(config(max_num_seqs=1), [Fault(kind="crash", from_s=0.055, until_s=10.0)])
    engine.add(request("runs", 10, 100), 0.0)
    engine.add(request("waits", 10, 100), 0.0)
    lost = ends(list(engine.advance(1.0)))
    assert {name: (end.reason, end.output_tokens) for name, end in lost.items()} == {
        "runs": ("abort", 5),
        "waits": ("abort", 0),
    }
    assert lost["runs"].last_token_s == pytest.approx(5 * STEP_S)
    assert (engine.down, engine.next_event_s(), engine.stats().finished["abort"]) == (True, None, 2)
    assert engine.stats().kv_usage_ratio == 0


def test_a_crash_is_an_event_of_its_own() -> None:
    """The driver must hear of it in time, between two tokens."""
    engine = FaultyEngine(config(), [Fault(kind="crash", from_s=0.055, until_s=10.0)])
    engine.add(request("a", 10, 100), 0.0)
    engine.advance(STEP_S)
    assert engine.next_event_s() == 0.055
    (lost,) = engine.advance(5.0, stop_at_output=True)
    assert lost.at_s == 0.055


def test_a_crashed_engine_refuses_until_it_is_back_and_has_forgotten_its_prefixes() -> None:
    engine = FaultyEngine(config(), [Fault(kind="crash", from_s=1.0, until_s=60.0)])
    engine.add(request("before", 64, 1), 0.0)
    drain(engine)
    with pytest.raises(Refused, match="down") as refusal:
        engine.add(request("during", 64, 1), 30.0)
    assert (refusal.value.code, refusal.value.status) == ("engine_down", 503)
    engine.add(TwinRequest(id="after", segments=(Segment("prompt before", 64),), output_tokens=1), 60.0)
    assert ends(drain(engine))["after"].cached_tokens == 0


def test_a_slow_engine_takes_longer_while_it_lasts() -> None:
    """Twice as slow from 0.1 to 0.3 s: 10 tokens, then 10 in the next 0.2 s, then a token a step again."""
    engine = FaultyEngine(config(), [Fault(kind="slow", from_s=0.1, until_s=0.3, size=2.0)])
    engine.add(request("a", 10, 30), 0.0)
    times_s = ends(drain(engine))["a"].token_times_s
    assert sum(at_s <= 0.1 + 1e-9 for at_s in times_s) == 10
    # a step under way when the fault begins or ends keeps its time
    assert sum(0.1 + 1e-9 < at_s <= 0.3 + 1e-9 for at_s in times_s) in (10, 11)
    assert times_s[-1] - times_s[-2] == pytest.approx(STEP_S)


def test_one_slow_stage_sets_the_pace_of_the_pipeline() -> None:
    """Four full batches through stages of 10 ms: one of 20 ms lets through one batch every 20 ms, not 10."""
    twin = config(step_time=step_time(step_s=0.04, stages=4), max_num_batched_tokens=10)
    plain, slow = FaultyEngine(twin, ()), FaultyEngine(twin, [Fault(kind="slow", from_s=0.0, size=2.0, stage=2)])
    for engine in (plain, slow):
        engine.advance(0.0)
        for index in range(4):
            engine.add(request(str(index), 10, 50), 0.0)
    rates = [200 / max(end.last_token_s for end in ends(drain(engine)).values()) for engine in (plain, slow)]
    assert rates[0] / rates[1] == pytest.approx(2, rel=0.1)


def test_a_degraded_link_costs_what_steps_send() -> None:
    twin = config(step_time=step_time(step_s=0.01, token_s=1e-4))
    engine = FaultyEngine(twin, [Fault(kind="link", from_s=0.0, size=10.0)])
    engine.advance(0.0)
    engine.add(request("a", 100, 2), 0.0)
    first_s, second_s = ends(drain(engine))["a"].token_times_s
    assert first_s == pytest.approx(0.01 + 100 * 1e-3)
    assert second_s - first_s == pytest.approx(0.01 + 1e-3)


def test_hot_experts_lengthen_steps_that_compute() -> None:
    routed = replace(
        step_time(), routed_flops_per_token=1e-3, expert_weight_bytes=1e-9, expert_pick_ratio=0.1, flops_per_s=1.0
    )
    times_s = []
    for faults in ((), (Fault(kind="hot-experts", from_s=0.0, size=1.0),)):
        engine = FaultyEngine(config(step_time=routed), faults)
        engine.advance(0.0)
        engine.add(request("a", 100, 1), 0.0)
        times_s.append(ends(drain(engine))["a"].first_token_s)
    assert times_s[0] == pytest.approx(0.01 + 0.1)
    assert times_s[1] == pytest.approx(0.01 + 0.2), "the fullest rank has twice the mean"


def test_a_leak_takes_blocks_until_a_request_that_would_have_fitted_waits_for_ever() -> None:
    leaking = FaultyEngine(config(kv_blocks=101), [Fault(kind="leak", from_s=0.0, until_s=100.0, size=10.0)])
    leaking.advance(0.0)
    leaking.add(request("a", 100, 50), 0.0)
    assert list(ends(list(leaking.advance(6.0)))) == ["a"]
    assert leaking.leaked_blocks == 60
    leaking.add(request("big", 700, 1), 6.0)
    leaking.advance(7.0)
    assert leaking.stats().waiting == 1, "44 blocks are needed, and were there before the leak"
    leaking.advance(100.0)
    assert leaking.stats().kv_usage_ratio == 1
    assert leaking.leaked_blocks == 100


def test_a_restart_gives_leaked_blocks_back() -> None:
    faults = [Fault(kind="leak", from_s=0.0, until_s=5.0, size=10.0), Fault(kind="crash", from_s=6.0, until_s=7.0)]
    engine = FaultyEngine(config(), faults)
    engine.add(request("a", 10, 900), 0.0)
    engine.advance(6.5)
    assert (engine.leaked_blocks, engine.stats().kv_usage_ratio) == (0, 0)


def test_a_share_of_streams_is_refused_and_it_is_the_same_each_time() -> None:
    def taken() -> list[str]:
        engine = FaultyEngine(config(), [Fault(kind="refuse", from_s=0.0, until_s=9.0, size=0.3)])
        names = []
        for index in range(400):
            try:
                engine.add(request(str(index), 10, 1), 1.0)
            except Refused:
                continue
            names.append(str(index))
        assert engine.stats().refused == 400 - len(names)
        return names

    assert len(taken()) == pytest.approx(280, abs=30)
    assert taken() == taken()


def test_a_forgotten_cache_is_computed_again() -> None:
    engine = FaultyEngine(config(), [Fault(kind="forget", from_s=2.0)])
    cached = []
    for index, at_s in enumerate((0.0, 1.0, 3.0)):
        engine.add(TwinRequest(id=str(index), segments=(Segment("same", 64),), output_tokens=1), at_s)
        cached.append(ends(drain(engine))[str(index)].cached_tokens)
    assert cached == [0, 48, 0]


def test_faults_change_no_request_that_is_long_gone() -> None:
    engine = FaultyEngine(config(), [Fault(kind="crash", from_s=50.0)])
    engine.add(request("a", 10, 5), 0.0)
    assert ends(drain(engine))["a"].reason == "length"
    assert engine.next_event_s() is None


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "crash", "from_s": 2.0, "until_s": 1.0}, "ends before it begins"),
        ({"kind": "slow", "from_s": 0.0, "size": 0.5}, "at least 1"),
        ({"kind": "refuse", "from_s": 0.0, "size": 1.5}, "0 to 1"),
        ({"kind": "leak", "from_s": 0.0, "size": -1}, "0 or more"),
        ({"kind": "link", "from_s": 0.0, "size": 2, "stage": 1}, "only slow knows stages"),
    ],
)
def test_a_fault_that_means_nothing_is_refused(fault: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Fault(**fault)  # type: ignore[arg-type]


def test_a_stage_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="stages 0 to 0"):
        FaultyEngine(config(), [Fault(kind="slow", from_s=0.0, size=2.0, stage=1)])


def test_a_fault_without_end_lasts() -> None:
    assert Fault(kind="slow", from_s=0.0, size=2.0).until_s == math.inf
