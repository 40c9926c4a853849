"""A run by group: each is held to the limits by itself, and a small one is not called good."""

from __future__ import annotations

import pytest

from roadworthy.advise.breakdown import by_kind, by_prompt_length, by_tenant, prompt_class
from roadworthy.core.records import RequestRecord
from roadworthy.spec.values import Sla

SLA = Sla(ttft_p99_s=0.2)


def record(
    at: int, *, tenant: str = "", kind: str = "", n_in: int = 100, ttft_s: float = 0.1, ok: bool = True
) -> RequestRecord:
    return RequestRecord(
        t_sched_s=float(at), t_send_s=float(at), t_first_s=at + ttft_s if ok else None, t_last_s=at + 1.0, n_in=n_in,
        n_out=10, ok=ok, tenant=tenant, kind=kind,
    )  # fmt: skip


def met(objectives: tuple, name: str) -> bool | None:
    return next(one.met for one in objectives if one.name == name)


def test_the_tenant_for_whom_it_is_missed_is_named_though_the_whole_is_met() -> None:
    records = [record(at, tenant="big") for at in range(5000)] + [
        record(at, tenant="small", ttft_s=0.5) for at in range(1000)
    ]
    groups = {group.id: group for group in by_tenant(records, SLA)}
    assert met(groups["big"].objectives, "ttft_p99") is True
    assert met(groups["small"].objectives, "ttft_p99") is False
    assert groups["small"].sla_misses == 1000


def test_a_group_too_small_for_a_verdict_gets_none() -> None:
    (group,) = by_tenant([record(at, tenant="few") for at in range(999)], SLA)
    assert met(group.objectives, "ttft_p99") is None


def test_failures_count_as_misses_and_break_success() -> None:
    (group,) = by_kind([record(1, kind="agent"), record(2, kind="agent", ok=False)], SLA)
    assert (group.requests, group.failed, group.sla_misses, group.tokens) == (2, 1, 1, 110)
    assert met(group.objectives, "success") is False


def test_prompts_fall_into_classes_shortest_first() -> None:
    records = [record(at, n_in=n_in) for at, n_in in enumerate([70_000, 30, 1024, 1025, 16_384, 20_000])]
    assert [group.id for group in by_prompt_length(records, SLA)] == [
        "up to 1K", "1K to 4K", "4K to 16K", "16K to 64K", "over 64K",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "name"), [(1, "up to 1K"), (4096, "1K to 4K"), (65_536, "16K to 64K"), (65_537, "over 64K")]
)
def test_the_class_of_a_prompt(tokens: int, name: str) -> None:
    assert prompt_class(tokens) == name


def test_without_tenants_or_a_mix_there_are_no_groups() -> None:
    assert by_tenant([record(1)], SLA) == ()
    assert by_kind([record(1)], SLA) == ()
