"""A trace in virtual time: its own times and lengths, all of it, and more of one tenant where that is asked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from roadworthy.advise.trace_reader import read_trace
from roadworthy.core.errors import SpecError
from roadworthy.simulate.recording import COPIES_APART_S, Recording
from roadworthy.simulate.trial import Trial, arrivals_of, run_trial
from roadworthy.spec.values import Deployment, ModelRef, Tenant
from support.twin import config

TENANTS = (Tenant(id="legal", weight=3.0), Tenant(id="shop", weight=1.0))
DOCUMENT = Deployment(name="x", model=ModelRef(config="tiny"), tenants=TENANTS)


def recording(*entries: object) -> Recording:
    return Recording(trace=read_trace("\n".join(map(json.dumps, entries)), source="t"), name="t.jsonl")


def logged(at: float, tenant: str, prompt: int = 30, output: int = 4) -> dict[str, object]:
    return {"time": at, "tenant_id": tenant, "prompt_tokens": prompt, "output_tokens": output}


def trial(recorded: Recording, requests: int | None = None, **more: object) -> Trial:
    return Trial(
        deployment=DOCUMENT, configs=(config(max_num_seqs=8),), requests=requests or recorded.requests, seed=3,
        recording=recorded, **more,  # type: ignore[arg-type]
    )  # fmt: skip


HOUR = recording(*(logged(1000.0 + 2 * at, "legal" if at % 3 else "shop") for at in range(300)))


def test_requests_come_at_the_times_and_with_the_lengths_of_the_trace() -> None:
    recorded = recording(logged(500.0, "legal", 40, 6), logged(503.0, "shop", 20, 2))
    first, second = sorted(run_trial(trial(recorded)).records, key=lambda record: record.t_sched_s)
    assert (first.t_sched_s, first.n_in, first.n_out, first.tenant) == (0.0, 40, 6, "legal")
    assert (second.t_sched_s, second.n_in, second.n_out, second.tenant) == (3.0, 20, 2, "shop")


def test_a_replay_can_be_faster_and_its_silences_shorter() -> None:
    recorded = recording(logged(0.0, "legal"), logged(2.0, "legal"), logged(1002.0, "legal"))
    for pace, wanted in ((replace(recorded, speed=2.0), [0, 1, 501]), (replace(recorded, max_gap_s=10.0), [0, 2, 12])):
        assert sorted(record.t_sched_s for record in run_trial(trial(pace)).records) == wanted


def test_twice_the_traffic_is_every_request_twice_and_not_at_the_same_moment() -> None:
    planned = list(arrivals_of(trial(HOUR, 2000, traffic=(("", 2.0),))).first_turns())
    assert len(planned) == 600
    assert Counter(one.tenant for one in planned) == {"legal": 400, "shop": 200}
    assert len({one.t_sched_s for one in planned}) > 590
    assert max(one.t_sched_s for one in planned) <= 598.0
    assert [one.t_sched_s for one in planned] == sorted(one.t_sched_s for one in planned)


def test_one_tenant_can_ask_for_more_and_another_for_less() -> None:
    planned = list(arrivals_of(trial(HOUR, 2000, traffic=(("shop", 3.0), ("legal", 0.5)))).first_turns())
    sent = Counter(one.tenant for one in planned)
    assert sent["shop"] == 300
    assert 70 <= sent["legal"] <= 130


def test_a_tenant_of_the_trace_that_nobody_knows_is_shared_by_all() -> None:
    strangers = recording(*(logged(float(at), "elsewhere") for at in range(400)))
    sent = Counter(one.tenant for one in arrivals_of(trial(strangers)).first_turns())
    assert 250 <= sent["legal"] <= 350
    assert sent["legal"] + sent["shop"] == 400


def test_copies_share_the_text_of_their_conversation_and_not_that_of_the_original() -> None:
    blocks = [{"timestamp": 1000 * at, "input_length": 900, "output_length": 3, "hash_ids": [7, at]} for at in range(2)]
    planned = list(arrivals_of(trial(recording(*blocks), 9, traffic=(("", 2.0),))).first_turns())
    first_blocks = Counter(one.segments[0].id for one in planned)
    assert sorted(first_blocks.values()) == [2, 2]


def test_a_trace_of_which_nothing_is_left_is_named() -> None:
    with pytest.raises(SpecError, match="nobody asks for anything"):
        arrivals_of(trial(HOUR, traffic=(("", 0.0),)))


def test_copies_of_a_trace_without_times_follow_the_workload() -> None:
    chat = {"conversations": [{"from": "human", "value": "What?"}, {"from": "gpt", "value": "That."}]}
    planned = list(arrivals_of(trial(recording(chat), 9, traffic=(("", 3.0),))).first_turns())
    assert len(planned) == 3
    assert COPIES_APART_S > 0


def test_only_texts_that_a_trace_calls_equal_can_be_shared() -> None:
    assert HOUR.shares_nothing
    assert not recording({"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": [7]}).shares_nothing
