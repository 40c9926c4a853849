"""The twin against live runs on H200, by the script that prints the table; the page in docs is what it writes."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from roadworthy.plan.startup_warnings import FRONT_REQUEST_S, FRONT_TOKEN_S
from support.scripts import load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("twin_against_gpu", "descend", "plan_accuracy")


def test_every_judged_run_is_within_the_limits_and_the_page_says_what_the_script_finds(script: ModuleType) -> None:
    data = json.loads(script.DATA.read_text(encoding="utf-8"))
    rows = script.rows_of(data)
    judged = [row.step for row in rows if not row.why_not_judged]
    assert judged == [
        *("alone-long", "long-9", "long-13", "chats-20", "long-4", "same-lengths-45"),
        *("alone", "chats-30", "alone", "chats-55"),
    ]
    assert [(row.step, row.outside) for row in rows if row.outside] == []
    assert script.page(rows, data) == script.PAGE.read_text(encoding="utf-8")


def test_the_plan_warns_by_the_same_api_server(script: ModuleType) -> None:
    server = script.SERVERS["a"]  # the slower one
    assert (server.request_s, server.token_s + server.chunk_s) == pytest.approx((FRONT_REQUEST_S, FRONT_TOKEN_S))


def test_a_run_beyond_a_limit_is_told(script: ModuleType) -> None:
    live = dict.fromkeys(script.LIMITS, 1.0)
    row = script.Row(case="llama8b", step="x", requests=1, live=live, twin=live | {"TPOT P50": 1.2}, gaps=({}, {}))
    assert row.outside == ["TPOT P50"]


def test_requests_are_replayed_at_their_moments_with_their_lengths(script: ModuleType) -> None:
    data = json.loads(script.DATA.read_text(encoding="utf-8"))
    case = data["cases"][0]
    step = next(step for step in case["steps"] if step["step"] == "alone")
    later = step | {"requests": [[one[0] + 70_000, one[1] + 70_000, *one[2:]] for one in step["requests"]]}
    config = script.config_of(case)
    (now, _), (then, _) = (script.foretold(config, one, server=script.SERVERS["a"], servers=1) for one in (step, later))
    assert now["TTFT P50"] == pytest.approx(then["TTFT P50"])
    assert config.late_admission
    assert config.max_num_seqs == 512
