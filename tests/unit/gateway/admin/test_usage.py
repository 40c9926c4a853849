"""Usage, ledger and audit: sums, days, CSV, and going on where an answer stopped."""

from __future__ import annotations

import asyncio
import csv
import io
from dataclasses import replace

import pytest

from fakes.governed import FlakyRegistry
from roadworthy.route.ledger import LedgerRow, UsageRow
from support.admin import code, office

USED = (
    UsageRow(
        day="2026-11-29", tenant="acme", model="m", requests=2, prompt_tokens=10, cached_tokens=4, output_tokens=5
    ),
    UsageRow(day="2026-11-30", tenant="acme", model="m", requests=1, prompt_tokens=7, cached_tokens=0, output_tokens=3),
    UsageRow(day="2026-11-30", tenant="acme", model="n", requests=1, prompt_tokens=1, cached_tokens=0, output_tokens=1),
    UsageRow(
        day="2026-11-30", tenant="beta", model="m", requests=5, prompt_tokens=50, cached_tokens=0, output_tokens=9
    ),
    UsageRow(
        day="2026-10-01", tenant="beta", model="m", requests=9, prompt_tokens=90, cached_tokens=0, output_tokens=9
    ),
)
ROW = LedgerRow(
    request_id="r1", tenant_id="acme", model="m", started_s=1_796_040_000.25, prompt_tokens=7, output_tokens=3,
    cached_tokens=2, endpoint="http://10.0.0.11:8000", operation="chat", ending="completed", status=200, worker="0",
)  # fmt: skip


def test_usage_is_summed_by_what_is_asked_and_adds_up() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry(used=USED)) as here, here.client() as admin:
            for by, rows in (("all", 4), ("day", 2), ("tenant", 2), ("model", 2)):
                answer = (await admin.get("/api/usage", params={"by": by})).json()
                assert len(answer["rows"]) == rows
                assert answer["totals"] == {
                    "requests": 9, "prompt_tokens": 68, "cached_tokens": 4, "output_tokens": 18, "total_tokens": 86,
                }  # fmt: skip
            acme, beta = (await admin.get("/api/usage", params={"by": "tenant"})).json()["rows"]
            assert (acme["tenant"], acme["requests"], acme["total_tokens"]) == ("acme", 4, 27)
            assert (beta["tenant"], beta["prompt_tokens"]) == ("beta", 50)

    asyncio.run(test())


def test_usage_is_of_thirty_days_until_today_unless_said_otherwise() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry(used=USED)) as here, here.client() as admin:
            assert here.registry is not None
            await admin.get("/api/usage")
            assert here.registry.asked == {"since": "2026-11-01", "until": "2026-11-30"}
            await admin.get("/api/usage", params={"from": "2026-10-01", "to": "2026-10-31"})
            assert here.registry.asked == {"since": "2026-10-01", "until": "2026-10-31"}
            await admin.get("/api/usage", params={"to": "2026-03-01"})
            assert here.registry.asked == {"since": "2026-01-31", "until": "2026-03-01"}
            only = (await admin.get("/api/usage", params={"tenant": "acme", "model": "n", "by": "model"})).json()
            assert [one["requests"] for one in only["rows"]] == [1]

    asyncio.run(test())


@pytest.mark.parametrize(
    "query",
    [
        {"from": "2026-12-01"},
        {"from": "2026-02-30"},
        {"from": "yesterday"},
        {"from": "0001-01-01"},
        {"by": "week"},
        {"format": "xml"},
        {"tenant": "a b"},
    ],
)
def test_a_range_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert code(await admin.get("/api/usage", params=query)) == (400, "invalid_parameter")

    asyncio.run(test())


def test_usage_as_csv_opens_in_a_spreadsheet_and_runs_nothing_there() -> None:
    async def test() -> None:
        odd = replace(USED[0], model='=cmd|"calc"')
        async with office(registry=FlakyRegistry(used=(odd, USED[3]))) as here, here.client() as admin:
            answer = await admin.get("/api/usage", params={"format": "csv"})
            assert answer.headers["content-type"].startswith("text/csv")
            assert 'filename="usage-2026-11-01-2026-11-30.csv"' in answer.headers["content-disposition"]
            first, second = csv.DictReader(io.StringIO(answer.text))
            assert first["model"] == '\'=cmd|"calc"'
            assert (second["tenant"], second["requests"], second["total_tokens"]) == ("beta", "5", "59")

    asyncio.run(test())


def test_ledger_rows_come_as_json_and_csv_and_go_on() -> None:
    async def test() -> None:
        rows = [replace(ROW, request_id=f"r{index}") for index in range(3)]
        async with office(registry=FlakyRegistry(rows=rows)) as here, here.client() as admin:
            assert here.registry is not None
            answer = (await admin.get("/api/ledger", params={"limit": 2})).json()
            assert answer["next"] == "r1"
            first = answer["rows"][0]
            assert (first["request_id"], first["tenant"], first["started"]) == (
                "r0",
                "acme",
                "2026-11-30T12:00:00.250Z",
            )
            assert (first["prompt_tokens"], first["cached_tokens"], first["estimated"]) == (7, 2, False)
            await admin.get("/api/ledger", params={"before": "r1", "from": "2026-11-30"})
            assert here.registry.asked == {"since_s": 1_795_996_800.0, "until_s": 1_796_083_200.0, "before": "r1"}
            table = list(csv.DictReader(io.StringIO((await admin.get("/api/ledger", params={"format": "csv"})).text)))
            assert [one["request_id"] for one in table] == ["r0", "r1", "r2"]

    asyncio.run(test())


def test_where_no_ledger_is_kept_the_answer_says_how_to_keep_one() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            for path in ("/api/usage", "/api/ledger"):
                answer = await admin.get(path)
                assert code(answer) == (409, "no_ledger")
                assert "state_url" in answer.json()["error"]["hint"]

    asyncio.run(test())


def test_a_database_that_does_not_answer_is_said_so() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert here.registry is not None
            here.registry.down = "timeout"
            for path in ("/api/usage", "/api/ledger", "/api/audit"):
                assert code(await admin.get(path)) == (503, "state_unavailable")

    asyncio.run(test())


def test_the_audit_goes_on_where_it_stopped_and_keeps_to_a_subject() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            for rpm in range(1, 6):
                await admin.patch("/api/tenants/acme", json={"rpm": rpm})
                await admin.patch("/api/tenants/beta", json={"rpm": rpm})
            query: dict[str, str] = {"subject": "tenant:acme", "limit": "2"}
            seen: list[int] = []
            while True:
                answer = (await admin.get("/api/audit", params=query)).json()
                seen += [row["after"]["rpm"] for row in answer["rows"]]
                if answer["next"] is None:
                    break
                query["before"] = str(answer["next"])
            assert seen == [5, 4, 3, 2, 1]

    asyncio.run(test())


def test_thousands_of_rows_come_whole_and_in_parts() -> None:
    async def test() -> None:
        used = [replace(USED[1], tenant=f"t{index:05}") for index in range(1234)]
        async with office(registry=FlakyRegistry(used=used)) as here, here.client() as admin:
            answer = (await admin.get("/api/usage")).json()
            assert [one["tenant"] for one in answer["rows"]] == [one.tenant for one in used]
            assert answer["totals"]["requests"] == 1234
            table = list(csv.DictReader(io.StringIO((await admin.get("/api/usage?format=csv")).text)))
            assert [one["tenant"] for one in table] == [one.tenant for one in used]
            assert (await admin.get("/api/usage?tenant=nobody")).json()["rows"] == []
            assert len((await admin.get("/api/usage?tenant=nobody&format=csv")).text.splitlines()) == 1

    asyncio.run(test())
