"""The throughput that is priced: from a plan that meets the SLA or not, and from the JSON of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.errors import SpecError
from roadworthy.cost.throughput import Throughput, at_a_trickle, measured_throughput, planned_throughput
from roadworthy.plan.search import make_plan
from roadworthy.spec.values import ClusterSpec, CostSpec, Deployment, ModelRef, Quantiles, RequestProfile, Sla
from support.cost import deployment

RUN = {"output_tokens_per_s": 3148.8, "total_tokens_per_s": 6963.2, "verdict": "met"}
SLA = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04)


def served(rate_per_s: float, sla: Sla) -> Throughput:
    asked = Deployment(
        name="chat",
        model=ModelRef(config="Llama-3.1-8B"),
        cluster=ClusterSpec(nodes=1, gpus_per_node=1, gpu="H100-80GB"),
        workload=RequestProfile(
            prompt_tokens=Quantiles(p50=512, p90=1024, p99=2048),
            output_tokens=Quantiles(p50=128, p90=256, p99=512),
            rate_per_s=rate_per_s,
        ),
        sla=sla,
    )
    model, gpu = model_by_id("Llama-3.1-8B"), gpu_by_name("H100-80GB")
    return planned_throughput(asked, make_plan(asked, model, gpu), make_plan(at_a_trickle(asked), model, gpu))


def test_a_plan_that_meets_the_sla_is_priced_at_the_most_it_serves_within_it() -> None:
    found = served(1.0, Sla(ttft_p99_s=2.0, tpot_p99_s=0.05))
    assert (found.meets_sla, found.meets_at_asked_rate, found.why) == (True, True, "")
    assert found.output_tokens_per_s > 1.0 * 128
    assert found.total_tokens_per_s > 3 * found.output_tokens_per_s


def test_a_rate_beyond_the_cluster_is_told_and_priced_within_the_sla() -> None:
    promise = Sla(ttft_p99_s=2.0, tpot_p99_s=0.05)
    over, within = served(10_000.0, promise), served(1.0, promise)
    assert (over.meets_sla, over.meets_at_asked_rate) == (True, False)
    assert over.output_tokens_per_s == pytest.approx(within.output_tokens_per_s)
    assert over.why


def test_a_promise_that_no_load_keeps_is_told_with_what_misses() -> None:
    found = served(1.0, Sla(tpot_p99_s=1e-5))
    assert (found.meets_sla, found.meets_at_asked_rate) == (False, False)
    assert "TPOT P99" in found.why


def test_without_a_promise_nothing_is_met_or_missed() -> None:
    assert served(1.0, Sla()).meets_sla is None


def test_a_run_brings_its_tokens_and_its_verdict() -> None:
    asked = replace(deployment(CostSpec()), sla=SLA)
    found = measured_throughput(RUN, asked, source="run.json")
    assert (found.total_tokens_per_s, found.kind, found.meets_sla) == (6963.2, "measured", True)
    assert found.input_ratio == pytest.approx(238.4 / 435.2)


def test_a_missed_run_is_outside_the_sla_and_an_undecided_one_is_neither() -> None:
    asked = replace(deployment(CostSpec()), sla=SLA)
    missed = measured_throughput({**RUN, "verdict": "missed", "reason": "P99"}, asked, source="run.json")
    assert (missed.meets_sla, missed.why) == (False, "P99")
    assert measured_throughput({**RUN, "verdict": "undecided"}, asked, source="run.json").meets_sla is None


def test_a_simulated_run_says_so() -> None:
    found = measured_throughput({**RUN, "simulated": True}, deployment(CostSpec()), source="run.json")
    assert found.kind == "simulated"
    assert "simulated" in found.source


def test_without_input_tokens_the_workload_says_how_many_there_are() -> None:
    found = measured_throughput({"output_tokens_per_s": 100.0}, deployment(CostSpec()), source="run.json")
    assert found.total_tokens_per_s > 100.0


@pytest.mark.parametrize(
    ("run", "word"),
    [
        ({}, "output_tokens_per_s: nothing"),
        ({"output_tokens_per_s": "fast"}, "'fast'"),
        ({"output_tokens_per_s": True}, "True"),
        ({"output_tokens_per_s": -1}, "-1"),
        ({"output_tokens_per_s": float("nan")}, "nan"),
        ({"output_tokens_per_s": 0.0}, "more than none"),
        ({"output_tokens_per_s": 100, "total_tokens_per_s": 50}, "in all"),
        ({**RUN, "model": "another/model"}, "a run of another/model"),
    ],
)
def test_a_file_that_is_no_run_of_this_model_is_refused(run: dict[str, object], word: str) -> None:
    with pytest.raises(SpecError, match=r"run\.json") as caught:
        measured_throughput(run, deployment(CostSpec()), source="run.json")
    assert word in str(caught.value)
    assert caught.value.hint
