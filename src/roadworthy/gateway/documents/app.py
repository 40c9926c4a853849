"""The documents' API: every operation, and the way from a request to it.

It is served on a private socket, to the data port alone, which says whose request it is.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from roadworthy.core.errors import ProbeError, Refused, Temporary
from roadworthy.gateway.admin.answers import AdminError, json_answer
from roadworthy.gateway.admin.checks import problems
from roadworthy.gateway.admin.dispatch import given_in
from roadworthy.gateway.admin.operations import Parameter
from roadworthy.gateway.admin.schemas import COUNT, FREE, listed, record, ref
from roadworthy.gateway.data.errors import BadRequest, error_body
from roadworthy.gateway.documents import schemas
from roadworthy.gateway.documents.answering import ask
from roadworthy.gateway.documents.operations import Call, Operation, document
from roadworthy.gateway.documents.place import PATHS, TENANT_HEADER
from roadworthy.gateway.documents.whole_body import WholeBody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor

    from starlette.requests import Request

    from roadworthy.gateway.documents.library import Library

MOST_BODY_BYTES = 2**20
"""Of JSON; a playbook of 200 checks is a tenth of it."""

UPLOAD_PART_BYTES = 2**20
"""Written to the disk at a time."""

FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")

_log = logging.getLogger(__name__)


async def _openapi(_: Call) -> Any:
    return document(OPERATIONS)


async def _upload(call: Call) -> Any:
    kind = _media_type(call.request)
    if kind in FORMS:
        raise BadRequest(
            f"a form ({kind}), wanted the document's bytes as the body", code="unsupported_media_type", status=415,
            hint="curl --data-binary @FILE -H 'Content-Type: application/octet-stream' .../v1/documents?name=FILE",
        )  # fmt: skip
    upload = await call.on_thread(call.library.upload, call.tenant)
    try:
        part = bytearray()
        async for piece in call.request.stream():
            part += piece
            if len(part) >= UPLOAD_PART_BYTES:
                await call.on_thread(upload.write, bytes(part))
                part.clear()
        if part:
            await call.on_thread(upload.write, bytes(part))
        vectors = call.given["vectors"] == "true"
        stored = await call.on_thread(call.library.stored, call.tenant, upload, call.given["name"], vectors=vectors)
    finally:
        await call.on_thread(upload.drop)
    return stored, 202 if stored["job"] is not None else 200


async def _documents(call: Call) -> Any:
    return await call.on_thread(
        call.library.documents, call.tenant, limit=call.given["limit"], after=call.given["after"]
    )


async def _document(call: Call) -> Any:
    return await call.on_thread(call.library.document, call.tenant, call.given["document"])


async def _content(call: Call) -> Response:
    path, name = await call.on_thread(call.library.source, call.tenant, call.given["document"])
    return FileResponse(
        path, filename=name, media_type="application/octet-stream",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )  # fmt: skip


async def _delete(call: Call) -> Any:
    return await call.on_thread(call.library.delete, call.tenant, call.given["document"])


async def _jobs(call: Call) -> Any:
    return await call.on_thread(call.library.jobs, call.tenant)


async def _job(call: Call) -> Any:
    return await call.on_thread(call.library.job, call.tenant, call.given["job"])


async def _cancel(call: Call) -> Any:
    return await call.on_thread(call.library.cancel, call.tenant, call.given["job"])


async def _resume(call: Call) -> Any:
    return await call.on_thread(call.library.resume, call.tenant, call.given["job"], call.key)


async def _result(call: Call) -> Any:
    return await call.on_thread(call.library.result, call.tenant, call.given["job"])


async def _search(call: Call) -> Any:
    body = call.body
    if ("query" in body) == ("queries" in body):
        raise BadRequest("query or queries, one of them", code="invalid_fields", param="query")
    queries = [body["query"]] if "query" in body else body["queries"]
    found = await call.on_thread(
        call.library.search, call.tenant, queries, limit=body.get("limit", 10), documents=body.get("documents", [])
    )
    return found[0] if "query" in body else {"searches": found}


async def _compare(call: Call) -> Any:
    defaults = {"model": None, "parallel": 4, "budget_tokens": None, "answer_tokens": None}
    return await call.on_thread(call.library.compare, call.tenant, {**defaults, **call.body}, key=call.key)


_DOCUMENT = Parameter(name="document", place="path", schema=schemas.DOCUMENT_ID, doc="Its id.")
_JOB = Parameter(name="job", place="path", schema=schemas.JOB_ID, doc="Its id.")
_QUESTION_ERRORS = ("document_not_found", "document_not_ready", "model_not_allowed", "model_not_found",
                    "invalid_question", "rate_limited", "engine_error", "engines_unavailable")  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="upload_document", method="POST", path=PATHS, handle=_upload, takes="application/octet-stream",
        summary="Store a document, and begin to read it.",
        doc="The body is the file: PDF, Word, Excel, PowerPoint, HTML, Markdown, text, a picture; what it is decides, "
        "not its name. 202 with the job that reads it; 200 without one where the same bytes are stored already.",
        parameters=(
            Parameter(name="name", place="query", default="document",
                      schema={"type": "string", "minLength": 1, "maxLength": 1000},
                      doc="As it is cited; folders are left out."),
            Parameter(name="vectors", place="query", default="true",
                      schema={"type": "string", "enum": ["true", "false"]},
                      doc="Embed it, so that it is found by meaning; false is faster."),
        ),
        answer=record({"document": ref("Document"), "job": {"oneOf": [ref("Job"), {"type": "null"}]}}),
        status=202, also=200,
        errors=("empty_document", "document_too_large", "documents_quota", "unsupported_media_type",
                "document_not_ready"),
    ),
    Operation(
        name="list_documents", method="GET", path=PATHS, handle=_documents, summary="All documents, the latest first.",
        parameters=(
            Parameter(name="limit", place="query", default=100,
                      schema={"type": "integer", "minimum": 1, "maximum": 1000}, doc="At most so many."),
            Parameter(name="after", place="query", schema=schemas.DOCUMENT_ID, doc="Begin behind this one."),
        ),
        answer=listed("documents", ref("Document"), has_more={"type": "boolean"}, stored_bytes=COUNT,
                      max_stored_bytes=COUNT, max_documents=COUNT),
        errors=("document_not_found",),
    ),
    Operation(
        name="search", method="POST", path=f"{PATHS}/search", handle=_search, body=schemas.SEARCH,
        summary="Find the units that answer a question.",
        doc="As `doc search --json`: number look-up first, then words and meaning. With `queries` the answers stand "
        "under `searches`, in order.",
        answer={"oneOf": [ref("Found"), listed("searches", ref("Found"))]},
        errors=("document_not_found", "document_not_ready"), examples={"query": "第1032条", "limit": 3},
    ),
    Operation(
        name="ask", method="POST", path=f"{PATHS}/ask", handle=ask, body=schemas.ASK,
        summary="Answer a question from the documents, every claim with its place, checked word for word.",
        doc="The rounds go through the gateway with the caller's key: its quotas, models and rules hold. With `stream` "
        "events named `round`, `claim` and `note` come as it goes, and last `answer` with the whole, or `error`; what "
        "a `claim` said, the last round may still withdraw.",
        answer="Answer", media=("application/json", "text/event-stream"), errors=_QUESTION_ERRORS,
        examples={"question": "What is our liability capped at?", "stream": False},
    ),
    Operation(
        name="compare", method="POST", path=f"{PATHS}/compare", handle=_compare, body=schemas.COMPARE,
        summary="Compare every clause of a contract with a playbook, as a job.",
        doc="The caller's key is used while the job runs and is never written down: a job that was interrupted goes on "
        "when it is resumed. Each clause's result is kept, and never asked for twice.",
        answer="Job", status=202, errors=("document_not_found", "document_not_ready", "invalid_playbook"),
        examples={
            "document": "doc_0123456789abcdef0123456789abcdef",
            "playbook": {"name": "Supply", "checks": [
                {"id": "cap", "topic": "Liability", "wanted": "capped at the fees of 12 months", "severity": "high"}]},
        },
    ),
    Operation(
        name="list_jobs", method="GET", path=f"{PATHS}/jobs", handle=_jobs, summary="All jobs, the latest first.",
        answer=listed("jobs", ref("Job")),
    ),
    Operation(
        name="get_job", method="GET", path=f"{PATHS}/jobs/{{job}}", handle=_job, parameters=(_JOB,), answer="Job",
        summary="How far a job is.", errors=("job_not_found",),
    ),
    Operation(
        name="cancel_job", method="POST", path=f"{PATHS}/jobs/{{job}}/cancel", handle=_cancel, parameters=(_JOB,),
        answer="Job", summary="End a job.", doc="It has ended when this answers; it can be resumed.",
        errors=("job_not_found", "job_state"),
    ),
    Operation(
        name="resume_job", method="POST", path=f"{PATHS}/jobs/{{job}}/resume", handle=_resume, parameters=(_JOB,),
        answer="Job", summary="Take up a job that was interrupted, was cancelled or failed.",
        errors=("job_not_found", "job_state", "document_not_found"),
    ),
    Operation(
        name="get_result", method="GET", path=f"{PATHS}/jobs/{{job}}/result", handle=_result, parameters=(_JOB,),
        answer=FREE, summary="The risk table of a comparison, as `doc batch --json`.",
        errors=("job_not_found", "job_state"),
    ),
    Operation(
        name="openapi", method="GET", path=f"{PATHS}/openapi.json", handle=_openapi, answer=FREE,
        summary="This document.",
    ),
    Operation(
        name="get_document", method="GET", path=f"{PATHS}/{{document}}", handle=_document, parameters=(_DOCUMENT,),
        answer="Document", summary="One document.", errors=("document_not_found",),
    ),
    Operation(
        name="delete_document", method="DELETE", path=f"{PATHS}/{{document}}", handle=_delete,
        parameters=(_DOCUMENT,), answer=record({"id": schemas.DOCUMENT_ID, "deleted": {"type": "boolean"}}),
        summary="Delete a document with all that was made of it.",
        doc="File, text, vectors, index, jobs and their results are gone from the disk when this answers; what is in "
        "progress on it is ended.",
        errors=("document_not_found",),
    ),
    Operation(
        name="get_content", method="GET", path=f"{PATHS}/{{document}}/content", handle=_content,
        parameters=(_DOCUMENT,), summary="The file as it was uploaded.", media=("application/octet-stream",),
        errors=("document_not_found",),
    ),
)  # fmt: skip


class _DocumentConvertor(StringConvertor):
    """What stands where an id does, and is no path of its own: a wrong method there is told as that."""

    regex = r"(?!(?:search|ask|compare|jobs|openapi\.json)$)[^/]+"


register_url_convertor("document", _DocumentConvertor())


def documents_app(library: Library, pool: Executor, questions: Executor) -> Starlette:
    """The application; the executors have the threads on which ``library`` is called."""
    of_path: dict[str, dict[str, Operation]] = {}
    for one in OPERATIONS:
        of_path.setdefault(one.path, {})[one.method] = one
    routes = []
    for path, by_method in of_path.items():
        place = path.replace("{document}", "{document:document}")
        routes.append(Route(place, _endpoint(by_method, library, pool, questions), methods=list(by_method)))
    app = Starlette(
        routes=routes, exception_handlers={HTTPException: _not_there}, middleware=[Middleware(WholeBody)]
    )  # fmt: skip
    app.router.redirect_slashes = False  # it would name this process's own address
    return app


def _endpoint(
    by_method: Mapping[str, Operation], library: Library, pool: Executor, questions: Executor
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        try:
            call = Call(
                request=request, tenant=request.headers[TENANT_HEADER], key=_key(request),
                given=_given(request, operation), body=await _body(request, operation), library=library,
                pool=pool, questions=questions,
            )  # fmt: skip
            result = await operation.handle(call)
        except Refused as refused:
            if (private := getattr(refused, "private", None)) is not None:
                _log.error("documents of %s: %s", request.headers[TENANT_HEADER], private)
            return refusal(refused)
        except ClientDisconnect:
            return Response(status_code=499)
        except (ProbeError, Temporary) as error:
            if operation.name != "ask":  # the disk, not a model
                _log.error("documents of %s: %s: %s", request.headers[TENANT_HEADER], operation.name, error)
                return refusal(
                    Refused("the disk does not do it now", code="storage_failed", status=507, hint="tell the operator")
                )
            return refusal(Refused(str(error), code="engine_error", status=502, hint=error.hint))
        except Exception:
            _log.exception("documents: %s %s", request.method, operation.path)
            return refusal(Refused("a fault of ours", code="internal_error", status=500, hint="tell the operator"))
        if isinstance(result, Response):
            return result
        value, status = result if isinstance(result, tuple) else (result, operation.status)
        return json_answer(value, status=status)

    return answer


def refusal(refused: Refused, headers: Mapping[str, str] | None = None) -> Response:
    """The data port's shape of an error."""
    more = {"Cache-Control": "no-store", "x-roadworthy-decision": refused.code, **(headers or {})}
    if refused.retry_after_s is not None:
        more["Retry-After"] = str(max(1, -int(-refused.retry_after_s // 1)))
    return Response(error_body(refused), status_code=refused.status, headers=more, media_type="application/json")


def _key(request: Request) -> str | None:
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if kind.lower() == "bearer" else None


def _given(request: Request, operation: Operation) -> Mapping[str, Any]:
    try:
        return given_in(request, operation.parameters)
    except AdminError as error:
        raise BadRequest(str(error), code=error.code, hint=error.hint, param=error.param) from None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _body(request: Request, operation: Operation) -> Mapping[str, Any]:
    """The body's object, checked; empty for an operation that takes none."""
    if operation.body is None:
        return {}
    if _media_type(request) not in ("", "application/json"):
        raise BadRequest(
            f"a body of type {_media_type(request)[:100]!r}, wanted application/json", code="unsupported_media_type",
            status=415,
        )  # fmt: skip
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > MOST_BODY_BYTES:
            raise BadRequest(f"a body may take {MOST_BODY_BYTES:,} bytes", code="body_too_large", status=413)
    hint = f"such as {json.dumps(operation.examples, ensure_ascii=False)}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object", code="invalid_json", hint=hint)
    for one in problems(operation.body, value):
        raise BadRequest(
            f"{one['path'] or 'body'}: {one['seen']}, wanted {one['wanted']}", code="invalid_fields",
            param=one["path"] or None, hint=hint,
        )  # fmt: skip
    return value


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    what = f"{request.url.path[:100]} does not take {request.method}" if error.status_code == 405 else "no such path"
    refused = BadRequest(what, code=code, status=error.status_code, hint=f"GET {PATHS}/openapi.json tells every path")
    return refusal(refused, error.headers)
