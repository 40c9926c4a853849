"""The OpenAPI document says what the admin API does: generated requests, right and wrong, against every operation."""

from __future__ import annotations

import asyncio
import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance

from fakes.governed import FakeGoverned, FlakyRegistry
from roadworthy.gateway.admin.answers import ERRORS
from roadworthy.gateway.admin.app import OPERATIONS, admin_app
from roadworthy.gateway.admin.checks import problems
from roadworthy.gateway.admin.desk import Desk
from roadworthy.gateway.admin.openapi import document
from roadworthy.route.ledger import LedgerRow, UsageRow
from support.admin import BOOTSTRAP, DOCUMENT

if TYPE_CHECKING:
    from starlette.applications import Starlette

USED = (
    UsageRow(day="2026-11-30", tenant="acme", model="m", requests=1, prompt_tokens=7, cached_tokens=0, output_tokens=3),
)
ROWS = (LedgerRow(request_id="r1", tenant_id="acme", model="m", started_s=1.0, prompt_tokens=7, output_tokens=3),)


@cache
def app() -> Starlette:
    view = FakeGoverned(document=DOCUMENT)
    desk = Desk(pepper=b"p" * 32, bootstrap=BOOTSTRAP, registry=FlakyRegistry(stored=False, used=USED, rows=ROWS))
    asyncio.run(desk.open(view))
    return admin_app(lambda: view, desk)


def narrowed() -> dict[str, Any]:
    """The document with tenants that are there more often than generated ones would be, and without If-Match, whose
    right value only the answer before tells."""
    described = copy.deepcopy(document(OPERATIONS))
    for methods in described["paths"].values():
        for operation in methods.values():
            kept = [one for one in operation.get("parameters", ()) if one["name"] != "If-Match"]
            for one in kept:
                if (one["name"], one["in"]) == ("tenant", "path"):
                    one["schema"] = {"type": "string", "enum": ["acme", "beta", "nobody"]}
            operation["parameters"] = kept
    return described


schema = schemathesis.openapi.from_dict(narrowed())
schema.app = app()

BETWEEN = ("/api/usage", "/api/ledger", "/api/tenants", "/api/tenants/{tenant}")
"""Where two values that are right each can be wrong together, which a schema cannot say: days that make no range, a
fallback that is among the models."""


@schema.parametrize()
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_operation_answers_as_its_description_says(case: Case) -> None:
    excluded = [positive_data_acceptance] if case.path in BETWEEN else []
    case.call_and_validate(headers={"Authorization": f"Bearer {BOOTSTRAP}"}, excluded_checks=excluded)


def test_every_code_is_answered_by_some_operation_and_none_that_is_not_described() -> None:
    described = {code for one in OPERATIONS for code in one.all_errors}
    assert set(ERRORS) - described == {"not_found", "method_not_allowed", "internal_error"}


def test_every_schema_that_bodies_and_parameters_are_held_against_uses_only_words_that_are_checked() -> None:
    for one in OPERATIONS:
        for schema_of in (*(parameter.schema for parameter in one.parameters), *([one.body] if one.body else [])):
            for value in ("x", 1, 1.5, True, None, ["x"], {"x": 1}, _like(schema_of)):
                list(problems(schema_of, value))


def _like(of: Any) -> Any:
    """An object with every property that the schema names, so that each is looked at."""
    return {
        name: _like(below) if below.get("type") == "object" else ["x"]
        for name, below in of.get("properties", {}).items()
    }


def test_every_example_of_a_body_is_one_that_is_accepted() -> None:
    for one in OPERATIONS:
        if one.body is not None:
            assert list(problems(one.body, dict(one.examples))) == [], one.name
            assert one.examples, one.name
