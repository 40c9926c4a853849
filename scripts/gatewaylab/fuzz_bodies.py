"""Bodies that are wrong as JSON, or for the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from gatewaylab.fuzz_parts import MODEL, completion


def _deep(marker: str, rng: Random) -> bytes:
    depth = rng.choice([50, 900, 5_000, 100_000])
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = opening * depth + b"1" + closing * (depth if rng.random() < 0.8 else 0)
    return b'{"model":"m","messages":[{"role":"user","content":"%b"}],"x":%b}' % (marker.encode(), inner)


def _twice(marker: str, rng: Random) -> bytes:
    pair = rng.choice(
        [
            b'"model":"m","model":"other"', b'"model":"other","model":"m"',
            b'"model":"m","stream":true,"stream":false',
            b'"model":"m","priority":1,"priority":null', b'"model":"m","stream":false,"str\\u0065am":true',
            b'"model":"m","n":1,"n":100000', b'"model":"m","mod\\u0065l":"other"',
            b'"model":"m","cache_salt":"a","cache_\\u0073alt":"b"',
            b'"model":"m","max_tokens":1,"max_tokens":-1',
        ]
    )  # fmt: skip
    return b"{%b,%b}" % (pair, b'"messages":[{"role":"user","content":"%b"}]' % marker.encode())


FORBIDDEN = (
    "priority", "cache_salt", "request_id", "session_id", "kv_transfer_params", "ec_transfer_params", "vllm_xargs",
    "chat_template",
    "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "return_mm_kwargs", "prompt_embeds",
    "routed_experts_prompt_start", "watermarking",
)  # fmt: skip
"""Fields of engine requests that callers must not set; in the body's top level."""


def _forbidden(marker: str, rng: Random) -> bytes:
    text = completion(marker, rng).decode()[:-1]
    for name in rng.sample(FORBIDDEN, rng.randrange(1, 5)):
        written = "".join(f"\\u{ord(letter):04x}" if rng.random() < 0.2 else letter for letter in name)
        value = rng.choice(["1", "-5", '"x"', "null", "{}", '{"a": [1, {"b": "}"}]}', "[[]]", '"\\"}"', "true", "1e5"])
        comma, colon = rng.choice([",", " , ", ",\n"]), rng.choice([":", " : "])
        text += f'{comma}"{written}"{colon}{value}'
    return (text + "}").encode()


def _unicode(marker: str, rng: Random) -> bytes:
    body = completion(marker, rng)
    return rng.choice(
        [
            body.replace(b'"content": "', b'"content": "\xff\xfe'), body.replace(b'"content": "',
            b'"content": "\\ud800'), b"\xef\xbb\xbf" + body,
            body.decode().encode("utf-16"), body.decode().encode("utf-32"), body.replace(b'"m"', b'"m\xc3"'),
            body.replace(b"user", b"us\x00er"),
            body.replace(b'"content": "', b'"content": "\xed\xa0\x80'), body.replace(b'"content": "',
            b'"content": "\xc0\x80'),
            body.replace(b"role", b"r\\u0000le"), body.replace(b"user", b"us\x1fer"),
        ]
    )  # fmt: skip


def _not_json(marker: str, rng: Random) -> bytes:
    body = completion(marker, rng)
    return rng.choice(
        [
            b"", b"null", b"[]", b'"x"', b"1", b"true", body + b"}", body + body, b"[" + body + b"]", body[:-1],
            body.replace(b":", b"=", 1),
            body.replace(b'"', b"'"), b"{" + body, body.replace(b"{", b"{,", 1), b"//c\n" + body, body[:-1] + b",}",
            b"\x00" * 50, b"{}", b" " * 5000,
            body[:-1] + b',"x":NaN}', body[:-1] + b',"x":1e999}', body[:-1] + b',"x":' + b"9" * 5000 + b"}",
            body[:-1] + b',"x":0123}',
        ]
    )  # fmt: skip


def _wrong_types(marker: str, rng: Random) -> bytes:
    field_name = rng.choice(
        [
            "model",
            "stream",
            "max_tokens",
            "n",
            "messages",
            "max_completion_tokens",
            "stream_options",
            "prompt",
            "stop",
            "chat_template_kwargs",
        ]
    )
    value: object = rng.choice(
        [None, True, 0, -1, 1.5, 10**25, "x", "", [], {}, [None], {"a": {"b": []}}, "m" * 3000, 129]
    )
    body: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": marker}]}
    body[field_name] = value
    if field_name == "messages":
        body["y"] = marker
    return json.dumps(body).encode()


def _bomb(marker: str, rng: Random) -> bytes:
    filling = rng.choice([b"[" * 3000, b'{"a":1},' * 3000, b'"\\u0041' * 2000, b"1," * 20_000])
    return completion(marker, rng)[:-1] + b',"x":[' + filling + b"1]}"


BODIES: tuple[Callable[[str, Random], bytes], ...] = (
    _deep,
    _twice,
    _forbidden,
    _unicode,
    _not_json,
    _wrong_types,
    _bomb,
)
