"""What was used, by day, tenant and model; the ledger's rows; the audit trail."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.answers import AdminError, csv_answer, rows_answer
from roadworthy.gateway.admin.operations import Operation, Parameter, wrong_parameter
from roadworthy.gateway.admin.schemas import AUDIT_ROW, COUNT, LABEL, LEDGER_ROW, MODEL, TENANT_ID, TEXT, listed, ref
from roadworthy.gateway.admin.texts import time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roadworthy.gateway.admin.operations import Call
    from roadworthy.route.ledger import UsageRow

DAYS_SHOWN = 30
MOST_DAYS = 3_660
_COUNTS = ("requests", "prompt_tokens", "cached_tokens", "output_tokens")
_NAMES = ("day", "tenant", "model")


def _day(call: Call, name: str, otherwise: date) -> date:
    text = call.given[name]
    if text is None:
        return otherwise
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise wrong_parameter(name, text, "a day such as 2026-11-30") from None


def _days(call: Call) -> tuple[date, date]:
    """The first and last day asked for: 30 days until today (UTC) unless said otherwise."""
    last = _day(call, "to", datetime.fromtimestamp(call.desk.now_s(), tz=UTC).date())
    ahead = timedelta(days=DAYS_SHOWN - 1)
    first = _day(call, "from", last - ahead if last - date.min > ahead else date.min)
    if first > last:
        raise wrong_parameter("from", str(first), f"a day not after {last}")
    if (last - first).days >= MOST_DAYS:
        raise wrong_parameter("from", str(first), f"at most {MOST_DAYS:,} days until {last}")
    return first, last


def _no_ledger() -> AdminError:
    return AdminError(
        "no ledger is kept",
        code="no_ledger",
        hint="name a database in the document, such as gateway: {state_url: sqlite:///state.db}, and leave "
        "governance.ledger on",
    )


def summed(rows: Iterable[UsageRow], by: str) -> list[dict[str, Any]]:
    """Sums by what ``by`` names: one of day, tenant and model, or ``all`` three; in their order."""
    names = _NAMES if by == "all" else (by,)
    sums: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        held = sums.setdefault(tuple(getattr(row, name) for name in names), [0] * len(_COUNTS))
        for index, name in enumerate(_COUNTS):
            held[index] += getattr(row, name)
    return [
        {**dict(zip(names, key, strict=True)), **_counts(dict(zip(_COUNTS, held, strict=True)))}
        for key, held in sorted(sums.items())
    ]


def _counts(counts: dict[str, int]) -> dict[str, int]:
    return {**counts, "total_tokens": counts["prompt_tokens"] + counts["output_tokens"]}


async def _usage(call: Call) -> Any:
    first, last = _days(call)
    by, registry = call.given["by"], call.desk.registry

    def read() -> list[dict[str, Any]] | None:
        rows = registry.usage(
            since_day=str(first), until_day=str(last), tenant=call.given["tenant"], model=call.given["model"]
        )
        return None if rows is None else summed(rows, by)

    found = await call.desk.read(read)
    if found is None:
        raise _no_ledger()
    if call.given["format"] == "csv":
        columns = [*(_NAMES if by == "all" else (by,)), *_COUNTS, "total_tokens"]
        return csv_answer(found, columns, dict, name=f"usage-{first}-{last}")
    totals = _counts({name: sum(row[name] for row in found) for name in _COUNTS})
    return rows_answer({"from": str(first), "to": str(last), "by": by, "totals": totals}, "rows", found, dict)


async def _ledger(call: Call) -> Any:
    first, last = _days(call)
    limit = call.given["limit"]
    rows = await call.desk.read(
        call.desk.registry.ledger,
        since_s=_midnight_s(first), until_s=_midnight_s(last) + 86_400, tenant=call.given["tenant"],
        model=call.given["model"], limit=limit, before=call.given["before"],
    )  # fmt: skip
    if rows is None:
        raise _no_ledger()
    if call.given["format"] == "csv":
        return csv_answer(rows, tuple(LEDGER_ROW["properties"]), _ledger_json, name=f"ledger-{first}-{last}")
    last_id = _ledger_json(rows[-1])["request_id"] if len(rows) == limit else None
    return rows_answer({"next": last_id}, "rows", rows, _ledger_json)


def _midnight_s(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _ledger_json(row: Any) -> dict[str, Any]:
    fields: Mapping[str, Any] = asdict(row) if is_dataclass(row) and not isinstance(row, type) else row
    said = {
        "tenant": fields.get("tenant_id", fields.get("tenant")),
        "started": time_text(fields["started_s"]),
    }
    return {name: said[name] if name in said else fields[name] for name in LEDGER_ROW["properties"]}


async def _audit(call: Call) -> Any:
    limit = call.given["limit"]
    rows = await call.desk.read(
        call.desk.registry.audit_rows, limit=limit, before=call.given["before"], subject=call.given["subject"]
    )
    found = [
        {**{name: getattr(row, name) for name in AUDIT_ROW["properties"] if name != "at"}, "at": time_text(row.at_s)}
        for row in rows
    ]
    return {
        "rows": found, "next": found[-1]["id"] if len(found) == limit else None, "stored": call.desk.stored,
    }  # fmt: skip


_DAY = {
    "type": "string",
    "format": "date",
    "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "title": "a day such as 2026-11-30",
}
_RANGE = (
    Parameter(name="from", place="query", schema=_DAY, doc=f"First day, UTC; {DAYS_SHOWN} days back unless given."),
    Parameter(name="to", place="query", schema=_DAY, doc="Last day, UTC; today unless given."),
    Parameter(name="tenant", place="query", schema=TENANT_ID, doc="This tenant only."),
    Parameter(name="model", place="query", schema=MODEL, doc="This model only."),
    Parameter(
        name="format", place="query", schema={"type": "string", "enum": ["json", "csv"]}, doc="Of the answer.",
        default="json",
    ),
)  # fmt: skip


def _limit(most: int) -> Parameter:
    return Parameter(
        name="limit", place="query", schema={"type": "integer", "minimum": 1, "maximum": most},
        doc="Most rows in one answer.", default=100,
    )  # fmt: skip


OPERATIONS = (
    Operation(
        name="usage", method="GET", path="/api/usage", handle=_usage,
        parameters=(
            *_RANGE,
            Parameter(
                name="by", place="query", schema={"type": "string", "enum": [*_NAMES, "all"]},
                doc="What to sum by; all is a row for each day, tenant and model.", default="all",
            ),
        ),
        answer=listed(
            "rows", ref("UsageRow"), **{"from": TEXT, "to": TEXT, "by": TEXT, "totals": ref("UsageRow")}
        ),
        media=("application/json", "text/csv"), errors=("no_ledger",),
        summary="Requests and tokens by day, tenant and model.",
    ),
    Operation(
        name="ledger", method="GET", path="/api/ledger", handle=_ledger,
        parameters=(
            *_RANGE, _limit(10_000),
            Parameter(
                name="before", place="query", schema=LABEL, doc="Go on behind this request's id, the answer's next."
            ),
        ),
        answer=listed("rows", ref("LedgerRow"), next={"type": ["string", "null"]}),
        media=("application/json", "text/csv"), errors=("no_ledger",),
        summary="Billed requests one by one, the latest first.",
    ),
    Operation(
        name="audit", method="GET", path="/api/audit", handle=_audit,
        parameters=(
            _limit(1_000),
            Parameter(name="before", place="query", schema={**COUNT, "maximum": 2**62},
                      doc="Go on behind this row, the answer's next."),
            Parameter(name="subject", place="query", schema=LABEL, doc="About this only, such as tenant:team-a."),
        ),
        answer=listed("rows", ref("AuditRow"), next={"type": ["integer", "null"]}, stored={"type": "boolean"}),
        summary="Who changed what, the latest first.",
    ),
)  # fmt: skip
