"""The paths of the data port, and what may stand in each one's body.

Allow-lists hold the request fields of vLLM 0.32 (its ``protocol`` modules) less those that steer scheduling, caches,
transfer or template code (facts of the engine, in docs/concepts/gateway.md). A field that is not listed never reaches
an engine. Fields whose size decides what a request costs are typed, so that one pass of the decoder checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from roadworthy.core.units import MIB

Dialect = Literal["openai", "anthropic"]
Operation = Literal[
    "chat", "text_completion", "embeddings", "responses", "rerank", "score", "tokenize", "messages", "count_tokens",
    "models", "response_by_id", "documents",
]  # fmt: skip
"""What a request does; low-cardinality, so a metric label and a span's operation name."""

GENERATING = ("chat", "text_completion", "responses", "messages")

MAX_N = 128
"""OpenAI's own upper bound of ``n``: each choice is a sequence that holds blocks of its own."""
MAX_PROMPTS = 128
"""Prompts in one completion: each is a sequence of its own."""
MAX_INPUTS = 2048
"""Texts in one embedding, score or rerank request; OpenAI's bound."""
MAX_LOGPROBS = 20
"""vLLM's own ``max_logprobs``. Below zero would ask for the whole vocabulary."""

_Optional = UnsetType | None


class Fields(msgspec.Struct, gc=False):
    """What the gateway reads of a body, for routes that do not take the field; a route's own fields go before."""

    stream: ClassVar[bool | None] = None
    max_tokens: ClassVar[int | None] = None
    max_completion_tokens: ClassVar[int | None] = None
    max_output_tokens: ClassVar[int | None] = None
    messages: ClassVar[tuple[Message, ...]] = ()
    chat_template_kwargs: ClassVar[Raw | UnsetType] = UNSET
    previous_response_id: ClassVar[str | None] = None
    prompt_cache_key: ClassVar[Raw | UnsetType] = UNSET
    stream_options: ClassVar[Raw | UnsetType] = UNSET
    prompt: ClassVar[Raw | UnsetType] = UNSET
    n: ClassVar[int | None] = None
    user: ClassVar[Raw | UnsetType] = UNSET


class Message(msgspec.Struct, gc=False):
    """One message of a conversation. Text content stays raw; content of parts is looked into for media."""

    role: str = ""
    content: Raw = Raw(b"")


_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Choices = Annotated[int, Meta(ge=0, le=MAX_N)]
_Logprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
_StopText = Annotated[str, Meta(max_length=1024)]
_Stops = Annotated[list[_StopText], Meta(max_length=16)]
_TokenIds = Annotated[list[int], Meta(max_length=1024)]
_Words = Annotated[list[_StopText], Meta(max_length=256)]
_Bias = Annotated[dict[str, float], Meta(max_length=1024)]
_Id = Annotated[str, Meta(max_length=128)]

_TYPED: dict[str, Any] = {
    "model": str,
    "stream": bool | None,
    "n": _Choices | None,
    "max_tokens": _Count | None,
    "max_completion_tokens": _Count | None,
    "max_output_tokens": _Count | None,
    "min_tokens": _Count | None,
    "max_tool_calls": _Count | None,
    "thinking_token_budget": int | None,
    "messages": list[Message],
    "stop": str | _Stops | None,
    "stop_sequences": _Stops | None,
    "stop_token_ids": _TokenIds | None,
    "allowed_token_ids": _TokenIds | None,
    "logprob_token_ids": Annotated[list[int], Meta(max_length=MAX_INPUTS)] | None,
    "bad_words": _Words | None,
    "logit_bias": _Bias | None,
    "top_logprobs": _Logprobs | None,
    "prompt_logprobs": _Logprobs | None,
    "previous_response_id": _Id | None,
    "top_n": _Count | None,
}
_PRESET: dict[str, Any] = {"model": "", "stream": None, "max_tokens": None, "messages": ()}

_SAMPLING = (
    "temperature top_p top_k min_p seed user frequency_penalty presence_penalty repetition_penalty length_penalty "
    "logit_bias stop stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens "
    "spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids "
    "allowed_token_ids bad_words add_special_tokens response_format structured_outputs return_tokens_as_token_ids "
    "return_token_ids repetition_detection thinking_token_budget"
)
_SHARED = "model stream max_tokens n"
_POOLING = "model user truncate_prompt_tokens truncation_side padding use_activation"
_SCORING = f"{_POOLING} max_tokens_per_query max_tokens_per_doc instruction chat_template_kwargs"

_FIELDS: dict[Operation, str] = {
    "chat": f"{_SHARED} {_SAMPLING} messages max_completion_tokens logprobs top_logprobs stream_options tools "
    "tool_choice parallel_tool_calls reasoning_effort include_reasoning echo add_generation_prompt "
    "continue_final_message documents chat_template_kwargs return_token_offsets return_prompt_text store metadata "
    "service_tier prompt_cache_key safety_identifier verbosity modalities",
    "text_completion": f"{_SHARED} {_SAMPLING} prompt echo logprobs stream_options suffix return_token_offsets",
    "responses": "model stream max_output_tokens background include input instructions max_tool_calls metadata "
    "logit_bias parallel_tool_calls previous_response_id reasoning include_reasoning service_tier store temperature "
    "text tool_choice tools top_logprobs top_p top_k min_p truncation user skip_special_tokens "
    "include_stop_str_in_output presence_penalty frequency_penalty prompt_cache_key enable_response_messages "
    "structured_outputs repetition_penalty seed stop stop_token_ids ignore_eos chat_template_kwargs",
    "embeddings": f"{_POOLING} add_special_tokens encoding_format embed_dtype endianness dimensions input messages "
    "add_generation_prompt continue_final_message chat_template_kwargs",
    "rerank": f"{_SCORING} query documents top_n",
    "score": f"{_SCORING} data_1 data_2 queries documents items text_1 text_2",
    "tokenize": "model prompt messages add_special_tokens return_token_strs add_generation_prompt "
    "continue_final_message chat_template_kwargs tools tokens",
    "messages": "model stream messages max_tokens metadata output_config thinking stop_sequences system temperature "
    "tool_choice tools top_k top_p chat_template_kwargs service_tier",
    "count_tokens": "model messages output_config system thinking tool_choice tools chat_template_kwargs",
}

TEXTS = ("input", "query", "documents", "data_1", "data_2", "queries", "items", "text_1", "text_2", "system")
"""Fields that may hold parts with media beside text, looked into where they are no plain string."""
LISTS = {"prompt": MAX_PROMPTS, "input": MAX_INPUTS} | dict.fromkeys(TEXTS[1:9], MAX_INPUTS)
GRAMMARS = ("response_format", "structured_outputs", "tools", "text", "output_config")
"""Fields that an engine compiles into a grammar, or renders into the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path.

    Args:
        body_bytes: the largest body, decoded.
        salted: whether the engine's request takes ``cache_salt``.
        generates: whether an answer has tokens of its own, or none but those of the prompt are used.
        counted: whether it takes ``stream_options``, which ask for the counts of a stream.
        decode: checks a body against the allow-list; raises msgspec's errors.
        fields: the allow-list.
        slow_checks: fields of ``TEXTS``, ``LISTS`` and ``GRAMMARS`` that this route has.
    """

    path: str
    method: str
    operation: Operation
    dialect: Dialect = "openai"
    body_bytes: int = 8 * MIB
    salted: bool = False
    generates: bool = True
    counted: bool = False
    decode: Any = None
    fields: frozenset[str] = frozenset()
    slow_checks: tuple[str, ...] = ()


def _route(path: str, operation: Operation, *, salted: bool = False, **more: Any) -> Route:
    names = tuple(dict.fromkeys(_FIELDS[operation].split()))
    typed = dict(_TYPED)
    if operation == "text_completion":
        typed["logprobs"] = _Logprobs | None
    columns = [(name, typed[name] if name in typed else Raw | UnsetType, _preset(name)) for name in names]
    body = msgspec.defstruct(f"{operation}_body", columns, bases=(Fields,), forbid_unknown_fields=True, gc=False)
    slow = tuple(name for name in names if name in TEXTS or name in LISTS or name in GRAMMARS)
    return Route(
        path=path, method="POST", operation=operation, salted=salted, decode=msgspec.json.Decoder(body).decode,
        fields=frozenset(names), slow_checks=slow, generates=operation in GENERATING,
        counted="stream_options" in names, **more,
    )  # fmt: skip


def _preset(name: str) -> Any:
    if name in _PRESET:
        return _PRESET[name]
    return None if name in _TYPED else UNSET


ROUTES: dict[str, Route] = {
    route.path: route
    for route in (
        _route("/v1/chat/completions", "chat", salted=True),
        _route("/v1/completions", "text_completion", salted=True),
        _route("/v1/responses", "responses", salted=True),
        _route("/v1/messages", "messages", salted=True, dialect="anthropic"),
        _route("/v1/messages/count_tokens", "count_tokens", dialect="anthropic"),
        _route("/v1/embeddings", "embeddings", salted=True),
        _route("/v1/rerank", "rerank", salted=True),
        _route("/rerank", "rerank", salted=True),
        _route("/v2/rerank", "rerank", salted=True),
        _route("/v1/score", "score", salted=True),
        _route("/score", "score", salted=True),
        _route("/tokenize", "tokenize", body_bytes=2 * MIB),
        _route("/detokenize", "tokenize", body_bytes=2 * MIB),
        Route(path="/v1/models", method="GET", operation="models", body_bytes=0),
    )
}
"""Every fixed path. Anything else an engine serves is not reachable from the data port, but for responses by id."""

STORED = "/v1/responses/"
"""A response by its id: GET, DELETE, and POST of ``ID/cancel``; only for the tenant that made it."""
STORED_ROUTES = {
    method: Route(path=STORED, method=method, operation="response_by_id", body_bytes=0)
    for method in ("GET", "DELETE", "POST")
}

DOCUMENTS = Route(path="/v1/documents", method="", operation="documents", body_bytes=0)
"""It and all paths below it, with whatever method: passed on to the process that serves documents, where there is one.
"""
