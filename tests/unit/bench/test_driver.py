"""The driver keeps to its schedule whatever the service does. An hour of load here takes no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.bench.client import GenerateRequest, Outcome
from roadworthy.bench.driver import DriveResult, Load, Progress, drive
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions, Tenant
from roadworthy.spec.workload_values import ArrivalPattern
from support.virtual_time import run_virtual

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord

PROFILE = RequestProfile(
    prompt_tokens=Quantiles(p50=60, p90=80, p99=100), output_tokens=Quantiles(p50=10, p90=20, p99=30), rate_per_s=10
)
CHATTY = RequestProfile(
    prompt_tokens=Quantiles(p50=60, p90=80, p99=100),
    output_tokens=Quantiles(p50=10, p90=20, p99=30),
    rate_per_s=10,
    shared_prefix_ratio=0.5,
    sessions=Sessions(turns=4, think_time_s=5),
)

Answer = Callable[[GenerateRequest, float], Outcome]


class FakeClient:
    """Answers after ``takes_s`` with what ``answer`` makes; notes when it was asked what."""

    def __init__(self, now_s: Callable[[], float], *, takes_s: float, answer: Answer | None = None) -> None:
        self._now_s = now_s
        self._takes_s = takes_s
        self._answer = answer or said
        self.asked: list[tuple[float, GenerateRequest]] = []
        self.in_flight = self.most_in_flight = 0

    async def generate(self, request: GenerateRequest) -> Outcome:
        self.asked.append((self._now_s(), request))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self._takes_s)
        finally:
            self.in_flight -= 1
        return self._answer(request, self._now_s())


def said(request: GenerateRequest, now_s: float) -> Outcome:
    """Every token asked for, 10 ms apart, the last one just now."""
    count = request.output_tokens
    times_s = tuple(now_s - 0.01 * (count - 1 - index) for index in range(count))
    return Outcome(token_times_s=times_s, t_end_s=now_s, text=f"answer {count}", n_in=99, n_out=count, cached_tokens=7)


def failed(request: GenerateRequest, now_s: float) -> Outcome:
    return Outcome(token_times_s=(), t_end_s=now_s, error="HTTP 503: full")


def drive_virtually(
    load: Load, *, takes_s: float, answer: Answer | None = None, progress: Progress | None = None
) -> tuple[DriveResult, FakeClient]:
    async def main(now_s: Callable[[], float]) -> tuple[DriveResult, FakeClient]:
        client = FakeClient(now_s, takes_s=takes_s, answer=answer)
        return await drive(load, client, now_s=now_s, progress=progress), client

    return run_virtual(main)


def test_a_stalled_engine_delays_no_request() -> None:
    """200 requests over about 20 s, none answered before a minute: all were sent at their time."""
    result, client = drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=200)), takes_s=60)
    planned = [request.t_sched_s for request in Arrivals(PROFILE, seed=1, requests=200).first_turns()]
    assert [at for at, _ in client.asked] == pytest.approx(planned)
    assert client.most_in_flight == 200
    assert max(record.client_queue_s for record in result.records) == pytest.approx(0, abs=1e-6)


def test_a_record_holds_the_times_and_the_servers_own_counts() -> None:
    result, _ = drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=5)), takes_s=2)
    for record in result.records:
        assert record.ok
        assert (record.n_in, record.cached_tokens) == (99, 7)
        assert record.e2e_s == pytest.approx(2)
        assert record.ttft_s == pytest.approx(2 - 0.01 * (record.n_out - 1))
        assert record.itl_s == pytest.approx((0.01,) * (record.n_out - 1))
    assert not result.partial


def test_the_next_turn_comes_after_the_answer_and_carries_it() -> None:
    result, client = drive_virtually(Load(arrivals=Arrivals(CHATTY, seed=3, requests=40)), takes_s=2)
    by_session: dict[str, list[tuple[float, GenerateRequest]]] = {}
    for at_s, request in client.asked:
        by_session.setdefault(request.session, []).append((at_s, request))
    conversations = [turns for turns in by_session.values() if len(turns) > 1]
    assert conversations
    for turns in conversations:
        for (earlier_s, before), (later_s, after) in pairwise(turns):
            assert later_s >= earlier_s + 2
            assert after.messages[: len(before.messages)] == before.messages
            answer = after.messages[len(before.messages)]
            assert (answer.role, answer.text) == ("assistant", f"answer {before.output_tokens}")
            assert after.messages[-1].role == "user"
    assert len(result.records) == 40


def test_a_failed_turn_ends_its_conversation_and_is_counted() -> None:
    result, client = drive_virtually(Load(arrivals=Arrivals(CHATTY, seed=3, requests=40)), takes_s=2, answer=failed)
    assert {record.turn for record in result.records} == {0}
    assert {record.error for record in result.records} == {"HTTP 503: full"}
    assert all(not record.ok and record.t_first_s is None for record in result.records)
    assert len(result.records) == len(client.asked)


def test_an_answer_without_a_token_is_a_failure() -> None:
    empty = Outcome(token_times_s=(), t_end_s=1.0)
    result, _ = drive_virtually(
        Load(arrivals=Arrivals(PROFILE, seed=1, requests=3)), takes_s=1, answer=lambda request, now_s: empty
    )
    assert [record.error for record in result.records] == ["the answer held no token"] * 3


def test_tokens_are_counted_as_events_and_said_so_when_the_server_sends_no_usage() -> None:
    def uncounted(request: GenerateRequest, now_s: float) -> Outcome:
        return Outcome(token_times_s=(now_s - 1, now_s), t_end_s=now_s)

    result, _ = drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=3)), takes_s=1, answer=uncounted)
    assert [record.n_out for record in result.records] == [2, 2, 2]
    assert result.uncounted == 3


def test_each_tenant_is_sent_with_its_own_key() -> None:
    tenants = (Tenant(id="law", weight=3), Tenant(id="batch", weight=1))
    arrivals = Arrivals(PROFILE, seed=1, requests=200, tenants=tenants)
    result, client = drive_virtually(Load(arrivals=arrivals, keys={"law": "sk-l", "batch": "sk-b"}), takes_s=1)
    keys = [request.key for _, request in client.asked]
    assert 120 < keys.count("sk-l") < 180
    assert keys.count("sk-l") == sum(record.tenant == "law" for record in result.records)
    assert keys.count("sk-b") == sum(record.tenant == "batch" for record in result.records)


def test_no_turn_is_sent_after_the_end_of_the_schedule() -> None:
    load = Load(arrivals=Arrivals(CHATTY, seed=3, duration_s=20), until_s=20)
    result, client = drive_virtually(load, takes_s=2)
    assert max(at for at, _ in client.asked) <= 20
    assert result.cut_sessions > 0


def test_a_concurrency_cap_holds_and_its_wait_shows_as_client_queue() -> None:
    load = Load(arrivals=Arrivals(PROFILE, seed=1, requests=100), max_concurrency=4)
    result, client = drive_virtually(load, takes_s=1)
    assert client.most_in_flight == 4
    assert max(record.client_queue_s for record in result.records) > 10


def test_the_same_seed_asks_the_same_and_another_asks_something_else() -> None:
    def asked(seed: int) -> list[tuple[float, GenerateRequest]]:
        return drive_virtually(Load(arrivals=Arrivals(CHATTY, seed=seed, requests=40)), takes_s=1)[1].asked

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def test_stopping_early_keeps_what_ended_and_abandons_the_rest() -> None:
    async def main(now_s: Callable[[], float]) -> tuple[DriveResult, FakeClient]:
        client = FakeClient(now_s, takes_s=3)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(10, stop.set)
        load = Load(arrivals=Arrivals(PROFILE, seed=1, duration_s=3600))
        return await drive(load, client, now_s=now_s, stop=stop), client

    result, client = run_virtual(main)
    assert result.partial
    assert result.abandoned > 0
    assert len(result.records) + result.abandoned == len(client.asked)
    assert all(record.ok and record.t_last_s <= 10 for record in result.records)
    assert client.in_flight == 0, "what was in flight is cancelled, so that its connections are closed"


def test_a_fault_of_the_client_itself_is_raised_and_not_counted() -> None:
    def broken(request: GenerateRequest, now_s: float) -> Outcome:
        raise RuntimeError("a bug")

    with pytest.raises(ExceptionGroup) as caught:
        drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=3)), takes_s=1, answer=broken)
    assert caught.group_contains(RuntimeError, match="a bug")


def test_progress_ends_with_nothing_in_flight() -> None:
    progress = Progress()
    drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=50)), takes_s=1, progress=progress)
    assert (progress.sent, progress.completed, progress.failed, progress.in_flight) == (50, 50, 0, 0)
    assert progress.output_tokens > 0


USERS = replace(PROFILE, arrivals=ArrivalPattern(pattern="closed", users=3))


def test_in_a_closed_loop_so_many_are_under_way_until_the_last() -> None:
    result, client = drive_virtually(Load(arrivals=Arrivals(USERS, seed=1, requests=30)), takes_s=2)
    assert len(result.records) == 30
    assert client.most_in_flight == 3
    assert client.asked[-1][0] == pytest.approx(18.0)
    assert max(record.client_queue_s for record in result.records) < 1e-6


def test_users_of_a_closed_loop_outlive_failures() -> None:
    result, _ = drive_virtually(Load(arrivals=Arrivals(USERS, seed=1, requests=12)), takes_s=1, answer=failed)
    assert len(result.records) == 12
    assert len({record.session for record in result.records}) == 12


def test_a_new_session_of_a_user_knows_nothing_of_the_last_one() -> None:
    chatty = replace(CHATTY, arrivals=ArrivalPattern(pattern="closed", users=1))
    _, client = drive_virtually(Load(arrivals=Arrivals(chatty, seed=3, requests=30)), takes_s=1)
    by_session: dict[str, int] = {}
    for _, request in client.asked:
        said = sum(message.role == "assistant" for message in request.messages)
        assert said == by_session.get(request.session, 0)
        by_session[request.session] = said + 1
    assert len(by_session) > 3


def test_text_is_asked_for_only_where_a_next_turn_needs_it() -> None:
    _, client = drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=5)), takes_s=1)
    assert not any(request.keep_text for _, request in client.asked)
    _, client = drive_virtually(Load(arrivals=Arrivals(CHATTY, seed=3, requests=40)), takes_s=1)
    assert any(request.keep_text for _, request in client.asked)


def test_priorities_are_sent_only_where_given() -> None:
    arrivals = Arrivals(PROFILE, seed=1, requests=20, tenants=(Tenant(id="law"), Tenant(id="batch")))
    _, client = drive_virtually(Load(arrivals=arrivals, priorities={"law": -5}), takes_s=1)
    assert {request.priority for _, request in client.asked} == {-5, None}


def test_every_record_is_told_as_it_ends() -> None:
    told: list[RequestRecord] = []
    load = Load(arrivals=Arrivals(PROFILE, seed=1, requests=20), on_record=told.append)
    result, _ = drive_virtually(load, takes_s=1)
    assert tuple(told) == result.records


def test_the_pulse_of_an_idle_loop_is_on_time_and_counts_no_stall() -> None:
    result, _ = drive_virtually(Load(arrivals=Arrivals(PROFILE, seed=1, requests=20)), takes_s=1)
    assert len(result.lags_s) > 50
    assert max(result.lags_s) < 0.001
    assert result.stalls_s == ()


def test_a_loop_that_stands_still_is_noticed() -> None:
    """The clock jumps by ten seconds in the middle of the run, as after a suspended machine."""

    async def main(now_s: Callable[[], float]) -> DriveResult:
        def jumped_s() -> float:
            return now_s() + (10.0 if now_s() > 3 else 0.0)

        client = FakeClient(jumped_s, takes_s=1)
        return await drive(Load(arrivals=Arrivals(PROFILE, seed=1, requests=100)), client, now_s=jumped_s)

    ((at_s, length_s),) = run_virtual(main).stalls_s
    assert at_s == pytest.approx(3.0, abs=0.1)
    assert length_s == pytest.approx(10.0, abs=0.1)
