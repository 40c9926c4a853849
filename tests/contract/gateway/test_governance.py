"""Governance on the wire: who waits, who is refused and how, what engines are told, what comes back on each way out."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fakes.engine import END, STREAM_HEAD, Asked, FakeEngine, chat_events, chunk, completion, hang, plain, response
from roadworthy.core.errors import Temporary
from roadworthy.gateway import metrics
from roadworthy.gateway.stores import Stores
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.prefill import PrefillPace
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.keys import Change, issued
from roadworthy.spec.governance_values import Condition, GovernanceSpec, QueueSpec, Rule
from roadworthy.spec.values import Tenant
from support.gateway import KEY, RawClient, chat, client_of, gateway_before, post, run, until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.gateway.service import Gateway
    from roadworthy.route.govern.values import Charge, Grant, Held, Limits

FIRST = Tenant(id="first", key="sk-first", concurrency=100)
SECOND = Tenant(id="second", key="sk-second", concurrency=100, priority=-5)
ONE_SLOT = GovernanceSpec(slots_per_engine=1)


class Gated:
    """An engine that answers each request when the test says so."""

    def __init__(self) -> None:
        self.engine = FakeEngine(self._answer)
        self.order: list[str] = []
        self._go = asyncio.Event()

    async def _answer(self, asked: Asked) -> None:
        self.order.append(str(asked.json()["messages"][0]["content"]))  # type: ignore[index]
        await self._go.wait()
        self._go.clear()
        await asked.send(response(200, completion()))

    def let_one_go(self) -> None:
        self._go.set()


def say(text: str, **fields: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


async def clients(stack: AsyncExitStack, gateway: Gateway, count: int) -> list[RawClient]:
    return [await stack.enter_async_context(client_of(gateway)) for _ in range(count)]


def waiting(gateway: Gateway) -> int:
    return gateway._tenancy.governance.governor.waiting


def gauge(gateway: Gateway, name: str) -> float:
    page = metrics.render(gateway.snapshot()).decode()
    (line,) = [one for one in page.splitlines() if one.startswith(f"roadworthy_gateway_{name}")]
    return float(line.rpartition(" ")[2])


def test_requests_wait_for_room_and_the_higher_class_goes_first() -> None:
    async def test() -> None:
        gated = Gated()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(gated.engine)
            gateway = await stack.enter_async_context(
                gateway_before(gated.engine, tenants=(FIRST, SECOND), governance=ONE_SLOT)
            )
            one, two, three = await clients(stack, gateway, 3)
            one.send(post(say("runs"), key="sk-first"))
            await until(lambda: gated.order == ["runs"])
            two.send(post(say("low"), key="sk-first"))
            await until(lambda: waiting(gateway) == 1)
            three.send(post(say("high"), key="sk-second"))
            await until(lambda: waiting(gateway) == 2)
            assert gauge(gateway, 'queue_waiting{class="normal"}') == 2
            for client in (one, three, two):
                gated.let_one_go()
                assert (await client.response()).status == 200
            assert gated.order == ["runs", "high", "low"]

    run(test)


class Prefilling:
    """An engine whose streams begin when the test says so, one after the other, and go on for ever."""

    def __init__(self) -> None:
        self.engine = FakeEngine(self._answer)
        self.order: list[str] = []
        self._first = asyncio.Semaphore(0)

    async def _answer(self, asked: Asked) -> None:
        self.order.append(str(asked.json()["messages"][0]["content"])[0])  # type: ignore[index]
        await self._first.acquire()
        await hang(STREAM_HEAD, chunk(chat_events("x")[0]))(asked)

    def compute_one(self) -> None:
        self._first.release()


def test_prompts_that_are_not_computed_yet_keep_others_here_where_they_can_be_put_in_order() -> None:
    async def test() -> None:
        prefilling = Prefilling()
        # a prompt of some 1,000 tokens is more than half of what may be at the engine
        pace = PrefillPace(tokens_per_s=10.0, batch_tokens=500)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(prefilling.engine)
            gateway = await stack.enter_async_context(
                gateway_before(prefilling.engine, tenants=(FIRST, SECOND), prefill=pace, backlog_s=1.0)
            )
            flood = await clients(stack, gateway, 4)
            for number, client in enumerate(flood):
                client.send(post(say(str(number) * 4000, stream=True), key="sk-first"))
                await until(lambda seen=number: len(prefilling.order) + waiting(gateway) == seen + 1)  # type: ignore[misc]
            (person,) = await clients(stack, gateway, 1)
            person.send(post(say("p", stream=True), key="sk-second"))
            await until(lambda: waiting(gateway) == 3 and len(prefilling.order) == 2)
            assert prefilling.order == ["0", "1"], "two prompts fill the engine's time, though it has room for more"
            prefilling.compute_one()
            # the better class first, then as much as there is room for
            await until(lambda: prefilling.order == ["0", "1", "p", "2"])
            assert waiting(gateway) == 1

    run(test)


def test_a_client_that_leaves_the_queue_leaves_its_place_and_its_limit() -> None:
    async def test() -> None:
        gated = Gated()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(gated.engine)
            tenant = replace(FIRST, concurrency=2)
            gateway = await stack.enter_async_context(
                gateway_before(gated.engine, tenants=(tenant,), governance=ONE_SLOT)
            )
            one, two, three = await clients(stack, gateway, 3)
            one.send(post(say("runs"), key="sk-first"))
            await until(lambda: gated.order == ["runs"])
            two.send(post(say("leaves"), key="sk-first"))
            await until(lambda: waiting(gateway) == 1)
            refused = await three.ask(post(say("too many"), key="sk-first"))
            assert (refused.status, refused.code) == (429, "concurrency_limited")
            two.leave()
            await until(lambda: waiting(gateway) == 0)
            three.send(post(say("in its place"), key="sk-first"))
            await until(lambda: waiting(gateway) == 1)
            gated.let_one_go()
            assert (await one.response()).status == 200
            gated.let_one_go()
            assert (await three.response()).status == 200
            assert gated.order == ["runs", "in its place"]

    run(test)


def test_who_waits_too_long_is_told_when_to_come_again() -> None:
    async def test() -> None:
        govern = GovernSettings(queue=QueueSpec(max_wait_s=0.05))
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))))
            gateway = await stack.enter_async_context(
                gateway_before(engine, tenants=(FIRST,), governance=ONE_SLOT, govern=govern)
            )
            one, two = await clients(stack, gateway, 2)
            one.send(post(chat(), key="sk-first"))
            await one.head()
            answer = await two.ask(post(say("waits"), key="sk-first"))
            assert (answer.status, answer.code) == (429, "deadline_unreachable")
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["x-roadworthy-decision"] == "deadline_unreachable"
            assert len(engine.requests) == 1

    run(test)


def test_a_full_queue_refuses_at_once() -> None:
    async def test() -> None:
        govern = GovernSettings(queue=QueueSpec(total=1, per_tenant=1))
        gated = Gated()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(gated.engine)
            gateway = await stack.enter_async_context(
                gateway_before(gated.engine, tenants=(FIRST,), governance=ONE_SLOT, govern=govern)
            )
            one, two, three = await clients(stack, gateway, 3)
            one.send(post(say("a"), key="sk-first"))
            await until(lambda: bool(gated.order))
            two.send(post(say("b"), key="sk-first"))
            await until(lambda: waiting(gateway) == 1)
            answer = await three.ask(post(say("c"), key="sk-first"))
            assert (answer.status, answer.code) == (429, "queue_full")
            assert answer.json()["error"]["hint"]
            for client in (one, two):
                gated.let_one_go()
                assert (await client.response()).status == 200

    run(test)


def test_without_an_engine_the_waiting_are_told_one_after_the_other_and_none_is_forgotten() -> None:
    """Each that is told makes room for the next: a thousand of them must not be a thousand calls deep."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))))
            gateway = await stack.enter_async_context(
                gateway_before(engine, tenants=(replace(FIRST, concurrency=5000),), governance=ONE_SLOT)
            )
            (one,) = await clients(stack, gateway, 1)
            one.send(post(chat(), key="sk-first"))
            await one.head()
            others = await clients(stack, gateway, 300)
            for other in others:
                other.send(post(say("waits"), key="sk-first"))
            await until(lambda: waiting(gateway) == 300)
            await engine.stop()
            answers = await asyncio.gather(*(other.response() for other in others))
            assert {answer.status for answer in answers} == {503}

    run(test)


PRIORITY = {"engine_priority": True}


def test_an_engine_that_schedules_by_priority_is_told_each_requests_own() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(plain()))
            gateway = await stack.enter_async_context(gateway_before(engine, tenants=(FIRST, SECOND), **PRIORITY))
            (client,) = await clients(stack, gateway, 1)
            for key in ("sk-first", "sk-second"):
                assert (await client.ask(post(say("x"), key=key))).status == 200
            assert [asked.header("x-vllm-priority") for asked in engine.requests] == ["0", "-5"]

    run(test)


def test_callers_cannot_set_their_priority_and_other_engines_hear_of_none() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(plain()))
            gateway = await stack.enter_async_context(gateway_before(engine, tenants=(FIRST,)))
            (client,) = await clients(stack, gateway, 1)
            asked = post(say("x"), key="sk-first", headers=["X-Vllm-Priority: -1000"])
            assert (await client.ask(asked)).status == 200
            assert engine.requests[0].header("x-vllm-priority") is None

    run(test)


SLOW_INPUT = Rule(
    name="slow-input", when=(Condition(fact="io_wait_ms", comparison=">", number=200.0),), message="come back later"
)
DEGRADE = Rule(
    name="long", when=(Condition(fact="io_wait_ms", comparison=">", number=200.0),), action="degrade", model="small"
)
TRUSTED = replace(FIRST, scopes=("trusted-caller",), fallback="small")
WAITED = ["x-roadworthy-io-wait-ms: 250"]


def test_a_rule_refuses_by_what_a_trusted_caller_says_and_nobody_else_is_believed() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(plain()))
            gateway = await stack.enter_async_context(
                gateway_before(engine, tenants=(TRUSTED, SECOND), govern=GovernSettings(rules=(SLOW_INPUT,)))
            )
            (client,) = await clients(stack, gateway, 1)
            answer = await client.ask(post(say("x"), key="sk-first", headers=WAITED))
            assert (answer.status, answer.code) == (422, "BUSINESS_OVERRUN")
            assert "retry-after" not in answer.headers
            assert "come back later" in answer.json()["error"]["message"]
            assert (await client.ask(post(say("x"), key="sk-second", headers=WAITED))).status == 200
            assert engine.requests[0].header("x-roadworthy-io-wait-ms") is None
            for nonsense in ("abc", "-5", "1e999", "nan"):
                headers = [f"x-roadworthy-io-wait-ms: {nonsense}"]
                assert (await client.ask(post(say("x"), key="sk-first", headers=headers))).status == 200

    run(test)


@pytest.mark.parametrize("stream", [True, False])
def test_a_degraded_request_goes_to_the_lighter_model_and_says_so(stream: bool) -> None:
    async def test() -> None:
        async def answer(asked: Asked) -> None:
            if asked.json()["stream"]:
                await asked.send(STREAM_HEAD)
                for event in chat_events("x"):
                    await asked.send(chunk(event.replace(b'"m"', b'"small"')))
                await asked.send(END)
            else:
                await asked.send(response(200, completion().replace(b'"m"', b'"small"')))

        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(answer, models=("m", "small")))
            gateway = await stack.enter_async_context(
                gateway_before(engine, tenants=(TRUSTED,), govern=GovernSettings(rules=(DEGRADE,)))
            )
            (client,) = await clients(stack, gateway, 1)
            told = await client.ask(post(chat(stream=stream), key="sk-first", headers=WAITED))
            assert told.status == 200
            assert told.headers["x-roadworthy-model"] == "small"
            assert told.headers["x-roadworthy-decision"] == "degraded"
            assert "long" in told.headers["x-roadworthy-reason"]
            assert b'"small"' in told.body
            sent = engine.requests[0].json()
            assert (sent["model"], sent["messages"]) == ("small", chat()["messages"])
            plain_one = await client.ask(post(chat(stream=stream), key="sk-first"))
            assert plain_one.headers["x-roadworthy-model"] == "m"
            (degraded, _) = reversed(await gateway.requests_view())
            assert (degraded["model"], degraded["decision"]) == ("small", "degraded")

    run(test)


# what is changed while it runs


def test_a_quota_edited_while_requests_run_counts_them() -> None:
    async def test() -> None:
        free = Tenant(id="acme", key=KEY)
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))))
            gateway = await stack.enter_async_context(gateway_before(engine, tenants=(free,)))
            one, two = await clients(stack, gateway, 2)
            one.send(post(chat()))
            await one.head()
            await gateway.govern(Change(tenants=(replace(free, key=None, concurrency=1),)))
            refused = await two.ask(post(chat()))
            assert (refused.status, refused.code) == (429, "concurrency_limited")
            one.leave()
            await until(lambda: gateway.status().in_flight == 0)
            two.send(post(chat()))
            assert (await two.head())[0] == 200

    run(test)


def test_a_tenant_that_goes_takes_its_waiting_requests_and_no_stream() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))))
            gateway = await stack.enter_async_context(
                gateway_before(engine, tenants=(FIRST, SECOND), governance=ONE_SLOT)
            )
            one, two, three = await clients(stack, gateway, 3)
            one.send(post(chat(), key="sk-first"))
            await one.head()
            two.send(post(say("waits"), key="sk-first"))
            await until(lambda: waiting(gateway) == 1)
            await gateway.govern(Change(tenants_gone=("first",)))
            answer = await two.response()
            assert (answer.status, answer.code) == (403, "tenant_removed")
            assert gateway.status().in_flight == 1
            unknown = await three.ask(post(chat(), key="sk-first"))
            assert (unknown.status, unknown.code) == (401, "invalid_api_key")

    run(test)


def test_a_key_opens_on_a_kept_connection_until_it_is_revoked_and_cuts_no_stream() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(plain()))
            gateway = await stack.enter_async_context(gateway_before(engine, tenants=(FIRST,)))
            (client,) = await clients(stack, gateway, 1)
            new = issued(b"i" * 8, b"s" * 32, pepper=gateway.pepper, created_s=0.0, tenant_id="first")
            assert (await client.ask(post(say("x"), key=new.text))).status == 401
            await gateway.govern(Change(keys=(new.key,)))
            for _ in range(3):
                assert (await client.ask(post(say("x"), key=new.text))).status == 200
            engine.answer = hang(STREAM_HEAD, chunk(chat_events("x")[0]))
            (streaming,) = await clients(stack, gateway, 1)
            streaming.send(post(chat(), key=new.text))
            await streaming.head()
            engine.answer = plain()
            await gateway.govern(Change(keys=(replace(new.key, revoked_s=1.0),)))
            assert (await client.ask(post(say("x"), key=new.text))).status == 401
            assert gateway.status().in_flight == 1

    run(test)


# a shared meter


class SharedMeter:
    """Counts as ``LocalMeter`` does, after a turn of the loop; ``failing`` makes it a store that is gone."""

    ttl_s = 0.06

    def __init__(self) -> None:
        self.local = LocalMeter()
        self.failing = ""
        self.open = asyncio.Event()
        self.open.set()
        self.renewed: list[str] = []
        self.closed = False

    async def _answer(self) -> None:
        await self.open.wait()
        if self.failing:
            raise Temporary(self.failing)

    async def acquire(self, limits: Limits, charge: Charge, lease_id: str) -> Grant:
        await self._answer()
        return self.local.acquire(limits, charge, lease_id, 0.0)

    async def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int) -> None:
        await self._answer()
        self.local.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens, now_s=0.0)

    async def renew(self, grants: Iterable[Grant]) -> tuple[Grant, ...]:
        await self._answer()
        self.renewed += [one.lease_id for one in grants]
        return ()

    async def held(self, tenant_id: str) -> Held:
        await self._answer()
        return self.local.held(tenant_id, 0.0)

    async def close(self) -> None:
        self.closed = True


def shared(meter: SharedMeter) -> Stores:
    async def opened() -> Any:
        return meter

    return Stores(meter=opened)


def test_limits_in_a_store_are_asked_for_kept_and_given_back() -> None:
    async def test() -> None:
        meter = SharedMeter()
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))))
            gateway = await stack.enter_async_context(
                gateway_before(engine, tenants=(replace(FIRST, concurrency=1),), stores=shared(meter))
            )
            one, two = await clients(stack, gateway, 2)
            one.send(post(chat(), key="sk-first"))
            await one.head()
            refused = await two.ask(post(chat(), key="sk-first"))
            assert (refused.status, refused.code) == (429, "concurrency_limited")
            await until(lambda: bool(meter.renewed))
            one.leave()
            await until(lambda: meter.local.held("first", 0.0).requests == 0)
            two.send(post(chat(), key="sk-first"))
            assert (await two.head())[0] == 200
        assert meter.closed
        assert meter.local.held("first", 0.0).requests == 0

    run(test)


def test_a_client_that_leaves_while_the_store_is_asked_leaves_no_lease() -> None:
    async def test() -> None:
        meter = SharedMeter()
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(plain()))
            gateway = await stack.enter_async_context(gateway_before(engine, tenants=(FIRST,), stores=shared(meter)))
            (client,) = await clients(stack, gateway, 1)
            meter.open.clear()
            client.send(post(say("x"), key="sk-first"))
            await until(lambda: gateway.status().in_flight == 1)
            client.leave()
            await until(lambda: gateway.status().in_flight == 0)
            meter.open.set()
            await until(lambda: meter.local.held("first", 0.0).requests == 0)
            assert engine.requests == []

    run(test)


@pytest.mark.parametrize("on_loss", ["closed", "open"])
def test_a_store_that_is_gone_closes_the_door_or_not_as_the_document_says(on_loss: Any) -> None:
    async def test() -> None:
        meter = SharedMeter()
        meter.failing = "connection to 10.0.0.7 refused"
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(plain()))
            gateway = await stack.enter_async_context(
                gateway_before(
                    engine, tenants=(FIRST,), stores=shared(meter), governance=GovernanceSpec(on_state_loss=on_loss)
                )
            )
            (client,) = await clients(stack, gateway, 1)
            answer = await client.ask(post(say("x"), key="sk-first"))
            if on_loss == "closed":
                assert (answer.status, answer.code) == (503, "limits_unknown")
                assert b"10.0.0.7" not in answer.body
            else:
                assert answer.status == 200
                assert gauge(gateway, "requests_unmetered_total") == 1
            assert gauge(gateway, "limits_store_up") == 0
            meter.failing = ""
            assert (await client.ask(post(say("x"), key="sk-first"))).status == 200
            assert gauge(gateway, "limits_store_up") == 1

    run(test)


def test_what_tenants_hold_is_told_by_tenant() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(FakeEngine(hang(STREAM_HEAD, chunk(chat_events("x")[0]))))
            gateway = await stack.enter_async_context(gateway_before(engine, tenants=(FIRST, SECOND)))
            (client,) = await clients(stack, gateway, 1)
            client.send(post(chat(), key="sk-first"))
            await client.head()
            (first, second) = await gateway.tenants_view()
            assert (first["id"], first["in_flight"], first["waiting"]) == ("first", 1, 0)
            assert first["blocks_held"] > 0
            assert first["tokens_today"] > 0
            assert (second["in_flight"], second["ttft_p50_s"]) == (0, None)
            json.dumps([first, second])

    run(test)
