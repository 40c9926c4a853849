"""The body of a request: checked in one pass, passed on as it came.

The client's bytes go to the engine untouched. Only where a field has to go is the object put together again, from the
raw bytes of the values that stay; no value is ever written anew.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Raw

from roadworthy.gateway.data import content
from roadworthy.gateway.data.errors import BadRequest
from roadworthy.gateway.data.routes import GRAMMARS, LISTS, TEXTS
from roadworthy.gateway.data.stream_options import Counting, asked

if TYPE_CHECKING:
    from roadworthy.gateway.data.routes import Route

NEVER_PASSED = frozenset(
    {
        "priority", "cache_salt", "request_id", "session_id", "kv_transfer_params", "ec_transfer_params", "vllm_xargs",
        "chat_template", "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "return_mm_kwargs", "prompt_embeds",
        "routed_experts_prompt_start", "watermarking", "stream_interval", "use_beam_search", "previous_input_messages",
        "logits_processors",
    }
)  # fmt: skip
"""Fields of vLLM 0.32's requests that steer scheduling, caches, transfer or template code, named for the docs and the
tests: the allow-lists in ``routes`` leave them out."""

TEMPLATE_KEYS = frozenset({"enable_thinking", "thinking", "reasoning_effort"})
"""What of ``chat_template_kwargs`` passes: switches that model cards document. Others reach template code."""

_LIST, _OBJECT = b"[{"

LONGEST_SESSION_BYTES = 256

_PLACE = re.compile(r"^(.*?)(?: - at `\$\.([A-Za-z0-9_]+)([^`]*)`)?$", re.DOTALL)
_PLAIN = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null", "|": "or",
}  # fmt: skip
_WORD = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in _PLAIN))
_decode_raw = msgspec.json.Decoder(dict[str, Raw]).decode


class Body(msgspec.Struct, gc=False):
    """A checked body. ``forward`` is what the engine gets: the client's bytes untouched unless fields in ``dropped``
    had to go. ``session_id`` is what the body says of the conversation it belongs to, for routing alone; ``counting``
    how its stream is to be counted, None where nothing is to be asked of the engine for it."""

    model: str
    stream: bool
    max_tokens: int | None
    forward: bytes
    dropped: tuple[str, ...] = ()
    previous_response_id: str | None = None
    session_id: str | None = None
    counting: Counting | None = None


def read_body(
    route: Route, data: bytes, *, remote_media: bool = False, billing: Literal["exact", "final"] | None = None
) -> Body:
    """The checked body of a request to ``route``.

    Args:
        remote_media: let content name media by URL, which the engine would then fetch.
        billing: how the tokens of streams are to be counted; None for as the client asks.

    Raises:
        BadRequest: naming the field at fault.
    """
    dropped: tuple[str, ...] = ()
    session_id = None
    if not data.isascii():
        _check_utf8(data)
    try:
        fields = route.decode(data)
    except msgspec.ValidationError as error:
        whole = data
        data, dropped = _without_unlisted(route, data, error)
        if "session_id" in dropped:
            session_id = _short_text(_decode_raw(whole)["session_id"])
        fields = _decode_again(route, data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_json(error) from error
    if not fields.model:
        raise BadRequest("model is missing", code="invalid_model", param="model", hint="GET /v1/models lists the names")
    template = fields.chat_template_kwargs
    if template is not UNSET:
        data, more = _without_unknown_switches(data, bytes(template))
        dropped += more
    for name in route.slow_checks:
        if (value := getattr(fields, name)) is not UNSET:
            _check_slow(name, value, remote_media=remote_media)
    for message in fields.messages:
        if (raw := memoryview(message.content)) and raw[0] == _LIST:  # parts, which may hold media
            content.check_parts(message.content, "messages", remote_media=remote_media)
    most_tokens = fields.max_completion_tokens
    if most_tokens is None:
        most_tokens = fields.max_tokens
        if most_tokens is None:
            most_tokens = fields.max_output_tokens
    if session_id is None and (fields.prompt_cache_key is not UNSET or fields.user is not UNSET):
        session_id = _session(fields)
    counting = None
    if billing is not None and fields.stream is True and route.counted:
        counting, data = _counting(fields, data, running=billing == "exact")
    return Body(
        fields.model,
        fields.stream is True,
        most_tokens,
        data,
        dropped,
        fields.previous_response_id,
        session_id,
        counting,
    )


def _counting(fields: Any, data: bytes, *, running: bool) -> tuple[Counting, bytes]:
    """How a stream is counted, and the body without the client's own ``stream_options``, which ours replace."""
    options, choices = fields.stream_options, fields.n or 1
    several_prompts = fields.prompt is not UNSET and memoryview(fields.prompt)[0] == _LIST
    sees = asked(options)
    counting = Counting(
        running=running or sees == "running", asked=sees, choices_each=choices,
        one_choice=choices == 1 and not several_prompts,
    )  # fmt: skip
    if options is not UNSET:
        data = _joined({name: raw for name, raw in _decode_raw(data).items() if name != "stream_options"})
    return counting, data


def _check_slow(name: str, value: Raw, *, remote_media: bool) -> None:
    """Size of a list or a grammar, and media."""
    if name in GRAMMARS:
        content.check_grammar(value, name)
    elif memoryview(value)[0] in (_LIST, _OBJECT):
        if name in LISTS:
            content.check_length(value, name, LISTS[name])
        if name in TEXTS:
            content.check_parts(value, name, remote_media=remote_media)


def _session(fields: Any) -> str | None:
    """What OpenAI's fields say of requests that belong together, the narrower one first."""
    for raw in (fields.prompt_cache_key, fields.user):
        if raw is not UNSET and (text := _short_text(raw)):
            return text
    return None


def _short_text(raw: Raw) -> str | None:
    """The characters between the quotes, escapes as they are: it is compared and never shown. None when it is no text,
    or a long one."""
    view = memoryview(raw)
    if 2 < len(view) <= LONGEST_SESSION_BYTES + 2 and view[0] == 0x22:
        return str(view[1:-1], "utf-8", "replace")
    return None


def _check_utf8(data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8 at byte {error.start}", code="invalid_json") from error


def _not_json(error: Exception) -> BadRequest:
    if isinstance(error, RecursionError):
        return BadRequest("the body is nested too deeply", code="invalid_json")
    return BadRequest(f"the body is not JSON: {error}", code="invalid_json", hint="send a JSON object, as UTF-8")


def _without_unlisted(route: Route, data: bytes, error: Exception) -> tuple[bytes, tuple[str, ...]]:
    """The object without the fields that ``route`` does not take, and their names. Of a name given twice the last
    stands, as every reader of JSON here has it."""
    try:
        pairs = _decode_raw(data)
    except msgspec.ValidationError as wrong:
        raise BadRequest(f"the body must be a JSON object: {wrong}", code="invalid_json") from error
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise _not_json(wrong) from error
    dropped = tuple(sorted(pairs.keys() - route.fields))
    if not dropped:
        return data, ()
    for name in dropped:
        _check_python_reads(pairs[name])
    return _joined({name: raw for name, raw in pairs.items() if name in route.fields}), dropped


def _check_python_reads(raw: Raw) -> None:
    """Refuse a value, on its way out, that engines refuse and we would not: a number of thousands of digits. Without
    it the body would mean something that its client's never did."""
    try:
        json.loads(bytes(raw))
    except (ValueError, RecursionError) as error:
        raise _not_json(error) from error


def _joined(pairs: dict[str, Raw] | dict[str, bytes]) -> bytes:
    return b"{" + b",".join(b"%b:%b" % (_quoted(name), bytes(raw)) for name, raw in pairs.items()) + b"}"


def with_model(data: bytes, model: str) -> bytes:
    """A body that was read, for another model."""
    return _joined({**{name: bytes(raw) for name, raw in _decode_raw(data).items()}, "model": _quoted(model)})


def _quoted(name: str) -> bytes:
    return json.dumps(name).encode()


def _decode_again(route: Route, data: bytes) -> Any:
    try:
        return route.decode(data)
    except msgspec.ValidationError as error:
        raise _wrong_value(str(error)) from error


def _wrong_value(message: str) -> BadRequest:
    found = _PLACE.match(message)
    assert found is not None
    wrong, name, rest = found.groups()
    wrong = _WORD.sub(lambda word: _PLAIN[word[0]], wrong[:1].lower() + wrong[1:].replace("`", ""))
    if name is None:
        return BadRequest(f"the body: {wrong}", code="invalid_json")
    hint = "GET /v1/models lists the names" if name == "model" else ""
    return BadRequest(
        f"{name}{rest}: {wrong}", code="invalid_model" if name == "model" else "invalid_value", param=name, hint=hint
    )


def _without_unknown_switches(data: bytes, template: bytes) -> tuple[bytes, tuple[str, ...]]:
    """``data`` with only known keys in ``chat_template_kwargs``."""
    if template == b"null":
        return data, ()
    try:
        switches = _decode_raw(template)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(
            "chat_template_kwargs must be an object", code="invalid_value", param="chat_template_kwargs"
        ) from error
    unknown = sorted(switches.keys() - TEMPLATE_KEYS)
    if not unknown:
        return data, ()
    pairs = {name: bytes(raw) for name, raw in _decode_raw(data).items()}
    pairs["chat_template_kwargs"] = _joined({key: raw for key, raw in switches.items() if key in TEMPLATE_KEYS})
    return _joined(pairs), tuple(f"chat_template_kwargs.{name}" for name in unknown)
