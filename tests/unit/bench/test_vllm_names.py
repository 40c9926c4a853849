"""The names and numbers of `vllm bench serve`: the same keys, computed the same way."""

from __future__ import annotations

import importlib.util
import re
import statistics
from pathlib import Path

import pytest

from roadworthy.advise.verdict import judge
from roadworthy.bench.vllm_names import vllm_details, vllm_summary
from roadworthy.spec.values import Sla
from support.records import record

RECORDS = [record(at / 4, ttft_s=0.1 + 0.01 * at, tpot_s=0.02, n_out=5 + at, tenant="t") for at in range(20)]
RECORDS.append(record(6.0, ok=False, error="HTTP 503: full"))


def test_statistics_are_milliseconds_over_completed_requests() -> None:
    found = vllm_summary(judge(RECORDS, Sla(), asked_rate_per_s=4.0), RECORDS)
    ttfts_ms = [100 + 10 * at for at in range(20)]
    assert found["mean_ttft_ms"] == pytest.approx(statistics.fmean(ttfts_ms))
    assert found["median_ttft_ms"] == pytest.approx(statistics.median(ttfts_ms))
    assert found["std_ttft_ms"] == pytest.approx(statistics.pstdev(ttfts_ms)), "numpy's std is of the population"
    assert found["p99_ttft_ms"] == pytest.approx(288.1)
    assert found["mean_tpot_ms"] == pytest.approx(20.0)
    assert (found["completed"], found["failed"], found["num_prompts"]) == (20, 1, 21)
    assert found["request_rate"] == 4.0
    assert found["total_output_tokens"] == sum(5 + at for at in range(20))


def test_a_load_without_a_rate_says_inf_as_vllm_does() -> None:
    assert vllm_summary(judge(RECORDS, Sla()), RECORDS)["request_rate"] == "inf"


def test_the_most_at_once_counts_requests_that_overlap() -> None:
    apart = [record(at * 10.0) for at in range(3)]
    assert vllm_summary(judge(apart, Sla()), apart)["max_concurrent_requests"] == 1
    together = [record(0.01 * at) for at in range(3)]
    assert vllm_summary(judge(together, Sla()), together)["max_concurrent_requests"] == 3


def test_details_are_columns_of_one_length_and_failures_are_told_by_their_error() -> None:
    columns = vllm_details(RECORDS)
    assert {len(column) for column in columns.values()} == {21}  # type: ignore[arg-type]
    assert columns["errors"][-1] == "HTTP 503: full"  # type: ignore[index]
    assert columns["latencies"][-1] == 0.0  # type: ignore[index]
    assert columns["ttfts"][0] == pytest.approx(0.1)  # type: ignore[index]
    assert columns["itls"][0] == [0.02] * 4  # type: ignore[index]


@pytest.mark.engine
def test_every_key_is_one_that_vllms_own_source_writes() -> None:
    """Beside those that we add on purpose."""
    (found,) = importlib.util.find_spec("vllm").submodule_search_locations  # type: ignore[union-attr, misc]
    source = (Path(found) / "benchmarks" / "serve.py").read_text()
    written = set(re.findall(r'"(\w+)":', source)) | set(re.findall(r'result(?:_json)?\["(\w+)"\]', source))
    statistics_of = re.compile(r"(mean|median|std|p\d+)_(ttft|tpot|itl|e2el)_ms")
    ours = {"tenants_of", "kinds_of", "sessions_of", "turns_of"}
    summary = vllm_summary(judge(RECORDS, Sla()), RECORDS)
    for key in {*summary, *vllm_details(RECORDS)} - ours:
        assert key in written or statistics_of.fullmatch(key), key
