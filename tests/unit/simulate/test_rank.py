"""The best layouts under the document's load, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.advise.queueing import ENGINES_MAX, REQUESTS_MAX, REQUESTS_MIN, STEPS_MAX, trial_of
from roadworthy.advise.ranking import distinct
from roadworthy.cli.wiring import Planned, load_best, load_planned, with_queueing
from roadworthy.simulate import rank
from roadworthy.spec.values import Quantiles, Sessions

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan


@pytest.fixture(scope="module")
def flash() -> Planned:
    """Two GPUs: a handful of layouts, quick to simulate."""
    return load_planned(str(Path(__file__).resolve().parents[3] / "examples" / "deepseek-v4-flash-2xh200.yaml"))


@pytest.fixture(scope="module")
def ranked(flash: Planned) -> Planned:
    return with_queueing(flash)


def fitting(planned: Planned) -> list[LayoutPlan]:
    return [judged for judged in planned.plan.layouts if judged.feasible is not False]


def test_the_best_three_distinct_layouts_are_simulated_by_a_thousand_requests_each(
    flash: Planned, ranked: Planned
) -> None:
    assert ranked.queueing is not None
    simulated = {judged.layout for group in distinct(fitting(flash))[:3] for judged in group}
    assert set(ranked.queueing.results) == simulated
    assert all(result.requests >= 1000 for result in ranked.queueing.results.values())
    assert all(result.failed == 0 for result in ranked.queueing.results.values())


def test_ranking_loses_and_invents_no_layout(flash: Planned, ranked: Planned) -> None:
    assert sorted(one.layout.label for one in ranked.plan.layouts) == sorted(
        one.layout.label for one in flash.plan.layouts
    )


def test_the_same_document_gives_the_same_numbers(flash: Planned, ranked: Planned) -> None:
    assert with_queueing(flash) == ranked


def test_layouts_that_are_alike_are_simulated_once(flash: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = rank.simulate_layout

    def watched(deployment: Any, plan: Any, judged: LayoutPlan, **options: Any) -> Any:
        asked.append(judged.layout.label)
        return real(deployment, plan, judged, **options)

    monkeypatch.setattr(rank, "simulate_layout", watched)
    rank.simulate_best(flash.deployment, flash.plan, layouts=2)
    assert asked == [group[0].layout.label for group in distinct(fitting(flash))[:2]]


def test_a_layout_that_cannot_be_simulated_is_named_with_the_reason(flash: Planned) -> None:
    layouts = (replace(flash.plan.layouts[0], step_time=None), *flash.plan.layouts[1:])
    queueing = rank.simulate_best(flash.deployment, replace(flash.plan, layouts=layouts), layouts=1)
    assert not queueing.results
    assert "not modelled" in queueing.skipped[layouts[0].layout]


def test_progress_is_told_by_layout_and_ends_at_the_number_of_requests(flash: Planned) -> None:
    heard: list[tuple[str, int, int]] = []
    rank.simulate_best(flash.deployment, flash.plan, layouts=1, progress=lambda *told: heard.append(told))
    label, ended, requests = heard[-1]
    assert (label, ended) == (flash.plan.layouts[0].layout.label, requests)


def test_a_large_deployment_is_simulated_in_part_at_its_share_of_the_rate(flash: Planned) -> None:
    judged = flash.plan.layouts[0]
    many = replace(judged, layout=replace(judged.layout, replicas=40))
    trial = trial_of(many, flash.deployment.workload)
    assert (trial.engines, trial.engines_total) == (ENGINES_MAX, 40)
    assert trial.workload.rate_per_s == pytest.approx(flash.deployment.workload.rate_per_s / 10)


def test_a_run_lasts_longer_where_conversations_do(flash: Planned) -> None:
    judged = flash.plan.layouts[0]
    short = replace(flash.deployment.workload, sessions=Sessions(turns=1.0), rate_per_s=4.0)
    longer = replace(short, sessions=Sessions(turns=20.0, think_time_s=30.0))
    assert trial_of(judged, short).requests >= REQUESTS_MIN
    assert trial_of(judged, short).requests < trial_of(judged, longer).requests <= REQUESTS_MAX


def test_answers_so_long_that_a_run_would_take_minutes_are_fewer(flash: Planned) -> None:
    lonely = replace(
        flash.deployment.workload, rate_per_s=1e-4, output_tokens=Quantiles(p50=50_000, p90=60_000, p99=70_000)
    )
    judged = flash.plan.layouts[0]
    assert judged.predicted is not None
    idle = replace(judged, predicted=replace(judged.predicted, concurrency=0.1))
    assert trial_of(idle, lonely).requests * 50_000 <= STEPS_MAX


def test_a_queue_that_is_known_to_grow_is_not_watched_for_minutes(flash: Planned) -> None:
    judged = flash.plan.layouts[0]
    assert judged.predicted is not None
    full = replace(judged, predicted=replace(judged.predicted, saturated=True, concurrency=1.0))
    long = replace(flash.deployment.workload, output_tokens=Quantiles(p50=50_000, p90=60_000, p99=70_000))
    queueing = rank.simulate_best(replace(flash.deployment, workload=long), replace(flash.plan, layouts=(full,)))
    assert "its queue grows without end" in queueing.skipped[full.layout]


def test_up_and_simulate_take_the_layout_that_plan_puts_first(ranked: Planned, examples: Path) -> None:
    best = load_best(str(examples / "deepseek-v4-flash-2xh200.yaml"))
    assert best.best().layout == ranked.best().layout


def test_nothing_is_simulated_where_there_is_no_choice(examples: Path) -> None:
    assert load_best(str(examples / "laptop.yaml")).queueing is None
