"""Who runs, who waits, who goes first: by example."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.govern.values import QueueClass, Treatment
from roadworthy.route.values import RouteRequest
from roadworthy.spec.governance_values import QueueSpec
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from roadworthy.route.govern.permit import HeldPermit

A, B, C = Tenant(id="a"), Tenant(id="b"), Tenant(id="c")


class Desk:
    """A governor with a meter, and requests that are named by letters."""

    def __init__(self, *tenants: Tenant, slots: int | None = None, blocks: int | None = None, **settings: Any) -> None:
        self.tenants = {one.id: one for one in tenants}
        self.settings = GovernSettings(**settings)
        self.governor = Governor(tenants, settings=self.settings, shape=BlockShape(block_tokens=1, block_bytes=1))
        self.governor.capacity(blocks, slots)
        self.meter = LocalMeter()
        self.permits: dict[str, HeldPermit] = {}
        self.now_s = 0.0

    def ask(
        self,
        name: str,
        tenant: str,
        *,
        tokens: int = 2,
        queue_class: QueueClass = "normal",
        stream: bool = True,
        **more: Any,
    ) -> HeldPermit | None:
        held = self.tenants[tenant]
        request = RouteRequest(tenant_id=tenant, model="m", stream=stream, max_tokens=1, prompt_tokens=tokens - 1)
        treatment = Treatment(model="m", queue_class=queue_class)
        charge = self.governor.charge(held, request, treatment)
        grant = self.meter.acquire(self.governor.limits(tenant), charge, name, self.now_s)
        permit = self.governor.enter(grant, held, request, name, self.now_s, treatment=treatment, **more)
        if permit is not None:
            self.permits[name] = permit
        return permit

    def ready(self) -> list[str]:
        names = []
        for owner, permit in self.governor.ready(self.now_s):
            assert isinstance(owner, str)
            names.append(owner)
            self.permits[owner] = permit
        return names

    def leave(self, name: str, *, output: int = 1) -> list[str]:
        permit = self.permits.pop(name)
        prompt = permit.grant.charge.prompt_tokens
        self.governor.leave(permit, prompt_tokens=prompt, output_tokens=output, now_s=self.now_s)
        self.meter.settle(permit.grant, prompt_tokens=prompt, output_tokens=output, now_s=self.now_s)
        return self.ready()


def refused(desk: Desk, name: str, tenant: str, **more: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        desk.ask(name, tenant, **more)
    return caught.value


def test_while_there_is_room_everybody_runs_at_once() -> None:
    desk = Desk(A, B, slots=3)
    for name in "123":
        permit = desk.ask(name, "a")
        assert permit is not None
        assert (permit.priority, permit.queue_class, permit.borrowed, permit.waited_s) == (0, "normal", False, 0.0)
    assert desk.ask("4", "b") is None
    assert (desk.governor.running, desk.governor.waiting) == (3, 1)


def test_an_unbounded_gateway_never_lets_anybody_wait() -> None:
    desk = Desk(replace(A, kv_quota_bytes=1))
    assert all(desk.ask(str(number), "a") is not None for number in range(1_000))


def test_the_tenant_that_had_less_goes_next() -> None:
    desk = Desk(A, B, slots=1)
    desk.ask("a1", "a", tokens=50)
    for name in ("a2", "a3"):
        assert desk.ask(name, "a", tokens=50) is None
    assert desk.ask("b1", "b") is None
    desk.now_s = 2.0
    assert desk.leave("a1") == ["b1"]  # b began where a stood, and then a1's answer was charged
    assert desk.permits["b1"].waited_s == 2.0
    assert desk.leave("b1") == ["a2"]
    assert desk.leave("a2") == ["a3"]


def test_weights_are_shares() -> None:
    desk = Desk(replace(A, weight=3.0), B, slots=1)
    desk.ask("first", "a")
    for number in range(40):
        desk.ask(f"a{number}", "a")
        desk.ask(f"b{number}", "b")
    served, name = [], "first"
    for _ in range(40):
        (name,) = desk.leave(name)
        served.append(name[0])
    assert served.count("a") == 30


def test_streamed_tokens_count_while_a_request_still_runs() -> None:
    desk = Desk(A, B, slots=2)
    desk.ask("a1", "a")
    desk.ask("b1", "b")
    for name in ("a2", "b2", "a3", "b3"):
        desk.ask(name, name[0])
    desk.permits["a1"].streamed(640)
    assert [desk.leave("b1"), desk.leave("b2"), desk.leave("b3")] == [["b2"], ["b3"], ["a2"]]


def test_a_better_class_goes_first_and_the_number_is_the_engines_priority() -> None:
    desk = Desk(A, replace(B, priority=-5), C, slots=1)
    desk.ask("running", "c")
    desk.ask("low", "a", queue_class="low")
    desk.ask("plain", "a")
    desk.ask("first", "b")
    desk.ask("high", "a", queue_class="high")
    order, name = [], "running"
    for _ in range(4):
        (name,) = desk.leave(name)
        order.append((name, desk.permits[name].priority))
    assert order == [("high", -10_000), ("first", -5), ("plain", 0), ("low", 10_000)]


def test_a_request_moves_up_a_class_for_each_ageing_time() -> None:
    desk = Desk(A, replace(B, priority=1), slots=1, queue=QueueSpec(ageing_s=10.0))
    desk.ask("running", "a")
    desk.ask("old", "b")
    for number in range(5):
        desk.ask(f"a{number}", "a")
    desk.now_s = 9.0
    assert desk.leave("running") == ["a0"]
    desk.now_s = 11.0
    assert desk.leave("a0") == ["a1"]  # it is one of the class now, and begins where the class stands
    assert desk.leave("a1") == ["old"]
    assert desk.permits["old"].priority == 0


def test_what_is_over_the_quota_waits_behind_all_and_leaves_a_reserve() -> None:
    desk = Desk(replace(A, kv_quota_bytes=10), B, blocks=20)
    assert desk.ask("own", "a", tokens=10) is not None
    lent = desk.ask("lent", "a", tokens=8)
    assert lent is not None
    assert (lent.borrowed, lent.queue_class, lent.priority) == (True, "low", 10_000)
    assert desk.ask("more", "a", tokens=1 + 1) is None  # 20 blocks are all but the reserve of 2 would be gone
    assert desk.ask("other", "b", tokens=2) is not None  # the reserve is for those within their quota
    assert desk.leave("lent") == ["more"]


def test_borrowed_work_that_waits_becomes_the_tenants_own_when_its_own_ends() -> None:
    desk = Desk(replace(A, kv_quota_bytes=10), B, slots=2)
    desk.ask("own1", "a", tokens=6)
    desk.ask("own2", "a", tokens=4)
    for name, tokens in (("lent1", 4), ("lent2", 5), ("lent3", 3)):
        assert desk.ask(name, "a", tokens=tokens) is None
    desk.governor.capacity(None, 0)
    assert desk.governor.depth(0.0).by_class == {"high": 0, "normal": 0, "low": 3}
    desk.leave("own1")  # of its 6 blocks lent1 takes 4; the 2 that are left are too few for lent2
    assert desk.governor.depth(0.0).by_class == {"high": 0, "normal": 1, "low": 2}
    desk.leave("own2")  # 2 and 4: lent2 takes 5, and 1 is too little for lent3
    assert desk.governor.depth(0.0).by_class == {"high": 0, "normal": 2, "low": 1}
    desk.governor.capacity(None, 5)
    assert desk.ready() == ["lent1", "lent2", "lent3"]
    assert [desk.permits[name].borrowed for name in ("lent1", "lent2", "lent3")] == [False, False, True]
    assert [desk.permits[name].priority for name in ("lent1", "lent2", "lent3")] == [0, 0, 10_000]


def test_borrowed_requests_that_were_served_are_not_remembered() -> None:
    desk = Desk(replace(A, kv_quota_bytes=4), slots=1)
    desk.ask("own", "a", tokens=4)
    desk.ask("next", "a")
    desk.governor.capacity(None, 2)
    for number in range(1_000):
        desk.ask(f"{number}", "a")
        desk.governor.capacity(None, 1_000_000)
        desk.ready()
        desk.governor.capacity(None, 0)
    assert len(desk.governor._seats["a"].to_own) < 100


def test_what_leaves_the_queue_unserved_passes_its_part_of_the_quota_on() -> None:
    desk = Desk(replace(A, kv_quota_bytes=10), slots=0)
    for name in ("own", "lent"):
        desk.ask(name, "a", tokens=8)
    desk.governor.withdraw("own")
    desk.governor.capacity(None, 1)
    assert desk.ready() == ["lent"]
    assert not desk.permits["lent"].borrowed


def test_a_request_larger_than_the_whole_pool_runs_when_nothing_else_does() -> None:
    desk = Desk(A, B, blocks=10)
    desk.ask("small", "b", tokens=5)
    assert desk.ask("huge", "a", tokens=50) is None
    assert desk.leave("small") == ["huge"]


def test_what_fits_passes_what_does_not_until_that_has_waited_for_long() -> None:
    desk = Desk(A, B, blocks=10, queue=QueueSpec(ageing_s=30.0))
    desk.ask("b0", "b", tokens=5)
    assert desk.ask("large", "a", tokens=9) is None
    assert desk.ask("b1", "b", tokens=5) is not None
    desk.now_s = 31.0
    assert desk.leave("b0") == []
    assert desk.ask("b2", "b", tokens=5) is None
    assert desk.leave("b1") == ["large"]


def test_a_large_request_of_a_low_class_is_not_passed_for_ever_by_small_ones_of_a_better_one() -> None:
    desk = Desk(A, B, blocks=10, queue=QueueSpec(ageing_s=30.0))
    desk.ask("b0", "b", tokens=5)
    assert desk.ask("large", "a", tokens=9, queue_class="low") is None
    assert desk.ask("b1", "b", tokens=5) is not None
    desk.now_s = 31.0
    assert desk.leave("b0") == []
    assert desk.ask("b2", "b", tokens=5) is None, "it has aged into this class, and has waited for long"
    assert desk.leave("b1") == ["large"]


def test_what_requests_share_is_room_for_one_more() -> None:
    """Three of 40 blocks, their prompts 30 of them each; the engine says that 50 are in use: 40 are shared."""
    desk = Desk(A, blocks=120)
    for name in "123":
        permit = desk.ask(name, "a", tokens=40)
        assert permit is not None
    assert desk.ask("4", "a", tokens=40) is None
    desk.governor.measured(50)
    assert desk.ready() == [], "no answer has begun: prompts that are still to be computed are not shared"
    for name in "123":
        desk.permits[name].streamed(32)
    desk.governor.measured(50)
    assert desk.ready() == ["4"]
    assert desk.ask("5", "a", tokens=40) is None
    desk.governor.measured(None)
    assert desk.leave("1") == []
    desk.governor.measured(117)
    assert desk.leave("2") == ["5"]


def test_queues_are_bounded_for_all_and_for_each() -> None:
    desk = Desk(A, B, C, slots=1, queue=QueueSpec(total=3, per_tenant=2))
    desk.ask("running", "c")
    desk.ask("a1", "a")
    desk.ask("a2", "a")
    full = refused(desk, "a3", "a")
    assert (full.code, full.status) == ("queue_full", 429)
    assert "tenant a" in str(full)
    desk.ask("b1", "b")
    full = refused(desk, "b2", "b")
    assert full.code == "queue_full"
    assert "all tenants" in str(full)
    assert full.retry_after_s is not None


def test_a_queue_of_none_refuses_whatever_cannot_run() -> None:
    desk = Desk(A, slots=1, queue=QueueSpec(total=0, per_tenant=0))
    assert desk.ask("running", "a") is not None
    assert refused(desk, "next", "a").code == "queue_full"


def paced(slots: int = 1, **settings: Any) -> Desk:
    """A desk where a request is served every two seconds, and has been for a while."""
    desk = Desk(A, B, slots=slots, **settings)
    desk.ask("0", "a")
    for number in range(1, 21):
        desk.ask(str(number), "a", deadline_s=None)
    for number in range(10):
        desk.now_s += 2.0
        assert desk.leave(str(number)) == [str(number + 1)]
    return desk


def test_a_request_that_cannot_make_its_deadline_is_refused_at_once_with_the_time_that_is_lacking() -> None:
    """Ten wait, one every two seconds: the next of the same tenant would wait for 22 s."""
    desk = paced()
    late = refused(desk, "late", "a", deadline_s=10.0)
    assert (late.code, late.status) == ("deadline_unreachable", 429)
    assert late.retry_after_s == pytest.approx(12.0, rel=0.2)
    assert desk.ask("in time", "a", deadline_s=30.0) is None


def test_another_tenant_has_its_own_turn_and_so_a_shorter_wait() -> None:
    desk = paced()
    assert desk.ask("b", "b", deadline_s=6.0) is None
    assert refused(desk, "too soon", "a", deadline_s=6.0).code == "deadline_unreachable"


def test_retry_after_is_honest() -> None:
    """Whoever comes again after the time that was named is let in, if nobody else came meanwhile."""
    desk = paced()
    late = refused(desk, "late", "a", deadline_s=10.0)
    assert late.retry_after_s is not None
    until_s = desk.now_s + late.retry_after_s
    number = 10
    while desk.now_s + 2.0 <= until_s + 1.0:
        desk.now_s += 2.0
        desk.leave(str(number))
        number += 1
    desk.ask("again", "a", deadline_s=10.0)


def test_the_longest_wait_is_the_documents_however_long_a_client_would() -> None:
    desk = Desk(A, slots=1, queue=QueueSpec(max_wait_s=5.0))
    desk.ask("running", "a")
    desk.ask("waits", "a", deadline_s=1e9)
    desk.now_s = 4.9
    assert desk.governor.expired(desk.now_s) == []
    desk.now_s = 5.0
    (away,) = desk.governor.expired(desk.now_s)
    assert away.owner == "waits"
    assert (away.refused.code, away.refused.status) == ("deadline_unreachable", 429)
    assert away.refused.retry_after_s is not None
    assert desk.governor.waiting == 0


def test_a_burst_grows_old_and_is_given_up_in_portions() -> None:
    desk = Desk(A, replace(B, priority=1), slots=0, queue=QueueSpec(ageing_s=30.0, max_wait_s=60.0, per_tenant=5_000))
    desk.ask("first", "a")
    for number in range(1_200):
        desk.ask(str(number), "b")
    desk.now_s = 30.0
    fair = desk.governor._room.fair(0)
    counts = []
    for _ in range(4):
        desk.ready()
        counts.append(fair.count)
    assert counts[0] < counts[1] < counts[2] == counts[3] == 1_201
    desk.now_s = 60.0
    portions = [len(desk.governor.expired(desk.now_s, most=500)) for _ in range(4)]
    assert portions == [500, 500, 201, 0]


def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    desk = Desk(A, slots=1)
    desk.ask("running", "a")
    desk.ask("gone", "a")
    desk.ask("next", "a")
    assert desk.governor.withdraw("gone")
    assert not desk.governor.withdraw("gone")
    assert desk.leave("running") == ["next"]


def test_leaving_twice_gives_back_once() -> None:
    desk = Desk(A, slots=2)
    permit = desk.ask("one", "a")
    desk.ask("two", "a")
    assert permit is not None
    for _ in range(3):
        desk.governor.leave(permit, prompt_tokens=1, output_tokens=1, now_s=0.0)
    assert (desk.governor.running, desk.governor.blocks) == (1, 2)


def test_engines_that_come_let_those_in_who_wait_and_engines_that_go_stop_nobody() -> None:
    desk = Desk(A, slots=1)
    for name in "123":
        desk.ask(name, "a")
    desk.governor.capacity(None, 3)
    assert desk.ready() == ["2", "3"]
    desk.governor.capacity(None, 0)
    assert desk.governor.running == 3
    assert desk.ask("4", "a") is None
    assert desk.leave("1") == []


def test_a_tenant_that_is_removed_loses_what_waits_and_keeps_what_runs() -> None:
    desk = Desk(A, B, slots=1)
    desk.ask("runs", "a")
    desk.ask("waits", "a")
    desk.ask("other", "b")
    (away,) = desk.governor.set_tenants([B], 0.0)
    assert away.owner == "waits"
    assert (away.refused.code, away.refused.status) == ("tenant_removed", 403)
    assert desk.leave("runs") == ["other"]
    with pytest.raises(Refused) as caught:
        desk.governor.check(A, RouteRequest(tenant_id="a", model="m", stream=False), None, 0.0)
    assert caught.value.code == "tenant_removed"


def test_a_quota_that_is_edited_holds_from_the_next_request_on() -> None:
    desk = Desk(replace(A, kv_quota_bytes=100), blocks=1_000)
    first = desk.ask("1", "a", tokens=50)
    desk.governor.set_tenants([replace(A, kv_quota_bytes=60)], 0.0)
    second = desk.ask("2", "a", tokens=50)
    assert first is not None
    assert second is not None
    assert (first.borrowed, second.borrowed) == (False, True)
    desk.governor.set_shape(BlockShape(block_tokens=1, block_bytes=60))
    assert desk.governor.limits("a").kv_blocks == 1


def test_a_model_that_is_not_allowed_is_refused_with_those_that_are() -> None:
    desk = Desk(replace(A, models=("small", "large")))
    request = RouteRequest(tenant_id="a", model="other", stream=False)
    with pytest.raises(Refused) as caught:
        desk.governor.check(desk.tenants["a"], request, None, 0.0)
    assert (caught.value.code, caught.value.status, caught.value.retry_after_s) == ("model_not_allowed", 403, None)
    assert "small, large" in caught.value.hint
    allowed = RouteRequest(tenant_id="a", model="large", stream=False)
    assert desk.governor.check(desk.tenants["a"], allowed, None, 0.0) == Treatment(model="large")


def test_the_expected_answer_is_the_clients_limit_or_what_the_tenants_answers_are_like() -> None:
    desk = Desk(A, expected_output_tokens=300)
    asked = RouteRequest(tenant_id="a", model="m", stream=True, prompt_tokens=10)

    def expected(limit: int | None, model: str = "m") -> int:
        request = RouteRequest(tenant_id="a", model=model, stream=True, prompt_tokens=10, max_tokens=limit)
        return desk.governor.charge(A, request).output_tokens

    assert (expected(None), expected(50), expected(5_000)) == (300, 50, 300)
    assert desk.governor.charge(A, asked).blocks == 310
    for number in range(40):
        desk.ask(str(number), "a")
        desk.leave(str(number), output=15)
    assert (expected(None), expected(5_000), expected(5)) == (15, 15, 5)
    assert expected(None, "another") == 300


def test_an_answer_that_was_cut_short_teaches_nothing() -> None:
    desk = Desk(A, expected_output_tokens=300)
    for number in range(40):
        permit = desk.ask(str(number), "a")
        assert permit is not None
        desk.governor.leave(permit, prompt_tokens=1, output_tokens=2, now_s=0.0, ending="cancelled")
    request = RouteRequest(tenant_id="a", model="m", stream=True)
    assert desk.governor.charge(A, request).output_tokens == 300


def test_a_weight_that_is_edited_while_requests_wait_counts_for_them() -> None:
    desk = Desk(A, B, slots=1)
    desk.ask("first", "a")
    for number in range(40):
        desk.ask(f"a{number}", "a")
        desk.ask(f"b{number}", "b")
    desk.governor.set_tenants([replace(A, weight=3.0), B], 0.0)
    served, name = [], "first"
    for _ in range(40):
        (name,) = desk.leave(name)
        served.append(name[0])
    assert served.count("a") in (29, 30, 31)


def test_the_documents_words_reach_the_governor() -> None:
    document = load_text(
        "model: {config: tiny}\nworkload: {output_tokens: {p50: 10, p90: 77, p99: 90}}\n"
        "governance: {borrow_headroom: 25%, cached_tokens: free, queue: {total: 5, per_tenant: 2}}",
        source="x",
    )
    settings = GovernSettings.of(document)
    assert (settings.borrow_headroom_ratio, settings.expected_output_tokens) == (0.25, 77)
    assert settings.queue == QueueSpec(total=5, per_tenant=2)
    assert settings.cached_free


def test_a_document_that_is_read_again_holds_for_what_waits_already() -> None:
    desk = Desk(replace(A, kv_quota_bytes=1), B, slots=10, queue=QueueSpec(total=50, per_tenant=50))
    for number in range(12):
        desk.ask(str(number), "a")
    assert (desk.governor.running, desk.governor.waiting) == (9, 3)
    desk.governor.set_settings(GovernSettings(borrow_headroom_ratio=0.0, queue=QueueSpec(total=2, per_tenant=2)))
    assert desk.ready() == ["9"]
    assert refused(desk, "more", "a").code == "queue_full"


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        GovernSettings(borrow_headroom_ratio=1.5)


def test_the_same_owner_cannot_wait_twice() -> None:
    desk = Desk(A, slots=1)
    desk.ask("running", "a")
    desk.ask("one", "a")
    with pytest.raises(ValueError, match="waits already"):
        desk.ask("one", "a")


@pytest.mark.parametrize("max_tokens", [None, 7])
def test_sizing_up_a_request_is_the_check_the_charge_and_the_limits_of_it(max_tokens: int | None) -> None:
    tenant = Tenant(id="a", concurrency=3, models=("m",))
    governor = Governor([tenant], shape=BlockShape(block_tokens=16))
    request = RouteRequest(tenant_id="a", model="m", stream=False, max_tokens=max_tokens, prompt_tokens=100)
    for _ in range(2):  # of a model that was never asked for, and of one that was
        treatment, charge, limits = governor.size_up(tenant, request, None, 0.0)
        assert treatment == governor.check(tenant, request, None, 0.0)
        assert charge == governor.charge(tenant, request, treatment)
        assert limits == governor.limits("a")


@pytest.mark.parametrize(
    ("tenant_id", "model", "code"), [("a", "x", "model_not_allowed"), ("b", "m", "tenant_removed")]
)
def test_sizing_up_refuses_what_the_check_refuses(tenant_id: str, model: str, code: str) -> None:
    governor = Governor([Tenant(id="a", models=("m",)), Tenant(id="free")])
    for name in ("m", "x"):  # both models are known by now, since somebody may use them
        governor.check(Tenant(id="free"), RouteRequest(tenant_id="free", model=name, stream=False), None, 0.0)
    request = RouteRequest(tenant_id=tenant_id, model=model, stream=False)
    with pytest.raises(Refused) as found:
        governor.size_up(Tenant(id=tenant_id), request, None, 0.0)
    assert found.value.code == code
