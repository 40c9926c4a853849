"""One line of a trace, whatever its format, as one value.

============  =============================================================  =========================================
format        known by                                                       time
============  =============================================================  =========================================
mooncake      ``input_length``, ``output_length``, maybe ``hash_ids``        ``timestamp`` in milliseconds
azure         ``ContextTokens``, ``GeneratedTokens``                         ``TIMESTAMP``, a date and a time
burstgpt      ``Request tokens``, ``Response tokens``                        ``Timestamp`` in seconds
access log    ``tenant_id``, ``prompt_tokens``: of `roadworthy gateway`      ``time``, UTC
sharegpt      ``conversations`` of ``{from, value}``                         none
prompts       ``messages``, or ``prompt`` as text                            ``timestamp`` in seconds, or none
============  =============================================================  =========================================

Azure's and BurstGPT's files are CSV; their columns as keys of JSON lines are read the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

TraceFormat = Literal["mooncake", "azure", "burstgpt", "access log", "sharegpt", "prompts"]

Said = tuple[tuple[str, str], ...]

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens that one entry of ``hash_ids`` stands for (kvcache-ai/Mooncake, FAST25-release/traces)."""

MAX_TOKENS = 16 * 2**20


class LineError(Exception):
    """What is wrong with one line: ``place`` inside it, what was ``seen`` and what was ``wanted``."""

    def __init__(self, place: str, seen: object, wanted: str) -> None:
        super().__init__(f"{place}: {seen}, wanted {wanted}")
        self.place = place
        text = repr(seen)
        self.seen = text if len(text) <= 60 else text[:57] + "..."
        self.wanted = wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One request, or one conversation, of a trace.

    Args:
        at_s: on the trace's own clock; None where it has none.
        prompt_tokens, output_tokens: None where only texts are given.
        hash_ids: blocks of the prompt, equal where the text is equal.
        turns: texts of a conversation, (role, text) each, ending where an answer is asked for; one entry for each
            request, with the recorded answer beside it.
        worth_sending: False for what the trace records and a replay leaves out: refused, empty.
    """

    at_s: float | None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: tuple[int, ...] = ()
    tenant: str = ""
    session: str = ""
    turns: tuple[tuple[Said, str], ...] = ()
    worth_sending: bool = True


def format_of(line: Mapping[str, Any]) -> TraceFormat:
    """The format that ``line`` is in. Raises LineError when it is in none."""
    keys = {key.strip().lower() for key in line if isinstance(key, str)}
    marks: tuple[tuple[TraceFormat, set[str]], ...] = (
        ("sharegpt", {"conversations"}),
        ("mooncake", {"input_length", "output_length"}),
        ("azure", {"contexttokens", "generatedtokens"}),
        ("burstgpt", {"request tokens", "response tokens"}),
        ("access log", {"tenant_id", "prompt_tokens"}),
        ("prompts", {"messages"}),
        ("prompts", {"prompt"}),
    )
    for name, wanted in marks:
        if wanted <= keys:
            return name
    raise LineError(
        "keys",
        ", ".join(sorted(keys)[:8]),
        "those of a known trace: input_length and output_length, ContextTokens and GeneratedTokens, conversations, "
        "messages, prompt, or the gateway's access log",
    )


def read_line(kind: TraceFormat, line: Mapping[str, Any]) -> TraceLine:
    """``line`` as a value. Raises LineError."""
    return _READERS[kind]({key.strip().lower(): value for key, value in line.items() if isinstance(key, str)})


def _mooncake(line: Mapping[str, Any]) -> TraceLine:
    hashes = line.get("hash_ids") or ()
    if not isinstance(hashes, (list, tuple)) or not all(isinstance(one, int) for one in hashes):
        raise LineError("hash_ids", hashes, "a list of whole numbers")
    prompt = _tokens(line, "input_length")
    if hashes and len(hashes) != math.ceil(prompt / MOONCAKE_BLOCK_TOKENS):
        raise LineError(
            "hash_ids", f"{len(hashes)} blocks", f"{math.ceil(prompt / MOONCAKE_BLOCK_TOKENS)} for {prompt} tokens"
        )
    at_ms = _seconds(line, "timestamp")
    return TraceLine(
        at_s=None if at_ms is None else at_ms / 1000,
        prompt_tokens=prompt,
        output_tokens=_tokens(line, "output_length", least=0),
        hash_ids=tuple(hashes),
        worth_sending=line["output_length"] != 0,
    )


def _azure(line: Mapping[str, Any]) -> TraceLine:
    return TraceLine(
        at_s=_moment(line, "timestamp"),
        prompt_tokens=_tokens(line, "contexttokens"),
        output_tokens=_tokens(line, "generatedtokens", least=0),
        worth_sending=_tokens(line, "generatedtokens", least=0) > 0,
    )


def _burstgpt(line: Mapping[str, Any]) -> TraceLine:
    output = _tokens(line, "response tokens", least=0)
    return TraceLine(
        at_s=_seconds(line, "timestamp"),
        prompt_tokens=_tokens(line, "request tokens"),
        output_tokens=output,
        session=str(line.get("session id") or ""),
        worth_sending=output > 0,
    )


def _access_log(line: Mapping[str, Any]) -> TraceLine:
    prompt, output = _tokens(line, "prompt_tokens", least=0), _tokens(line, "output_tokens", least=0)
    return TraceLine(
        at_s=_moment(line, "time"),
        prompt_tokens=max(1, prompt),
        output_tokens=max(1, output),
        tenant=str(line["tenant_id"]),
        worth_sending=prompt > 0 and output > 0,
    )


def _sharegpt(line: Mapping[str, Any]) -> TraceLine:
    said = [
        _spoken(f"conversations[{at}]", one, "from", "value") for at, one in enumerate(_list(line, "conversations"))
    ]
    turns = _turns(said)
    return TraceLine(at_s=None, turns=turns, worth_sending=bool(turns))


def _prompts(line: Mapping[str, Any]) -> TraceLine:
    if "messages" in line:
        said = [_spoken(f"messages[{at}]", one, "role", "content") for at, one in enumerate(_list(line, "messages"))]
        turns = _turns(said) if said and said[-1][0] == "assistant" else ((tuple(said), ""),) if said else ()
    else:
        prompt = line["prompt"]
        if not isinstance(prompt, str) or not prompt.strip():
            raise LineError("prompt", prompt, "text")
        turns = (((("user", prompt),), ""),)
    output = next((line[key] for key in ("output_tokens", "max_tokens", "expected_output_len") if key in line), None)
    if output is not None and (not isinstance(output, int) or not 1 <= output <= MAX_TOKENS):
        raise LineError("output_tokens", output, "a count of tokens from 1")
    return TraceLine(
        at_s=_seconds(line, "timestamp"),
        output_tokens=output,
        turns=turns,
        tenant=str(line.get("tenant") or ""),
        session=str(line.get("session") or ""),
        worth_sending=bool(turns),
    )


_READERS: Mapping[TraceFormat, Callable[[Mapping[str, Any]], TraceLine]] = {
    "mooncake": _mooncake,
    "azure": _azure,
    "burstgpt": _burstgpt,
    "access log": _access_log,
    "sharegpt": _sharegpt,
    "prompts": _prompts,
}

_SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
             "bard": "assistant", "bing": "assistant", "system": "system", "tool": "user"}  # fmt: skip


def _spoken(place: str, one: object, role_key: str, text_key: str) -> tuple[str, str]:
    if not isinstance(one, Mapping):
        raise LineError(place, one, f"{{{role_key}, {text_key}}}")
    role, text = one.get(role_key), one.get(text_key)
    if role not in _SPEAKERS:
        raise LineError(f"{place}.{role_key}", role, f"one of {', '.join(_SPEAKERS)}")
    if not isinstance(text, str):
        raise LineError(f"{place}.{text_key}", text, "text")
    return _SPEAKERS[role], text


def _turns(said: list[tuple[str, str]]) -> tuple[tuple[Said, str], ...]:
    """(what was said before, the answer) for each answer that follows a user's words."""
    return tuple(
        (tuple(said[:at]), text)
        for at, (role, text) in enumerate(said)
        if role == "assistant" and at > 0 and said[at - 1][0] == "user" and text.strip()
    )


def _list(line: Mapping[str, Any], key: str) -> list[object]:
    value = line[key]
    if not isinstance(value, list):
        raise LineError(key, value, "a list")
    return value


def _tokens(line: Mapping[str, Any], key: str, *, least: int = 1) -> int:
    value = line.get(key)
    if isinstance(value, str):  # from CSV
        value = int(value) if value.strip().isdecimal() else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_TOKENS:
        raise LineError(key, value, f"a count of tokens from {least}")
    return value


def _seconds(line: Mapping[str, Any], key: str) -> float | None:
    value = line.get(key)
    if value is None or value == "":
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise LineError(key, value, "a time from 0")
    return number


def _moment(line: Mapping[str, Any], key: str) -> float | None:
    """Seconds since the epoch of a date and a time; digits beyond the microsecond are cut. A number is seconds."""
    value = line.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        return _seconds(line, key)
    text = value.strip().replace("T", " ").removesuffix("Z")
    whole, point, part = text.partition(".")
    digits = part[: len(part) - len(part.lstrip("0123456789"))]
    offset = part[len(digits) :]
    try:
        moment = datetime.fromisoformat(f"{whole}{point}{digits[:6].ljust(6, '0') if point else ''}{offset}")
    except ValueError:
        try:
            return _seconds(line, key)
        except LineError:
            raise LineError(key, value, "a date and a time, such as 2024-05-10 13:00:01.25") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
