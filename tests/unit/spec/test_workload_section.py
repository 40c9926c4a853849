"""The workload section: what it says, and what contradicts itself in it."""

from __future__ import annotations

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.spec.load import load_text
from roadworthy.spec.workload_values import ArrivalPattern, MixPart, Sessions

DOCUMENT = "model: {config: tiny}\ntenants: [{id: legal, key: sk-legal-0001}]\nworkload: "


def workload(text: str):
    return load_text(DOCUMENT + text, source="d.yaml").workload


def problem(text: str) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        workload(text)
    (one,) = caught.value.problems
    return one.path, f"{one.seen} | {one.wanted} | {one.hint}"


def test_without_the_keys_arrivals_are_poisson_and_nothing_is_mixed() -> None:
    assert workload("{rate: 4/s}").arrivals == ArrivalPattern()
    assert workload("{rate: 4/s}").mix == ()


def test_every_pattern_reads_its_own_keys() -> None:
    assert workload("{arrivals: {pattern: gamma, burstiness: 0.25}}").arrivals.burstiness == 0.25
    wave = workload("{arrivals: {pattern: diurnal, period: 24h, peak: 4}}").arrivals
    assert (wave.period_s, wave.peak_ratio) == (86_400.0, 4.0)
    assert workload("{arrivals: {pattern: ramp, to: 90/min}}").arrivals.to_rate_per_s == 1.5
    assert workload("{arrivals: {pattern: closed, users: 64}}").arrivals.users == 64


def test_a_mix_names_kinds_shares_and_senders() -> None:
    found = workload(
        "{mix: [{kind: chat, share: 75%}, {kind: document, share: 25%, tenants: [legal], sessions: {turns: 2}}]}"
    )
    assert found.mix == (
        MixPart(kind="chat", share_ratio=0.75),
        MixPart(kind="document", share_ratio=0.25, tenants=("legal",), sessions=Sessions(turns=2)),
    )


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("{arrivals: {pattern: ramp}}", "workload.arrivals", "a ramp without an end"),
        ("{arrivals: {users: 4}}", "workload.arrivals.users", "with pattern poisson | pattern closed"),
        (
            "{arrivals: {pattern: constant, burstiness: 2}}",
            "workload.arrivals.burstiness",
            "pattern gamma or diurnal or ramp",
        ),
        ("{arrivals: {pattern: bursty}}", "workload.arrivals.pattern", "gamma"),
        ("{arrivals: {pattern: gamma, burstiness: 0}}", "workload.arrivals.burstiness", "above 0"),
        ("{mix: [{kind: chat, tenants: [leagl]}]}", "workload.mix[0].tenants", "did you mean legal?"),
        ("{mix: [{share: 50%}]}", "workload.mix[0].kind", ""),
        ("{mix: [{kind: chat, share: 0%}]}", "workload.mix[0].share", ""),
    ],
)
def test_what_contradicts_itself_is_named(text: str, path: str, words: str) -> None:
    found, told = problem(text)
    assert found == path
    assert words in told
