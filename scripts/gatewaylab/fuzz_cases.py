"""Malformed requests, made from a seed: each with what a safe gateway may do with it.

Three kinds: requests built by grammar with something wrong in framing or head, bodies that are wrong as JSON or for
the engine, and valid requests whose bytes were tampered with blindly. Every request holds a marker that the engine
repeats, so that an answer tells whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gatewaylab.fuzz_bodies import BODIES
from gatewaylab.fuzz_grammar import GRAMMAR
from gatewaylab.fuzz_parts import marker_of, parts, valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is written on one connection.

    Args:
        data: the bytes, a valid request with marker ``follower`` at their end.
        markers: of all requests that ``data`` may be read to hold, in order.
        must_refuse: no safe reading exists: one 4xx or 5xx, then the connection is closed.
        must_answer: every request in it is valid: all are answered, in order.
    """

    name: str
    data: bytes
    markers: tuple[str, ...]
    must_refuse: bool = False
    must_answer: bool = False
    pieces: tuple[int, ...] = ()

    @property
    def follower(self) -> str:
        return self.markers[-1]


# blind bytes

TOKENS = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\t", b"0\r\n\r\n", b"chunked", b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 5\r\n", b"\r\n\r\n", b"HTTP/1.1", b"GET / HTTP/1.1\r\nHost: g\r\n\r\n", b"\xff", b"{", b"}",
    b'"', b",", b"\\", b"\x80",
)  # fmt: skip


def tampered(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        at = rng.randrange(len(out) + 1) if rng.random() < 0.5 else rng.randrange(min(200, len(out)) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + rng.randrange(1, 12)]
        elif kind == 2:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            out[at:at] = out[at : at + rng.randrange(1, 60)]
        elif kind == 4 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif out:
            del out[at + rng.randrange(1, 40) :]
        if not out:
            out += b"\r\n"
    return bytes(out)


def make(seed: int) -> Case:
    """The case of ``seed``; the same for ever."""
    rng = Random(seed)
    before, mutant, follower = (marker_of(seed, place) for place in range(3))
    kind = rng.random()
    refuse = answer = False
    if kind < 0.05:
        name, data, answer = "valid", valid(mutant, rng), True
    elif kind < 0.5:
        change = rng.choice(GRAMMAR)
        one = parts(mutant, rng)
        change(one, rng)
        name, data, refuse = change.__name__.strip("_"), one.joined(), one.refuse
        if not refuse and rng.random() < 0.1:
            second = rng.choice(GRAMMAR)
            second(one, rng)
            name, data, refuse = f"{name}+{second.__name__.strip('_')}", one.joined(), False
    elif kind < 0.7:
        make_body = rng.choice(BODIES)
        one = parts(mutant, rng)
        one.body = make_body(mutant, rng)
        name, data = make_body.__name__.strip("_"), one.joined()
    else:
        name, data = "bytes", tampered(valid(mutant, rng), rng)
    first = valid(before, rng) if rng.random() < 0.2 else b""
    markers = ((before,) if first else ()) + (mutant, follower)
    whole = first + data + valid(follower, rng)
    cuts = tuple(sorted(rng.randrange(1, len(whole)) for _ in range(rng.choice([0, 0, 1, 2, 5]))))
    return Case(name=name, data=whole, markers=markers, must_refuse=refuse, must_answer=answer, pieces=cuts)
