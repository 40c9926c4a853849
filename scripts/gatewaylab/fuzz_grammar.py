"""What can be wrong with framing and head: each function changes one valid request in place."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gatewaylab.fuzz_parts import Parts, in_chunks

# framing: what no two readers need agree on must be refused


def _lengths(one: Parts, rng: Random) -> None:
    size = len(one.body)
    values = rng.choice(
        [
            (b"%d" % size, b"%d" % (size + 1)), (b"0", b"%d" % size), (b"+%d" % size,), (b"-%d" % size,),
            (b"%d, %d" % (size, size),), (b"0x%x" % size,), (b"%d_0" % size,), (b"%d.0" % size,), (b"",),
            (b"%d" % (2**64 + size),), (b"%d" % (10**30),), (b"%d\x0b" % size,), (b"%d;" % size,), (b"\xb2",),
            (b"%d %d" % (size, size),),
        ]
    )  # fmt: skip
    one.length, one.refuse = False, True
    one.extra += [b"Content-Length: " + value for value in values]


def _both(one: Parts, rng: Random) -> None:
    one.refuse = True
    name = rng.choice([b"Transfer-Encoding", b"transfer-encoding", b"TRANSFER-ENCODING"])
    one.extra.append(name + b": " + rng.choice([b"chunked", b"Chunked", b" chunked", b"identity", b"chunked, chunked"]))
    if rng.random() < 0.5:
        one.framed = in_chunks(one.body, rng)


def _encodings(one: Parts, rng: Random) -> None:
    one.length, one.refuse = False, True
    one.extra.append(
        b"Transfer-Encoding:"
        + rng.choice(
            [
                b" xchunked", b" chunked, identity", b" identity, chunked", b" gzip, chunked", b" chunked;q=1",
                b" chunked\x0b",
                b" \x00chunked", b" chu nked", b" ,chunked", b" chunked,", b" \"chunked\"", b" chunke",
                b" identity", b"", b" \xe3chunked",
            ]
        )
    )  # fmt: skip
    one.framed = in_chunks(one.body, rng)


def _encoding_twice(one: Parts, rng: Random) -> None:
    one.length, one.refuse = False, True
    one.extra += [b"Transfer-Encoding: " + value for value in rng.choice([(b"chunked", b"identity"), (b"identity",
    b"chunked"), (b"gzip", b"chunked"), (b"chunked", b"chunked")])]  # fmt: skip
    one.framed = in_chunks(one.body, rng)


def _old_version(one: Parts, rng: Random) -> None:
    one.length, one.refuse = False, True
    one.line = one.line.replace(b"1.1", b"1.0")
    one.extra.append(b"Transfer-Encoding: chunked")
    one.framed = in_chunks(one.body, rng)


def _chunk_sizes(one: Parts, rng: Random) -> None:
    one.length, one.refuse = False, True
    one.extra.append(b"Transfer-Encoding: chunked")
    size = b"%x" % len(one.body)
    wrong = rng.choice(
        [
            b"0x" + size, b"+" + size, b"-" + size, b"g", b"", b" " + size, b"f" * 17,
            b"1" + b"0" * 16, size + b"\x00", size + b"\x0b",
            b"\n" + size, size + b"_",
        ]
    )  # fmt: skip
    one.framed = wrong + b"\r\n" + one.body + b"\r\n0\r\n\r\n"


def _chunk_ends(one: Parts, rng: Random) -> None:
    one.length, one.refuse = False, True
    one.extra.append(b"Transfer-Encoding: chunked")
    start = b"%x\r\n%b" % (len(one.body), one.body)
    one.framed = start + rng.choice([b"", b"XX", b"\n", b"\r", b"\r\n\r\n"]) + b"0\r\n\r\n"
    if one.framed.startswith(start + b"\r0"):
        one.framed = start + b"\rX0\r\n\r\n"


def _line_feeds(one: Parts, rng: Random) -> None:
    one.refuse = True
    if rng.random() < 0.5:
        one.eol = b"\n"
        one.blank = rng.choice([b"\n", b"\r\n"])
    else:
        one.extra.append(b"X-A: b\nX-C: d")


def _folded(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.extra.append(rng.choice([b"X-A: b\r\n c", b"X-A:\r\n\tb", b" X-A: b", b"Transfer-Encoding:\r\n chunked"]))


def _names(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.extra.append(
        rng.choice(
            [
                b"Content-Length : 3", b"Transfer-Encoding : chunked", b"X A: b", b"X\x00A: b", b"X-A\t: b", b": b",
                b"X-A", b"X(A): b",
                b"\xffX: b", b"X\rA: b",
            ]
        )
    )  # fmt: skip


def _values(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.extra.append(rng.choice([b"X-A: b\x00c", b"X-A: b\rc", b"X-A: \x01", b"X-A: b\x7f"]))


def _hosts(one: Parts, rng: Random) -> None:
    one.refuse = True
    if rng.random() < 0.5:
        one.headers = one.headers[1:]
    else:
        one.extra.append(rng.choice([b"Host: h", b"host: g", b"HOST: other"]))


def _keys(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.extra.append(rng.choice([b"Authorization: Bearer sk-other", b"authorization: Basic YTpi"]))


def _lines(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.line = rng.choice(
        [
            b"POST /v1/chat/completions HTTP/2.0", b"POST /v1/chat/completions HTTP/1.9",
            b"POST /v1/chat/completions", b"POST  HTTP/1.1",
            b"POST /v1/chat/completions HTTP/1.1 HTTP/1.1", b"PRI * HTTP/2.0",
            b"POST\t/v1/chat/completions\tHTTP/1.1", b"",
            b"P\x00ST /v1/chat/completions HTTP/1.1", b"post /v1/chat/completions HTTP/1.1",
            b"POST /v1/chat completions HTTP/1.1",
            b"POST /v1/chat/completions HTTP/1.10", b"POST /v1/chat/completions HTTP/", b"POST /\x00 HTTP/1.1",
            b"POST /v1/chat/completions http/1.1", b"CONNECT g:80 HTTP/1.1",
        ]
    )  # fmt: skip
    if one.line == b"":
        one.line = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the start of a TLS hello


def _too_many(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.extra += [b"X-%d: y" % number for number in range(rng.choice([120, 500, 3000]))]


def _too_long(one: Parts, rng: Random) -> None:
    one.refuse = True
    filling = b"a" * rng.choice([40_000, 100_000, 300_000])
    where = rng.randrange(3)
    if where == 0:
        one.line = b"POST /v1/" + filling + b" HTTP/1.1"
    else:
        one.extra.append(b"X-A: " + filling if where == 1 else filling + b": a")


def _upgrade(one: Parts, rng: Random) -> None:
    one.refuse = True
    one.extra += rng.choice(
        [
            (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
            (b"Connection: Upgrade", b"Upgrade: websocket"),
        ]
    )


# what a server may take or refuse, but must not stumble over


def _hop_by_hop(one: Parts, rng: Random) -> None:
    one.extra += rng.sample(
        [
            b"TE: trailers", b"Trailer: X-A", b"Keep-Alive: timeout=5", b"Proxy-Authorization: Basic YTpi",
            b"Proxy-Connection: keep-alive",
            b"Connection: keep-alive, X-Secret", b"X-Secret: hidden", b"X-Session-ID: s-1", b"X-Vllm-Priority: -5",
            b"X-data-parallel-rank: 1",
            b"endpoint-load-metrics-format: JSON", b"X-Request-Id: mine", b"Cookie: a=b",
            b"X-Forwarded-For: 1.2.3.4", b"Forwarded: for=1.2.3.4",
            b"x-roadworthy-io-wait-ms: 5", b"x-roadworthy-decision: ok", b"Expect: 100-continue",
            b"Content-Encoding: identity",
            b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"Accept-Encoding: gzip",
            b"Origin: http://evil",
        ],
        rng.randrange(1, 8),
    )  # fmt: skip


def _targets(one: Parts, rng: Random) -> None:
    path = rng.choice(
        [
            b"http://g/v1/chat/completions", b"/v1/chat/completions?a=b", b"/v1/chat/completions#x",
            b"/v1//chat/completions",
            b"/v1/chat/../chat/completions", b"/v1/chat/completions/", b"/%761/chat/completions", b"*", b"/metrics",
            b"/v1/load_lora_adapter",
            b"/v1/chat/completions%00", b"//v1/chat/completions", b"/V1/chat/completions",
            b"/v1/chat/completions;a=b", b"/health", b"/reset_prefix_cache",
        ]
    )  # fmt: skip
    one.line = b"POST " + path + b" HTTP/1.1"


def _methods(one: Parts, rng: Random) -> None:
    one.line = (
        rng.choice([b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH"])
        + b" /v1/chat/completions HTTP/1.1"
    )


def _wrong_length(one: Parts, rng: Random) -> None:
    one.length = False
    one.extra.append(b"Content-Length: %d" % max(0, len(one.body) + rng.choice([-40, -5, -1, 1, 2, 50, 500])))


def _no_length(one: Parts, rng: Random) -> None:  # noqa: ARG001 - one shape for all
    one.length = False


def _chunk_extras(one: Parts, rng: Random) -> None:
    one.length = False
    one.extra.append(b"Transfer-Encoding: chunked")
    extension = rng.choice([b";a", b";a=b", b';a="b;c"', b" ;a", b";" + b"x" * 5000, b"\t"])
    trailer = rng.choice(
        [
            b"",
            b"X-T: y\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"T: " + b"y" * 9000 + b"\r\n",
        ]
    )
    one.framed = b"%x" % len(one.body) + extension + b"\r\n" + one.body + b"\r\n0\r\n" + trailer + b"\r\n"


def _blank_before(one: Parts, rng: Random) -> None:
    one.before = rng.choice([b"\r\n", b"\r\n\r\n", b"\n", b" ", b"\0", b"\r"])


def _half(one: Parts, rng: Random) -> None:
    """Half a request, then silence: the next one is read as the rest of it."""
    whole = one.joined()
    one.before = whole[: rng.randrange(1, len(whole))]


def _closing(one: Parts, rng: Random) -> None:
    one.extra.append(rng.choice([b"Connection: close", b"Connection: keep-alive, close", b"Connection: CLOSE"]))


def _wrong_key(one: Parts, rng: Random) -> None:
    one.headers[1] = rng.choice(
        [
            b"Authorization: Bearer nope",
            b"Authorization: Bearer",
            b"Authorization: Basic c2s6",
            b"X-A: b",
            b"Authorization: \xff\xfe",
        ]
    )


def _type(one: Parts, rng: Random) -> None:
    one.headers[2] = b"Content-Type: " + rng.choice(
        [b"text/plain", b"multipart/form-data", b"application/json; charset=utf-16", b"\xff", b""]
    )


GRAMMAR: tuple[Callable[[Parts, Random], None], ...] = (
    _lengths, _both, _encodings, _encoding_twice, _old_version, _chunk_sizes, _chunk_ends, _line_feeds, _folded,
    _names, _values, _hosts,
    _keys, _lines, _too_many, _too_long, _upgrade, _hop_by_hop, _targets, _methods, _wrong_length, _no_length,
    _chunk_extras, _blank_before,
    _half, _closing, _wrong_key, _type,
)  # fmt: skip
