"""Mixed loads: each kind has its share of the requests, its own shape, and its own senders."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median

import pytest

from roadworthy.advise.arrivals import Arrivals, PlannedRequest
from roadworthy.advise.mixes import mean_turns, session_kinds
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions, Tenant
from roadworthy.spec.workload_values import MixPart

MIXED = RequestProfile(
    prompt_tokens=Quantiles(p50=300, p90=600, p99=900),
    rate_per_s=10.0,
    mix=(
        MixPart(kind="chat", share_ratio=0.5),
        MixPart(kind="document", share_ratio=0.2, tenants=("legal",)),
        MixPart(kind="agent", share_ratio=0.3),
    ),
)
TENANTS = (Tenant(id="legal"), Tenant(id="shop"))


def everything(profile: RequestProfile, requests: int = 4000) -> list[PlannedRequest]:
    """Every turn of the schedule, each answered after a second as long as planned."""
    arrivals = Arrivals(profile, seed=2, requests=requests, tenants=TENANTS)
    found = []
    for first in arrivals.first_turns():
        turn: PlannedRequest | None = first
        while turn is not None:
            found.append(turn)
            turn = arrivals.follow_up(turn, finished_s=turn.t_sched_s + 1, output_tokens=turn.output_tokens)
    return found


def test_shares_count_requests_not_sessions() -> None:
    shares = Counter(request.kind for request in everything(MIXED))
    total = sum(shares.values())
    assert shares["chat"] / total == pytest.approx(0.5, abs=0.06)
    assert shares["agent"] / total == pytest.approx(0.3, abs=0.06)


def test_the_rate_counts_requests_though_sessions_are_long() -> None:
    arrivals = Arrivals(MIXED, seed=2, requests=4000, tenants=TENANTS)
    firsts = list(arrivals.first_turns())
    sessions_per_s = len(firsts) / firsts[-1].t_sched_s
    assert sessions_per_s * mean_turns(session_kinds(MIXED)) == pytest.approx(10.0, rel=0.08)


def test_each_kind_has_its_shape() -> None:
    firsts = {
        kind: [one for one in everything(MIXED) if one.kind == kind and one.turn == 0]
        for kind in ("chat", "document", "agent")
    }
    assert median(one.prompt_tokens for one in firsts["chat"]) == pytest.approx(300, rel=0.1)
    assert median(one.prompt_tokens for one in firsts["document"]) > 10_000
    assert {one.turns for one in firsts["chat"]} == {1}
    assert max(one.turns for one in firsts["agent"]) > 15


def test_questions_on_a_document_are_short_and_repeat_it() -> None:
    later = [one for one in everything(MIXED) if one.kind == "document" and one.turn > 0]
    assert later
    for request in later:
        assert request.segments[-1].tokens < 1000
        assert request.prompt_tokens > 5000


def test_agents_of_one_kind_share_instructions_of_their_own() -> None:
    firsts = [one for one in everything(MIXED) if one.kind == "agent" and one.turn == 0]
    assert {one.segments[0].id for one in firsts} == {"system.agent"}
    assert all(one.segments[0].tokens == pytest.approx(0.7 * one.prompt_tokens, abs=1) for one in firsts)


def test_only_the_named_tenants_send_a_kind() -> None:
    for request in everything(MIXED):
        assert request.kind != "document" or request.tenant == "legal"
    assert {one.tenant for one in everything(MIXED) if one.kind == "chat"} == {"legal", "shop"}


def test_a_part_may_state_its_own_numbers() -> None:
    part = MixPart(
        kind="agent", prompt_tokens=Quantiles(p50=50, p90=50, p99=50), shared_prefix_ratio=0.0,
        sessions=Sessions(turns=1, think_time_s=0.0),
    )  # fmt: skip
    found = everything(replace(MIXED, mix=(part,)), requests=50)
    assert {(one.prompt_tokens, one.turns) for one in found} == {(50, 1)}


def test_two_parts_of_one_kind_are_told_apart() -> None:
    profile = replace(MIXED, mix=(MixPart(kind="agent"), MixPart(kind="agent"), MixPart(kind="agent", name="crawler")))
    assert [kind.name for kind in session_kinds(profile)] == ["agent", "agent-2", "crawler"]


def test_a_mix_that_names_a_stranger_is_refused() -> None:
    profile = replace(MIXED, mix=(MixPart(kind="chat", tenants=("nobody",)),))
    with pytest.raises(ValueError, match="do not exist: nobody"):
        Arrivals(profile, seed=1, requests=1, tenants=TENANTS)


def test_a_workload_without_a_mix_is_one_kind_with_its_own_numbers() -> None:
    (kind,) = session_kinds(RequestProfile(sessions=Sessions(turns=3)))
    assert (kind.name, kind.weight, kind.turns) == ("", 1.0, 3)
