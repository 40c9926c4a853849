"""The OpenAPI document says what the documents' API does: generated requests against every operation."""

from __future__ import annotations

import copy
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance

from fakes.engine import Asked, plain
from roadworthy.core.errors import Refused
from roadworthy.gateway.admin.checks import problems
from roadworthy.gateway.documents.app import OPERATIONS, documents_app, refusal
from roadworthy.gateway.documents.operations import document
from roadworthy.gateway.documents.place import TENANT_HEADER
from roadworthy.gateway.documents.schemas import CODES
from support.documents_service import library, put_and_read
from support.longdoc import LAW, lines, rightly, speaking
from support.threaded_engine import threaded_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

KEY = "sk-acme"
FOREIGN = "doc_" + "0" * 32
PLAYBOOK = {"name": "p", "checks": [{"id": "c", "topic": "privacy", "wanted": "a right"}]}


class Port:
    """Stands where the data port does: lets in who has the key, and says whose it is."""

    served: Starlette

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"authorization") != f"Bearer {KEY}".encode():
            refused = Refused("no", code="invalid_api_key", status=401)
            await refusal(refused, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope["headers"] = [*scope["headers"], (TENANT_HEADER.encode(), b"acme")]
        await self.served(scope, receive, send)


PORT = Port()


@pytest.fixture(scope="module", autouse=True)
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    def reply(name: str, prompt: str) -> str:
        if name == "compare":
            return lines({"clause": "none"})
        return rightly("c", "自然人享有隐私权")(name, prompt) if "自然人享有隐私权" in prompt else ""

    chat = speaking(reply)

    async def answer(asked: Asked) -> None:
        known = asked.path == "/v1/chat/completions" and asked.json()["model"] in (None, "m")
        await (chat if known else plain(404, b'{"error": {"code": "model_not_found", "message": "no"}}'))(asked)

    with (
        threaded_engine(answer) as engine,
        library(tmp_path_factory.mktemp("documents"), gateway_url=engine.url) as collections,
        ThreadPoolExecutor(4) as pool,
    ):
        put_and_read(collections, "acme", LAW.encode())
        PORT.served = documents_app(collections, pool, pool)
        yield


def narrowed() -> dict[str, Any]:
    """The document with ids that are there more often than generated ones would be, and playbooks that can be used."""
    described = copy.deepcopy(document(OPERATIONS))
    known = {"type": "string", "enum": [FOREIGN, "doc_" + _digest()]}
    for methods in described["paths"].values():
        for operation in methods.values():
            for one in operation.get("parameters", ()):
                if one["name"] == "document":
                    one["schema"] = known
    for name in ("search", "ask", "compare"):
        (content,) = described["paths"][f"/v1/documents/{name}"]["post"]["requestBody"]["content"].values()
        content["schema"] = copy.deepcopy(content["schema"])
        properties = content["schema"]["properties"]
        if name == "compare":
            properties["document"], properties["playbook"] = known, {"type": "object", "enum": [PLAYBOOK]}
        else:
            properties["documents"]["items"] = known
    return described


def _digest() -> str:
    return hashlib.sha256(LAW.encode()).hexdigest()[:32]


schema = schemathesis.openapi.from_dict(narrowed())
schema.app = PORT

NEVER_SURE = ("/v1/documents/search", "/v1/documents/ask", "/v1/documents/compare", "/v1/documents")
"""Where values that are right each can be wrong together, which a schema cannot say: query beside queries, an answer of
half the budget, a document that is not there."""


@schema.parametrize()
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_operation_answers_as_its_description_says(case: Case) -> None:
    if (case.method, case.path) == ("DELETE", "/v1/documents/{document}"):
        case.path_parameters = {"document": FOREIGN} if case.path_parameters else case.path_parameters
    excluded = [positive_data_acceptance] if case.path in NEVER_SURE or case.path_parameters else []
    case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=excluded)


def test_every_code_is_answered_by_some_operation_and_none_that_is_not_described() -> None:
    described = {code for one in OPERATIONS for code in one.all_errors}
    assert set(CODES) - described == {"not_found"}


def test_every_example_of_a_body_is_one_that_is_accepted() -> None:
    for one in OPERATIONS:
        if one.body is not None:
            assert list(problems(one.body, dict(one.examples))) == [], one.name
            assert one.examples, one.name
