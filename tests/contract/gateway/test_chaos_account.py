"""The judge of `make chaos` sees what does not add up; the chaos itself needs two real engines and minutes."""

from __future__ import annotations

from typing import Any

import pytest
from gatewaylab.chaos import account

KILLED = frozenset({"http://b"})


def load(**failed: int) -> dict[str, Any]:
    kinds = (
        "connect", "reset", "truncated", "timed_out", "bad_answer", "error_event", "wrong_answer", "no_done",
        "abandoned",
    )  # fmt: skip
    return {
        "started": 20,
        "ok": 15 - sum(failed.values()),
        "left": {"asked": 1, "waiting": 2, "streaming": 2},
        "failed": {kind: failed.get(kind, 0) for kind in kinds},
    }


def lines(ok: int, left: int, *broken: str) -> list[dict[str, Any]]:
    return [
        *({"ending": "ok", "endpoint": "http://a"} for _ in range(ok)),
        *({"ending": "client_left", "endpoint": "http://a"} for _ in range(left)),
        *({"ending": "engine_error", "endpoint": url} for url in broken),
    ]


@pytest.mark.parametrize(
    ("result", "log"),
    [
        (load(), lines(15, 5)),
        (load(), lines(16, 4)),
        (load(), lines(15, 3)),
        (load(error_event=2), lines(13, 5, "http://b", "http://b")),
        (load(error_event=1), lines(14, 4, "http://b", "http://b")),
    ],
    ids=["all told", "whole before it left", "left unheard", "broken by the kill", "left as it broke"],
)
def test_what_adds_up_is_no_problem(result: dict[str, Any], log: list[dict[str, Any]]) -> None:
    assert account({"streams": result}, log, KILLED) == []


@pytest.mark.parametrize(
    ("result", "log"),
    [
        (load(), lines(15, 6)),
        (load(), lines(14, 5)),
        (load(), lines(10, 4)),
        (load(error_event=1), lines(14, 5, "http://a")),
        (load(error_event=2), lines(13, 5, "http://b")),
        (load(truncated=1), lines(14, 5, "http://b")),
        (load(), [*lines(15, 4), {"ending": "shutdown", "endpoint": "http://a"}]),
    ],
    ids=[
        "one too many",
        "ok not logged",
        "lost",
        "another engine",
        "not logged",
        "cut without a word",
        "cut by the gateway",
    ],
)
def test_what_does_not_add_up_is_told(result: dict[str, Any], log: list[dict[str, Any]]) -> None:
    assert account({"streams": result}, log, KILLED) != []
