"""The admin port: health, readiness, metrics, status."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from fakes.engine import FakeEngine, chat_events, hang, plain, stream_of
from roadworthy.gateway import governed_metrics
from roadworthy.gateway.metrics import PREFIX
from roadworthy.gateway.poller import PollPolicy
from support.gateway import chat, client_of, gateway_before, get, post, run, until

DOCS = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "gateway.md"
QUICK_POLL = PollPolicy(interval_s=0.01)


def test_it_lives_before_it_is_ready_and_says_which_engine_is_missing() -> None:
    async def test() -> None:
        engine = FakeEngine()
        await engine.start()
        await engine.stop()
        async with (
            gateway_before(engine, poll=QUICK_POLL) as gateway,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            assert (await admin.get("/healthz")).status_code == 200
            assert (await admin.get("/readyz")).status_code == 503
            (shown,) = (await admin.get("/api/status")).json()["endpoints"]
            assert (shown["url"], shown["reachable"]) == (engine.url, False)
            assert shown["note"]
            async with engine:
                await until(lambda: gateway.ready)
                assert (await admin.get("/readyz")).status_code == 200

    run(test)


def test_an_engine_whose_health_turns_bad_is_left_out_and_comes_back() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as sick,
            FakeEngine(plain()) as well,
            gateway_before(sick, well, poll=QUICK_POLL) as gateway,
            client_of(gateway) as client,
        ):
            sick.health_status = 503
            await until(lambda: not gateway.status().endpoints[0].healthy)
            for _ in range(4):
                await client.ask(post(chat(stream=False)))
            assert (len(sick.requests), len(well.requests)) == (0, 4)
            sick.health_status = 200
            await until(lambda: gateway.status().endpoints[0].healthy)
            await client.ask(post(chat(stream=False)))
            assert len(sick.requests) == 1

    run(test)


def test_the_engines_own_load_is_shown_and_routed_by() -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as busy, FakeEngine(plain()) as free:
            busy.metrics = 'vllm:num_requests_waiting{engine="0"} 7.0\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n'
            async with gateway_before(busy, free) as gateway, client_of(gateway) as client:
                shown = gateway.status().endpoints[0]
                assert (shown.waiting, shown.kv_usage_ratio) == (7, 0.5)
                for _ in range(3):
                    await client.ask(post(chat(stream=False)))
                assert (len(busy.requests), len(free.requests)) == (0, 3)

    run(test)


def test_status_counts_requests_tokens_and_what_is_in_flight() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            await client.ask(post(chat(stream=False)))
            engine.answer = stream_of(chat_events("a", "b"))
            await client.ask(post(chat()))
            await client.ask(get("/v1/models", key="sk-wrong"))
            engine.answer = hang()
            client.send(post(chat()))
            await until(lambda: len(engine.requests) == 3)
            status = (await admin.get("/api/status")).json()
            (tenant,) = status["tenants"]
            assert (tenant["id"], tenant["requests"], tenant["in_flight"]) == ("acme", 2, 1)
            assert (tenant["prompt_tokens"], tenant["output_tokens"]) == (3, 2 + 3)
            assert tenant["output_tokens_estimated"] == 3
            assert (status["requests"], status["in_flight"], status["endpoints"][0]["in_flight"]) == (3, 1, 1)
            assert (status["ready"], status["draining"]) == (True, False)

    run(test)


def test_metrics_count_by_tenant_and_outcome_and_never_by_request() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            await client.ask(post(chat(stream=False), headers=["X-Session-ID: session-text"]))
            engine.answer = stream_of(chat_events("a", usage=(4, 1)))
            await client.ask(post(chat()))
            await client.ask(post(chat(model="model-text")))
            answer = await admin.get("/metrics")
            text = answer.text
        assert answer.headers["content-type"].startswith("text/plain")
        assert 'requests_total{operation="chat",outcome="ok",status_class="2xx",tenant="acme"} 2.0' in text
        assert 'requests_total{operation="chat",outcome="refused",status_class="4xx",tenant="acme"} 1.0' in text
        assert 'tokens_total{kind="output",source="usage",tenant="acme"} 3.0' in text
        of_engine = f'{{endpoint="{engine.url}",model="m",operation="chat",outcome="ok"}}'
        assert f"ttft_seconds_count{of_engine} 1.0" in text
        assert f"request_duration_seconds_count{of_engine} 2.0" in text
        assert "session-text" not in text
        assert "model-text" not in text

    run(test)


def test_the_latest_requests_are_shown_newest_first_and_without_their_text() -> None:
    async def test() -> None:
        async with (
            FakeEngine(stream_of(chat_events("the answer", usage=(4, 1)))) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            first = await client.ask(post({**chat(), "messages": [{"role": "user", "content": "the question"}]}))
            await client.ask(post(chat(), key="sk-wrong"))
            answer = await admin.get("/api/requests")
            latest, before = answer.json()["requests"]
        assert (latest["ending"], latest["status"], latest["tenant_id"]) == ("refused", 401, "-")
        assert before["request_id"] == first.headers["x-request-id"]
        assert (before["tenant_id"], before["operation"], before["endpoint"]) == ("acme", "chat", engine.url)
        assert (before["prompt_tokens"], before["output_tokens"], before["tokens_estimated"]) == (4, 1, False)
        assert 0 < before["ttft_s"] <= before["duration_s"]
        assert "the question" not in answer.text
        assert "the answer" not in answer.text

    run(test)


def test_without_a_document_there_is_nothing_to_read_again() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine) as gateway,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            answer = await admin.post("/api/reload")
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "document_refused")
            assert "reloads_refused_total 1.0" in (await admin.get("/metrics")).text

    run(test)


def test_every_metric_has_its_place_in_the_docs() -> None:
    documented = DOCS.read_text()

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            await client.ask(post(chat(stream=False)))
            names = set(re.findall(r"^# TYPE (\S+)", (await gateway.metrics_text()).decode(), re.MULTILINE))
        names = {name for name in names if not name.endswith("_created")}
        # and those that need a store, a ledger or several workers
        names |= {f"{PREFIX}{name}" for name in (*governed_metrics.GAUGES, *governed_metrics.TENANT_GAUGES)}
        names |= {f"{PREFIX}{name}_total" for name in governed_metrics.COUNTERS}
        assert len(names) >= 10
        assert [name for name in sorted(names) if f"`{name}`" not in documented] == []

    run(test)


def test_unknown_paths_and_methods_get_the_one_error_shape() -> None:
    async def test() -> None:
        async with (
            FakeEngine() as engine,
            gateway_before(engine) as gateway,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            missing, wrong = await admin.get("/nothing"), await admin.post("/healthz")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")

    run(test)
