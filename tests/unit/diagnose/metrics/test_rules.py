"""What series over time say: each reading with the same curve slightly changed, so that it says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from fakes.prometheus import answer, series
from roadworthy.diagnose.examine import examine
from roadworthy.diagnose.metrics import series_clues
from roadworthy.diagnose.metrics.answers import AnswerReader
from roadworthy.diagnose.verdict import verdict_of

if TYPE_CHECKING:
    from roadworthy.diagnose.values import Clue

T0 = 1_793_592_000.0
N = 240
ENGINE = {"instance": "10.1.0.7:8000", "engine": "0", "model_name": "m"}
GPU = {"gpu": "3", "UUID": "GPU-1", "Hostname": "node-3", "pci_bus_id": "00000000:DD:00.0"}


def one(name: str, values: Sequence[float], labels: Mapping[str, str] = ENGINE) -> dict[str, Any]:
    return series(name, values, start_s=T0, **labels)


def clues(*some: Mapping[str, Any]) -> dict[str, Clue]:
    found = list(AnswerReader("q.json").feed(answer(*some).encode()))
    return {clue.name: clue for clue in series_clues(found)}


def counter(*rates: tuple[int, float]) -> list[float]:
    """A counter that grows by each rate a point for so many points."""
    values, now = [0.0], 0.0
    for points, rate in rates:
        for _ in range(points):
            now += rate
            values.append(now)
    return values


def pool(
    usage: Sequence[float], running: Sequence[float], waiting: Sequence[float], preempted: Sequence[float]
) -> list[Any]:
    return [
        one("vllm:kv_cache_usage_perc", usage), one("vllm:num_requests_running", running),
        one("vllm:num_requests_waiting", waiting), one("vllm:num_preemptions_total", preempted),
    ]  # fmt: skip


def test_a_full_pool_that_preempts_is_named_with_the_moment_it_began() -> None:
    usage = [0.3] * 100 + [0.97] * 80 + [0.5] * 60
    found = clues(*pool(usage, [30] * N, [0] * N, counter((100, 0), (80, 2), (60, 0))))
    clue = found["kv.full-and-preempting"]
    assert clue.time_s == T0 + 100 * 15
    assert clue.values["preemptions"] == "160"
    assert clue.host == "10.1.0.7"
    assert "kv.has-room" not in found


def test_one_preemption_in_an_hour_is_no_storm_and_a_roomy_pool_says_so() -> None:
    usage = [0.3] * 100 + [0.91] * 80 + [0.5] * 60
    assert not clues(*pool(usage, [30] * N, [0] * N, counter((110, 0), (1, 1), (129, 0))))
    assert set(clues(*pool([0.4] * N, [3] * N, [0] * N, [0.0] * N))) == {"kv.has-room"}


def test_preemptions_before_the_pool_was_full_are_not_its_own() -> None:
    usage = [0.3] * 200 + [0.95] * 40
    assert "kv.full-and-preempting" not in clues(*pool(usage, [9] * N, [0] * N, counter((50, 3), (190, 0))))


def test_blocks_that_stay_taken_with_nothing_running_are_a_leak_and_a_short_pause_is_none() -> None:
    leak = pool([0.6] * 100 + [0.31] * 140, [8] * 100 + [0] * 140, [0] * N, [0.0] * N)
    clue = clues(*leak)["kv.full-while-idle"]
    assert clue.time_s == T0 + 100 * 15
    assert clue.values["usage"] == "31%"
    pause = pool([0.6] * 100 + [0.31] * 3 + [0.0] * 137, [8] * 100 + [0] * 140, [0] * N, [0.0] * N)
    assert "kv.full-while-idle" not in clues(*pause)


def test_a_prefill_engine_may_hold_blocks_for_its_peer_for_some_minutes() -> None:
    held = pool([0.6] * 100 + [0.31] * 30 + [0.0] * 110, [8] * 100 + [0] * 140, [0] * N, [0.0] * N)
    moves = one("vllm:nixl_num_failed_transfers", [0.0] * N)
    assert "kv.full-while-idle" in clues(*held)
    assert "kv.full-while-idle" not in clues(*held, moves)


def test_a_queue_beside_a_full_pool_is_named_and_one_beside_a_roomy_pool_grows() -> None:
    waiting = [0] * 120 + list(range(120))
    assert "kv.full-and-waiting" in clues(*pool([0.2] * 120 + [0.99] * 120, [9] * N, waiting, [0.0] * N))
    assert set(clues(*pool([0.5] * N, [9] * N, waiting, [0.0] * N))) == {"queue.growing", "kv.has-room"}


def test_the_hit_rate_is_of_the_latest_third_and_a_collapse_says_what_it_was() -> None:
    queries = one("vllm:prefix_cache_queries_total", counter((240, 1000)))
    found = clues(queries, one("vllm:prefix_cache_hits_total", counter((160, 600), (80, 10))))
    assert found["cache.collapsed"].values["before"] == "60%"
    assert "cache.few-hits" in found
    assert set(clues(queries, one("vllm:prefix_cache_hits_total", counter((240, 600))))) == {"cache.good-hits"}
    assert set(clues(queries, one("vllm:prefix_cache_hits_total", [0.0] * 241))) == {"cache.zero-hits"}
    assert not clues(
        one("vllm:prefix_cache_queries_total", counter((240, 1))), one("vllm:prefix_cache_hits_total", [0.0] * 241)
    )


def test_requests_that_run_without_a_token_are_a_stall_and_a_long_prefill_is_none() -> None:
    made = one("vllm:generation_tokens_total", counter((100, 50), (140, 0)))
    busy = one("vllm:num_requests_running", [4] * 241)
    clue = clues(made, busy, one("vllm:prompt_tokens_total", counter((100, 50), (140, 0))))["engine.stalled"]
    assert clue.time_s == T0 + 100 * 15
    assert "engine.stalled" not in clues(made, busy, one("vllm:prompt_tokens_total", counter((240, 50))))
    idle = one("vllm:num_requests_running", [4] * 100 + [0] * 141)
    assert "engine.stalled" not in clues(made, idle, one("vllm:prompt_tokens_total", counter((100, 50), (140, 0))))


def test_a_counter_that_falls_is_a_restart_and_counts_on() -> None:
    values = counter((100, 5)) + counter((100, 5))
    found = clues(one("vllm:generation_tokens_total", values), one("vllm:num_requests_running", [1] * len(values)))
    assert found["engine.restarted"].time_s == T0 + 101 * 15
    (read,) = AnswerReader("q").feed(answer(one("x_total", [0, 10, 4, 6])).encode())
    assert read.increase() == 16


def test_one_engine_slower_than_its_peers_at_no_more_load_is_named() -> None:
    def engine(rank: int, seconds: float, running: float = 8) -> list[Any]:
        labels = {**ENGINE, "engine": str(rank)}
        return [
            one("vllm:inter_token_latency_seconds_sum", counter((240, seconds * 100)), labels),
            one("vllm:inter_token_latency_seconds_count", counter((240, 100)), labels),
            one("vllm:num_requests_running", [running] * N, labels),
        ]

    even = [part for rank in range(3) for part in engine(rank, 0.02)]
    assert "rank.slow" not in clues(*even, *engine(3, 0.025))
    slow = clues(*even, *engine(3, 0.05))["rank.slow"]
    assert (slow.rank, slow.values["value"], slow.values["usual"]) == (3, "50 ms a token", "20 ms")
    assert "rank.slow" not in clues(*even, *engine(3, 0.05, running=60))


def test_experts_are_compared_by_what_they_got_meanwhile() -> None:
    def rank(number: int, rate: float) -> Any:
        return one("moe_tokens_per_rank_total", counter((240, rate)), {"rank": str(number)})

    some = [rank(number, 100) for number in range(7)]
    assert clues(*some, rank(7, 400))["moe.rank-overloaded"].values["rank"] == "7"
    assert "moe.rank-overloaded" not in clues(*some, rank(7, 120))


def clocks(
    speed: Sequence[float], reasons: Sequence[float], busy: Sequence[float], labels: Mapping[str, str] = GPU
) -> list[Any]:
    return [
        one("DCGM_FI_DEV_SM_CLOCK", speed, labels), one("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", reasons, labels),
        one("DCGM_FI_DEV_GPU_UTIL", busy, labels),
    ]  # fmt: skip


def test_a_gpu_that_falls_for_heat_at_work_is_named_and_an_idle_one_is_not() -> None:
    found = clues(*clocks([1980] * 100 + [900] * 140, [0] * 100 + [0x48] * 140, [99] * N))
    assert {"clocks.hw-thermal", "clocks.hw", "clocks.fell"} <= set(found)
    assert (found["clocks.fell"].values["mhz"], found["clocks.fell"].values["who"]) == ("900", "node-3, GPU 3")
    assert not clues(*clocks([1980] * 100 + [345] * 140, [0] * 100 + [1] * 140, [99] * 100 + [0] * 140))


def test_all_gpus_at_their_power_limit_are_at_full_load_and_one_alone_is_not() -> None:
    def gpu(number: int, capped: int) -> list[Any]:
        speed = [1980] * 50 + [1300 if capped else 1980] * 190
        return clocks(speed, [4 * capped] * N, [99] * N, {**GPU, "gpu": str(number), "UUID": f"GPU-{number}"})

    assert set(clues(*(part for number in range(4) for part in gpu(number, 1)))) == {"clocks.power-capped-evenly"}
    assert "clocks.power-capped-and-low" in clues(*(part for number in range(4) for part in gpu(number, number == 2)))


def test_an_xid_that_came_meanwhile_counts_and_one_from_before_does_not() -> None:
    found = clues(one("DCGM_FI_DEV_XID_ERRORS", [0] * 100 + [79] * 140, GPU))
    assert (found["gpu.xid"].values["xid"], found["gpu.xid"].host) == ("79", "node-3")
    assert not clues(one("DCGM_FI_DEV_XID_ERRORS", [79] * N, GPU))


@pytest.mark.parametrize(
    ("name", "values", "labels", "clue"),
    [
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", [0] * 9 + [3] * 9, GPU, "ecc.uncorrectable"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", [0] * 9 + [1] * 9, GPU, "ecc.remap-failed"),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", [0] * 9 + [4000] * 9, GPU, "nvlink.errors"),
        ("node_vmstat_oom_kill", [2] * 9 + [3] * 9, {"instance": "n1:9100"}, "kernel.oom-invoked"),
        ("node_timex_offset_seconds", [0.001] * 9 + [3.5] * 9, {"instance": "n1:9100"}, "clock.offset-large"),
        ("node_infiniband_state_id", [4] * 9 + [1] * 9, {"instance": "n1:9100", "device": "mlx5_0"}, "link.lost"),
        ("up", [1] * 9 + [0] * 9, {"instance": "n1:8000", "job": "vllm"}, "engine.unreachable"),
        ("kube_pod_container_status_restarts_total", [1] * 9 + [2] * 9, {"pod": "llm-0"}, "k8s.restarted"),
    ],
)  # fmt: skip
def test_a_change_within_the_range_is_a_clue_and_the_same_level_all_along_is_none(
    name: str, values: list[float], labels: dict[str, str], clue: str
) -> None:
    assert clue in clues(one(name, values, labels))
    assert clue not in clues(one(name, [values[0]] * 18, labels))


def test_counters_of_a_port_reach_the_rules_that_judge_two_readings() -> None:
    port = {"instance": "n1:9100", "device": "mlx5_0", "port": "1"}
    texts = {
        "q.json": answer(
            one("node_infiniband_link_downed_total", [3] * 9 + [5] * 9, port),
            one("node_infiniband_symbol_error_total", [0] * 9 + [900] * 9, port),
        )
    }
    book, judged = examine(texts)
    assert book.has("grew.link_downed")
    assert judged.findings[0].code == "rdma-link-flap"
    assert "node_infiniband" in judged.findings[0].evidence[0].text


def test_shared_memory_and_disks_are_judged_at_their_worst_moment() -> None:
    def mount(point: str, left: Sequence[float], size: float) -> list[Any]:
        labels = {"instance": "n1:9100", "mountpoint": point}
        return [
            one("node_filesystem_avail_bytes", left, labels),
            one("node_filesystem_size_bytes", [size] * len(left), labels),
        ]

    full = clues(*mount("/dev/shm", [9e9, 1e8, 9e9], 1e10), *mount("/", [5e11, 1e9, 1e9], 1e12))
    assert full["shm.full"].values["percent"] == "99"
    assert full["disk.full"].values["mount"] == "/"
    assert not clues(*mount("/data", [1e12] * 3, 2e13))


def test_an_engine_that_went_away_without_a_reason_is_not_healthy() -> None:
    book, judged = examine({"q.json": answer(one("up", [1] * 100 + [0] * 140, {"instance": "10.1.0.7:8000"}))})
    verdict = verdict_of(book, judged)
    assert verdict.status == "insufficient"
    assert verdict.capture_next
    book, judged = examine({"q.json": answer(one("up", [1] * N, {"instance": "10.1.0.7:8000"}))})
    assert verdict_of(book, judged).status == "healthy"


def test_nothing_is_said_of_a_healthy_fleet() -> None:
    healthy = [
        *pool([0.4, 0.6] * 120, [20, 22] * 120, [0, 1] * 120, [0.0] * N),
        one("vllm:generation_tokens_total", counter((240, 900))),
        one("vllm:prefix_cache_queries_total", counter((240, 900))),
        one("vllm:prefix_cache_hits_total", counter((240, 400))),
        *clocks([1980] * N, [0] * N, [95] * N),
        one("up", [1] * N, {"instance": "10.1.0.7:8000"}),
        one("DCGM_FI_DEV_XID_ERRORS", [0] * N, GPU),
    ]
    _, judged = examine({"q.json": answer(*healthy)})
    assert not judged.findings
