"""Business rules by example: refuse, degrade, queue class, and hold-downs that end by a trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.rules import RuleBook
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.govern.values import Facts, Treatment
from roadworthy.route.values import RouteRequest
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Tenant

if TYPE_CHECKING:
    from roadworthy.spec.governance_values import Rule

A = Tenant(id="a", fallback="small")
B = Tenant(id="b")


def rules(*texts: str) -> tuple[Rule, ...]:
    """Rules as a document says them."""
    return load_text(
        "model: {config: tiny}\ngovernance: {rules: [" + ", ".join(f"{{{text}}}" for text in texts) + "]}", source="x"
    ).governance.rules


def ask(tokens: int = 100, model: str = "large", tenant: Tenant = A) -> RouteRequest:
    return RouteRequest(tenant_id=tenant.id, model=model, stream=True, prompt_tokens=tokens)


def treat(book: RuleBook, tenant: Tenant = A, now_s: float = 0.0, facts: Facts | None = None, **more: Any) -> Treatment:
    return book.treat(tenant, ask(tenant=tenant, **more), facts, now_s)


def held(book: RuleBook, **more: Any) -> bool:
    try:
        treat(book, **more)
    except Refused:
        return True
    return False


def test_a_refusal_has_the_rules_code_and_words_and_is_not_to_be_tried_again() -> None:
    book = RuleBook(rules("name: long, when: [prompt_tokens > 1000], message: 'at night, please'"))
    treat(book, tokens=1_000)
    with pytest.raises(Refused) as caught:
        treat(book, tokens=1_001)
    refused = caught.value
    assert (refused.code, refused.status, refused.retry_after_s) == ("BUSINESS_OVERRUN", 422, None)
    assert str(refused) == "at night, please"
    book = RuleBook(rules("name: long, when: [prompt_tokens > 1000], code: TOO_LONG"))
    with pytest.raises(Refused, match="rule long: prompt_tokens > 1,000") as caught:
        treat(book, tokens=2_000)
    assert caught.value.code == "TOO_LONG"


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("prompt_tokens >= 100", True),
        ("prompt_tokens < 100", False),
        ("prompt_tokens <= 100", True),
        ("prompt_tokens = 100", True),
        ("prompt_tokens != 100", False),
        ("tenant = a", True),
        ("tenant != a", False),
        ("model in large, other", True),
        ("model not in large, other", False),
        ("operation = chat", True),
        ("io_wait_ms > 250", True),
        ("io_wait_ms > 1s", False),
    ],
)
def test_each_comparison_means_what_it_says(condition: str, meets: bool) -> None:
    book = RuleBook(rules(f"name: r, when: ['{condition}']"))
    assert held(book, facts=Facts(operation="chat", io_wait_ms=300.0)) is meets


def test_all_conditions_have_to_hold_and_the_scenario_too() -> None:
    book = RuleBook(rules("name: r, scenario: [tenant = a], when: [prompt_tokens > 10, io_wait_ms > 5]"))
    waited = Facts(io_wait_ms=6.0)
    assert held(book, facts=waited)
    assert not held(book, facts=waited, tokens=10)
    assert not held(book, facts=waited, tenant=B)


@pytest.mark.parametrize("comparison", [">", "<", "=", "!="])
def test_a_fact_that_nobody_told_meets_no_condition(comparison: str) -> None:
    book = RuleBook(rules(f"name: r, when: ['io_wait_ms {comparison} 5']"))
    assert not held(book)


def test_degrading_needs_the_tenants_leave_and_says_so() -> None:
    book = RuleBook(rules("name: r, when: [prompt_tokens > 10], action: degrade"))
    treatment = treat(book)
    assert (treatment.model, treatment.degraded, treatment.rules) == ("small", True, ("r",))
    assert treatment.why == "rule r: small instead of large"
    assert treat(book, tenant=B) == Treatment(model="large")
    assert not treat(book, model="small").degraded


def test_a_rule_may_name_the_model_and_a_class() -> None:
    book = RuleBook(
        rules(
            "name: one, when: [prompt_tokens > 10], action: degrade, model: tiny",
            "name: two, when: [prompt_tokens > 10], action: queue, queue: high",
            "name: three, when: [prompt_tokens > 10], action: queue, queue: low",
        )
    )
    treatment = treat(book)
    assert (treatment.model, treatment.queue_class, treatment.rules) == ("tiny", "high", ("one", "two"))


def end(book: RuleBook, treatment: Treatment, itl_ms: float | None, now_s: float = 0.0, judged: bool = True) -> None:
    book.ended(
        treatment, itl_p99_s=itl_ms / 1e3 if itl_ms is not None else None, ttft_s=None, judged=judged, now_s=now_s
    )


SLOW = "name: slow, scenario: [prompt_tokens > 50], when: [itl_p99_ms > 150], hold: 60s"


def slow_book(*itl_ms: float | None, now_s: float = 0.0) -> RuleBook:
    book = RuleBook(rules(SLOW))
    for one in itl_ms:
        end(book, treat(book, now_s=now_s), one, now_s)
    return book


def test_three_in_a_row_hold_the_whole_scenario_down() -> None:
    book = slow_book(200, 200)
    assert not held(book)
    book = slow_book(200, 200, 200)
    assert held(book, now_s=1.0)
    assert book.holding() == (("slow", "large"),)
    assert not held(book, tokens=50, now_s=1.0)  # another scenario
    assert not held(book, model="other", now_s=1.0)  # another group of engines


@pytest.mark.parametrize("between", [[100.0], [150.0]])
def test_one_that_is_not_over_begins_the_count_anew(between: list[float]) -> None:
    assert not held(slow_book(200, 200, *between, 200, 200))
    assert held(slow_book(200, 200, *between, 200, 200, 200))


def test_a_request_that_says_nothing_neither_counts_nor_breaks_the_row() -> None:
    book = slow_book(200, 200, None)
    end(book, treat(book), 100, judged=False)
    assert not held(book)
    end(book, treat(book), 200)
    assert held(book)


def test_a_hold_ends_by_a_single_request_that_is_well() -> None:
    book = slow_book(200, 200, 200)
    assert held(book, now_s=59.9)
    probe = treat(book, now_s=60.0)
    assert probe.probe
    assert all(held(book, now_s=61.0) for _ in range(5))
    end(book, probe, 100, 62.0)
    assert not held(book, now_s=62.0)
    assert book.holding() == ()
    for _ in range(2):
        end(book, treat(book, now_s=63.0), 200, 63.0)
    assert not held(book, now_s=63.0), "the count begins at nothing"


def test_a_trial_that_is_over_again_holds_for_the_whole_time_again() -> None:
    book = slow_book(200, 200, 200)
    end(book, treat(book, now_s=60.0), 200, 70.0)
    assert held(book, now_s=129.9)
    assert treat(book, now_s=130.0).probe


def test_a_trial_that_was_cut_short_lets_the_next_one_try() -> None:
    book = slow_book(200, 200, 200)
    end(book, treat(book, now_s=60.0), None, 65.0, judged=False)
    assert treat(book, now_s=65.0).probe


def test_a_trial_that_is_never_heard_of_again_is_replaced() -> None:
    book = slow_book(200, 200, 200)
    assert treat(book, now_s=60.0).probe
    assert held(book, now_s=119.9)
    assert treat(book, now_s=120.0).probe


def test_requests_that_began_before_the_hold_neither_end_nor_prolong_it() -> None:
    book = RuleBook(rules(SLOW))
    early = [treat(book) for _ in range(5)]
    for treatment in early[:3]:
        end(book, treatment, 200, 10.0)
    end(book, early[3], 100, 20.0)
    end(book, early[4], 200, 69.0)
    assert held(book, now_s=69.9)
    assert treat(book, now_s=70.0).probe


def test_a_degraded_request_says_nothing_about_the_engines_it_did_not_reach() -> None:
    book = RuleBook(rules("name: slow, when: [itl_p99_ms > 150], action: degrade, in_a_row: 2"))
    for _ in range(2):
        end(book, treat(book), 200)
    degraded = treat(book, now_s=1.0)
    assert degraded.degraded
    assert degraded.counted == ()
    probe = treat(book, now_s=60.0)
    assert not probe.degraded
    end(book, probe, 100, 61.0)
    assert not treat(book, now_s=61.0).degraded


def test_a_row_of_facts_known_beforehand_can_be_counted_too() -> None:
    book = RuleBook(rules("name: io, when: [io_wait_ms > 100], in_a_row: 2, action: queue"))
    slow, quick = Facts(io_wait_ms=200.0), Facts(io_wait_ms=50.0)
    for facts in (slow, quick, slow):
        end(book, treat(book, facts=facts), None)
    assert treat(book, facts=slow).queue_class == "normal"
    end(book, treat(book, facts=slow), None)
    assert treat(book, facts=quick).queue_class == "low"  # the whole scenario


def test_rules_that_are_the_same_after_an_edit_keep_what_they_hold() -> None:
    book = slow_book(200, 200, 200)
    assert held(book.follow(rules(SLOW, "name: more, when: [model = x]")), now_s=1.0)
    assert not held(book.follow(rules(SLOW.replace("150", "250"))), now_s=1.0)


def test_the_governor_counts_what_ends_and_refuses_what_is_held() -> None:
    governor = Governor([A], settings=GovernSettings(rules=rules(SLOW)))
    meter = LocalMeter()
    for number in range(3):
        treatment = governor.check(A, ask(), None, 0.0)
        grant = meter.acquire(governor.limits("a"), governor.charge(A, ask(), treatment), str(number), 0.0)
        permit = governor.enter(grant, A, ask(), object(), 0.0, treatment=treatment)
        assert permit is not None
        governor.leave(permit, prompt_tokens=1, output_tokens=30, itl_p99_s=0.2, now_s=1.0)
    with pytest.raises(Refused) as caught:
        governor.check(A, ask(), None, 2.0)
    assert caught.value.code == "BUSINESS_OVERRUN"
    assert governor.holding() == (("slow", "large"),)
