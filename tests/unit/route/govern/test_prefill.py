"""Prompts that are at the engines and not computed yet: no more of them than keeps engines busy for a moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.search import make_plan
from roadworthy.plan.timing import StepLoad
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.prefill import BATCHES_AT_LEAST, PrefillPace, backlog_s_of
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.govern.values import Charge
from roadworthy.route.values import RouteRequest
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from roadworthy.route.govern.permit import HeldPermit

FLOOD, PERSON = Tenant(id="flood"), Tenant(id="person")
DOCUMENT = """
model: {config: Llama-3.1-8B, max_model_len: 8K}
cluster: {nodes: 1, gpus_per_node: 2, gpu: H100-80GB}
engine: {version: 0.33.0, settings: {tensor_parallel_size: 1}}
tenants: [{id: a, key: sk-a}]
"""


@dataclass(slots=True)
class EndpointAt:
    """An engine as backlogs see it."""

    url: str
    backlogged: bool = False


class Desk:
    """A governor before engines that may each have 100 tokens of prompts to compute, and compute 10 a second."""

    def __init__(self, engines: int = 1) -> None:
        self.governor = Governor([FLOOD, PERSON], settings=GovernSettings())
        self.engines = [EndpointAt(f"e{number}") for number in range(engines)]
        self.governor.backlogs.bound(self.engines, 100, 10.0)
        self.meter = LocalMeter()
        self.permits: dict[str, HeldPermit] = {}

    def ask(self, name: str, tenant: Tenant, tokens: int, *, now_s: float = 0.0, stream: bool = True) -> bool:
        request = RouteRequest(tenant_id=tenant.id, model="m", stream=stream, max_tokens=1, prompt_tokens=tokens)
        charge = Charge(tenant.id, "m", tokens, 1, 1)
        grant = self.meter.acquire(self.governor.limits(tenant.id), charge, name, now_s)
        permit = self.governor.enter(grant, tenant, request, name, now_s)
        if permit is not None:
            self._goes(name, permit, now_s)
        return permit is not None

    def ready(self, now_s: float) -> list[object]:
        served = self.governor.ready(now_s)
        for owner, permit in served:
            self._goes(str(owner), permit, now_s)
        return [owner for owner, _ in served]

    def _goes(self, name: str, permit: HeldPermit, now_s: float) -> None:
        self.permits[name] = permit
        self.governor.backlogs.placed(permit, "e0", now_s)


def test_a_flood_waits_here_and_the_next_question_of_another_passes_it() -> None:
    desk = Desk()
    let_in = [desk.ask(f"f{number}", FLOOD, 60) for number in range(10)]
    assert let_in == [True, True, *[False] * 8], "until the room is used up, the last prompt beyond it"
    assert not desk.ask("p", PERSON, 5)
    desk.governor.began(desk.permits["f0"])
    assert desk.ready(1.0) == ["f2"], "both had been served alike, as far as credit goes"
    desk.governor.began(desk.permits["f1"])
    assert desk.ready(1.0) == ["p", "f3"], "seven others stood before it"


def test_a_first_token_makes_room_once_and_an_end_without_one_does_too() -> None:
    desk = Desk()
    assert [desk.ask(name, FLOOD, 100) for name in "abc"] == [True, False, False]
    for _ in range(3):
        desk.governor.began(desk.permits["a"])
    assert desk.ready(1.0) == ["b"]
    desk.governor.leave(desk.permits["a"], prompt_tokens=100, output_tokens=1, now_s=1.0)
    assert desk.ready(1.0) == []
    desk.governor.leave(desk.permits["b"], prompt_tokens=0, output_tokens=0, now_s=2.0, ending="cancelled")
    assert desk.ready(2.0) == ["c"]


def test_answers_in_one_piece_count_as_computed_at_the_planned_pace() -> None:
    desk = Desk()
    assert desk.ask("a", FLOOD, 100, stream=False)
    assert not desk.ask("b", FLOOD, 50, stream=False)
    assert desk.ready(9.9) == []
    assert desk.ready(10.0) == ["b"], "100 tokens at 10 a second"
    assert desk.ask("c", FLOOD, 70, now_s=10.0, stream=False)
    assert not desk.ask("d", PERSON, 1, now_s=10.0, stream=False)
    assert desk.ready(14.9) == []
    assert desk.ready(15.0) == ["d"], "b's 50 tokens, computed one after the other"


def test_an_engine_in_which_nothing_waits_has_computed_what_was_sent_before() -> None:
    desk = Desk()
    desk.ask("a", FLOOD, 100, now_s=1.0, stream=False)
    desk.ask("b", FLOOD, 100, now_s=1.0, stream=False)
    desk.governor.backlogs.caught_up("e0", 1.0)
    assert desk.ready(1.5) == [], "it was asked before that was sent"
    desk.governor.backlogs.caught_up("e0", 1.4)
    assert desk.ready(1.5) == ["b"]


def test_who_asks_only_for_whole_answers_leaves_nothing_behind() -> None:
    desk = Desk()
    for number in range(1000):
        assert desk.ask("x", FLOOD, 5, now_s=float(number), stream=False)
        desk.governor.leave(desk.permits["x"], prompt_tokens=5, output_tokens=1, now_s=number + 0.9)
    there = desk.governor.backlogs._by_url["e0"]
    assert len(there.silent) <= 1
    assert there.tokens == 0


def test_prompts_are_kept_back_only_while_every_engine_has_enough() -> None:
    desk = Desk(engines=2)
    assert desk.ask("long", FLOOD, 5000)
    assert desk.engines[0].backlogged
    assert desk.ask("a", PERSON, 60), "the other engine has nothing to do"
    desk.governor.backlogs.placed(desk.permits["a"], "e1", 0.0)
    assert desk.ask("b", PERSON, 60)
    desk.governor.backlogs.placed(desk.permits["b"], "e1", 0.0)
    assert all(engine.backlogged for engine in desk.engines)
    assert not desk.ask("c", PERSON, 1)
    desk.governor.began(desk.permits["a"])
    assert desk.ready(0.1) == ["c"]
    desk.governor.backlogs.bound(desk.engines[:1], 100, 10.0)
    assert not desk.engines[1].backlogged, "an engine that is gone, or comes back, has nothing"
    desk.governor.began(desk.permits["b"])
    desk.governor.began(desk.permits["c"])
    assert desk.governor.backlogs._by_url["e0"].tokens == 5000


def test_borrowed_work_leaves_a_part_of_the_time_alone() -> None:
    desk = Desk()
    assert desk.ask("a", PERSON, 95)
    assert not desk.governor.backlogs.shut
    assert not desk.governor.backlogs.fits_borrowed()


def test_without_engines_that_anything_is_known_of_nothing_is_kept_back() -> None:
    desk = Desk()
    desk.governor.backlogs.bound((), 0, 0.0)
    assert all(desk.ask(str(number), FLOOD, 60) for number in range(10))


def test_the_pace_is_that_of_full_batches_of_all_ranks() -> None:
    deployment = load_text(DOCUMENT, source="t")
    best = make_plan(deployment, model_by_id(deployment.model.config), gpu_by_name(deployment.cluster.gpu)).best
    assert best is not None
    assert best.step_time is not None
    one, two = (PrefillPace.planned(best, ranks=ranks) for ranks in (1, 2))
    assert one is not None
    assert two is not None
    assert two.tokens_per_s == pytest.approx(2 * one.tokens_per_s)
    assert one.batch_tokens == best.settings["max_num_batched_tokens"].value
    step_s = best.step_time.step_s(StepLoad(prefill_tokens=one.batch_tokens))
    assert one.tokens_per_s == pytest.approx(one.batch_tokens / step_s, rel=0.2), "attention comes on top"
    assert one.tokens_in(10.0) == int(one.tokens_per_s * 10)
    assert one.tokens_in(1e-9) == BATCHES_AT_LEAST * one.batch_tokens
    assert PrefillPace.planned(replace(best, step_time=None), ranks=1) is None


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("", 1.0),
        ("sla: {ttft_p99: 2s}", 0.5),
        ("governance: {prefill_backlog: 300ms}\nsla: {ttft_p99: 2s}", 0.3),
        ("governance: {prefill_backlog: 0s}", None),
        ("gateway: {lanes: {long: {above_tokens: 4K, slots: 2}}}", 1.0),
        ("gateway: {lanes: {long: {above_tokens: 4K, engines: [http://h:1]}}}", None),
    ],
)
def test_how_long_engines_may_be_busy_follows_the_document(more: str, wanted: float | None) -> None:
    engines = "engine: {endpoints: [{url: http://h:1}, {url: http://h:2}], "
    text = DOCUMENT.replace("engine: {", engines) + more
    assert backlog_s_of(load_text(text, source="t")) == wanted
