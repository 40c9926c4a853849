"""The shapes of what the documents' API takes and gives, and the codes of its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.schemas import COUNT, TEXT, TIME, listed, nullable, record, ref

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

DOCUMENT_ID: Schema = {
    "type": "string", "pattern": "^doc_[0-9a-f]{32}$", "title": "the id of a document, doc_ and 32 hexadecimal digits",
}  # fmt: skip
JOB_ID: Schema = {
    "type": "string", "pattern": "^job_[0-9a-f]{24}$", "title": "the id of a job, job_ and 24 hexadecimal digits",
}  # fmt: skip
QUESTION: Schema = {"type": "string", "minLength": 1, "maxLength": 8000, "pattern": "^[\\s\\S]*\\S[\\s\\S]*$"}
DOCUMENTS: Schema = {
    "type": "array", "items": DOCUMENT_ID, "maxItems": 1000, "uniqueItems": True, "default": [],
    "description": "Only these; left out, all that are ready.",
}  # fmt: skip
MODEL: Schema = {
    "type": ["string", "null"], "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$",
    "description": "Left out, the first that the tenant may use.",
}  # fmt: skip
BUDGET: Schema = {
    "type": ["integer", "null"], "minimum": 256, "maximum": 10_000_000,
    "description": "Prompt and answer of one request to the model together; left out, what it takes, at most 16,384.",
}  # fmt: skip
ANSWER_TOKENS: Schema = {
    "type": ["integer", "null"], "minimum": 16, "maximum": 131_072,
    "description": "Longest reply of one round; left out 1,024, or a quarter of the budget.",
}  # fmt: skip

SEARCH: Schema = {
    "type": "object",
    "properties": {
        "query": {**QUESTION, "description": "What is looked for: a section's number, words, meaning."},
        "queries": {
            "type": "array", "items": QUESTION, "maxItems": 100, "description": "Several at once, instead of `query`.",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
        "documents": DOCUMENTS,
    },
    "minProperties": 1,
    "additionalProperties": False,
}  # fmt: skip

ASK: Schema = {
    "type": "object",
    "properties": {
        "question": QUESTION,
        "model": MODEL,
        "reranker": {**MODEL, "description": "Model whose /v1/rerank orders what is found; left out, none."},
        "documents": DOCUMENTS,
        "quick": {
            "type": "boolean", "default": False, "description": "One request to the model: no rounds before and after.",
        },
        "stream": {"type": "boolean", "default": False, "description": "Server-sent events as it goes."},
        "budget_tokens": BUDGET,
        "answer_tokens": ANSWER_TOKENS,
    },
    "required": ["question"],
    "additionalProperties": False,
}  # fmt: skip

COMPARE: Schema = {
    "type": "object",
    "properties": {
        "document": {**DOCUMENT_ID, "description": "The contract."},
        "playbook": {
            "type": "object", "properties": {}, "additionalProperties": True,
            "description": "`name` and `checks`, as docs/guides/documents.md has them.",
        },
        "model": MODEL,
        "parallel": {"type": "integer", "minimum": 1, "maximum": 16, "default": 4, "description": "At a time."},
        "budget_tokens": BUDGET,
        "answer_tokens": ANSWER_TOKENS,
    },
    "required": ["document", "playbook"],
    "additionalProperties": False,
}  # fmt: skip

DOCUMENT = record(
    {
        "id": DOCUMENT_ID,
        "name": TEXT,
        "status": {
            "type": "string", "enum": ["queued", "reading", "ready", "failed", "cancelled"],
            "description": "Only what is ready is searched.",
        },
        "bytes": COUNT,
        "uploaded": TIME,
        "kind": {"type": ["string", "null"], "description": "What it was taken for, whatever its name says."},
        "pages": nullable(COUNT),
        "ocr_pages": {**nullable(COUNT), "description": "Pages whose words were recognised in a picture."},
        "unread_pages": {**nullable(COUNT), "description": "Pages that are pictures, and gave no words."},
        "units": {**nullable(COUNT), "description": "Articles, sections, clauses: what is found and cited."},
        "vectors": {"type": "boolean", "description": "Whether it is found by meaning too."},
        "notes": {"type": "array", "items": TEXT},
        "error": nullable(TEXT),
        "hint": nullable(TEXT),
    },
    doc="A document. Its id is made of its bytes: the same document is stored once.",
)  # fmt: skip

JOB = record(
    {
        "id": JOB_ID,
        "kind": {"type": "string", "enum": ["ingest", "compare"]},
        "document_id": DOCUMENT_ID,
        "document": nullable(TEXT),
        "status": {
            "type": "string", "enum": ["queued", "running", "interrupted", "done", "failed", "cancelled"],
            "description": "interrupted: it goes on when its tenant resumes it; an ingest goes on by itself.",
        },
        "before_it": {**nullable(COUNT), "description": "Documents of the same tenant that are read before this one."},
        "created": TIME,
        "started": nullable(TIME),
        "ended": nullable(TIME),
        "progress": record(
            {
                "what": {**nullable(TEXT), "description": "pages, units embedded, or clauses."},
                "done": COUNT, "of": nullable(COUNT),
                "per_s": {"type": ["number", "null"], "description": "Of them, while it runs."},
            }
        ),
        "error": nullable(TEXT),
        "hint": nullable(TEXT),
    },
    doc="Work on a document that goes on without a connection.",
)  # fmt: skip

HIT = record(
    {
        "document": TEXT, "document_id": DOCUMENT_ID, "section": TEXT, "title": TEXT,
        "path": {"type": "array", "items": TEXT}, "page": nullable(COUNT), "start": COUNT, "end": COUNT,
        "score": {"type": "number"}, "named": {"type": "boolean", "description": "The query names it by number."},
        "text": TEXT,
    },
    doc="A unit that was found, whole. start and end are characters of the document's text.",
)  # fmt: skip

FOUND = listed("results", ref("Hit"), query=TEXT)

CITATION = record(
    {
        "document": TEXT, "document_id": DOCUMENT_ID, "section": TEXT, "path": {"type": "array", "items": TEXT},
        "page": nullable(COUNT), "quote": {**TEXT, "description": "The stored text between start and end."},
        "start": COUNT, "end": COUNT,
    },
    doc="Words of a document that stand there.",
)  # fmt: skip

CLAIM = record(
    {
        "text": TEXT,
        "verified": {"type": "boolean", "description": "Its quotations stand in the text."},
        "supported": {"type": ["boolean", "null"], "description": "What the model said when it was asked again."},
        "problems": {"type": "array", "items": TEXT},
        "citations": {"type": "array", "items": ref("Citation")},
    },
    doc="One sentence of an answer.",
)  # fmt: skip

ANSWER = record(
    {
        "question": TEXT,
        "outcome": {"type": "string", "enum": ["answered", "not_in_document", "unverified"]},
        "model": TEXT,
        "claims": {"type": "array", "items": ref("Claim"), "description": "Verified ones."},
        "unverified": {"type": "array", "items": ref("Claim")},
        "passages": {
            "type": "array",
            "items": record(
                {"id": TEXT, "document": TEXT, "document_id": DOCUMENT_ID, "section": TEXT, "place": TEXT}
            ),
        },
        "rounds": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        "notes": {"type": "array", "items": TEXT},
    },
    doc="What came of a question.",
)  # fmt: skip

CODES: Mapping[str, tuple[int, str]] = {
    "invalid_json": (400, "The body is no JSON object."),
    "invalid_fields": (400, "Something in the body cannot be used."),
    "invalid_parameter": (400, "A parameter of the path or the query cannot be used."),
    "invalid_question": (400, "The question cannot be answered as it was put."),
    "invalid_playbook": (400, "The playbook has problems, which the message names."),
    "empty_document": (400, "The body is empty."),
    "invalid_api_key": (401, "The key is not known, or has ended."),
    "model_not_allowed": (403, "The tenant may not use this model."),
    "documents_quota": (403, "The tenant has stored as much as it may."),
    "not_found": (404, "There is no such path."),
    "document_not_found": (404, "The tenant has no document of this id."),
    "job_not_found": (404, "The tenant has no job of this id."),
    "model_not_found": (404, "No engine serves this model."),
    "method_not_allowed": (405, "The path is there, with other methods."),
    "document_not_ready": (409, "The document is not read yet, or could not be."),
    "job_state": (409, "The job is in a state in which this cannot be done."),
    "document_too_large": (413, "The document is larger than any may be."),
    "body_too_large": (413, "The body is longer than any that is wanted here."),
    "unsupported_media_type": (415, "The body is of a type that is not taken here."),
    "documents_busy": (429, "Too much of this at once."),
    "rate_limited": (429, "A quota of the tenant; the data port's own codes come back as they are."),
    "internal_error": (500, "A fault of ours."),
    "engine_error": (502, "The gateway or an engine did not answer a question."),
    "documents_unavailable": (503, "The documents' process is not there at this moment."),
    "engines_unavailable": (503, "No engine can take a question."),
    "storage_failed": (507, "The disk is full, or a file cannot be read."),
}
"""Every code of an error with its HTTP status, and what it means. Questions come back with any code of the
data port too."""

ERROR = record(
    {"error": record({"message": TEXT, "type": TEXT, "code": TEXT, "param": nullable(TEXT), "hint": nullable(TEXT)})},
    doc="What is wrong, and the next step; the shape of the data port.",
)

COMPONENTS: dict[str, Schema] = {
    "Document": DOCUMENT, "Job": JOB, "Hit": HIT, "Found": FOUND, "Citation": CITATION, "Claim": CLAIM,
    "Answer": ANSWER, "Error": ERROR,
}  # fmt: skip
