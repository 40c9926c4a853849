"""The lines of an engine's metrics page that routing reads."""

from __future__ import annotations

import pytest

from roadworthy.gateway.scrape import Scrape, read_metrics

PAGE = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="101"} 1.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="1",num_gpu_blocks="101"} 1.0
process_start_time_seconds 1.79e+09
"""


def test_ranks_add_up_and_the_fullest_pool_counts() -> None:
    assert read_metrics(PAGE) == Scrape(
        running=7,
        waiting=2,
        kv_usage_ratio=0.75,
        loaded=True,
        kv_tokens=3200,
        kv_blocks=200,
        block_tokens=16,
        asleep=False,
        started_s=1.79e9,
    )


def test_the_first_and_the_last_line_of_a_page_count_too() -> None:
    assert read_metrics(b"vllm:num_requests_running 3").running == 3
    assert read_metrics(b"x 1\nvllm:num_requests_running 3").running == 3


def test_an_engine_whose_one_rank_sleeps_is_asleep() -> None:
    page = PAGE.replace(b'sleep_state="awake"} 1.0', b'sleep_state="awake"} 0.0')
    assert read_metrics(page).asleep


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"not metrics",
        b"vllm:num_requests_running NaN\n",
        b"vllm:num_requests_running x\n",
        b"vllm:num_requests_running -1\n",
        b"vllm:num_requests_running 1e300\n",
        b"vllm:num_requests_running",
        b"vllm:num_requests_running_total 3\n",
        b"# vllm:num_requests_running 3\n",
    ],
)
def test_a_page_that_says_nothing_is_zero(page: bytes) -> None:
    assert read_metrics(page) == Scrape()


@pytest.mark.parametrize("blocks", [b"", b',num_gpu_blocks="None"', b',num_gpu_blocks="1"'])
def test_a_pool_that_is_not_told_is_unknown(blocks: bytes) -> None:
    page = b'vllm:cache_config_info{block_size="16"%b} 1.0\n' % blocks
    assert read_metrics(page) == Scrape(block_tokens=16)


def test_without_prefix_caching_a_pool_holds_nothing_to_find_again() -> None:
    page = b'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",num_gpu_blocks="101"} 1.0\n'
    assert read_metrics(page) == Scrape(block_tokens=16, kv_tokens=0, kv_blocks=100)


def test_a_usage_above_one_is_one() -> None:
    assert read_metrics(b"vllm:kv_cache_usage_perc 1.02\n").kv_usage_ratio == 1.0
