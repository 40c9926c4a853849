"""The document's `governance` section: what it reads, and what it says about what cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roadworthy.spec.governance_values import Condition, GovernanceSpec
from roadworthy.spec.load import check_text, load_text

if TYPE_CHECKING:
    from roadworthy.core.errors import Problem

HEAD = "model: {config: tiny}\n"


def governance(text: str) -> GovernanceSpec:
    return load_text(HEAD + text, source="x").governance


def problems(text: str) -> dict[str, Problem]:
    deployment, found = check_text(HEAD + text, source="x")
    assert deployment is None
    return {problem.path: problem for problem in found}


def test_everything_has_a_default() -> None:
    assert load_text(HEAD, source="x").governance == GovernanceSpec()
    assert GovernanceSpec().borrow_headroom_ratio == 0.1
    assert GovernanceSpec().queue.max_wait_s == 60
    assert GovernanceSpec().on_state_loss == "closed"
    assert (GovernanceSpec().alert.at_ratio, GovernanceSpec().alert.for_s) == (0.9, 300)


def test_a_whole_section_is_read() -> None:
    spec = governance(
        """
governance:
  borrow_headroom: 20%
  slots_per_engine: 64
  billing: exact
  cached_tokens: free
  queue: {total: 500, per_tenant: 50, max_wait: 20s, ageing: 5s}
  lease_ttl: 15s
  on_state_loss: open
  ledger: off
  alert:
    at: 80%
    for: 2m
    webhook: https://hooks.example.org/secret
    smtp: {host: mail.example.org, port: 587, security: starttls, user: u, password_env: PW,
           from: a@x.org, to: [b@x.org]}
  rules:
    - name: night
      scenario: [operation = chat, "tenant not in a, b"]
      when: [prompt_tokens > 32K, io_wait_ms >= 1.5s, itl_p99_ms > 150]
      action: degrade
      model: small
      in_a_row: 4
      hold: 30s
"""
    )
    assert (spec.borrow_headroom_ratio, spec.slots_per_engine, spec.billing) == (0.2, 64, "exact")
    assert (spec.queue.total, spec.queue.per_tenant, spec.queue.max_wait_s, spec.queue.ageing_s) == (500, 50, 20, 5)
    assert (spec.lease_ttl_s, spec.on_state_loss, spec.ledger, spec.cached_tokens) == (15, "open", False, "free")
    assert spec.alert.smtp is not None
    assert (spec.alert.smtp.sender, spec.alert.smtp.to) == ("a@x.org", ("b@x.org",))
    (rule,) = spec.rules
    assert rule.scenario == (
        Condition(fact="operation", comparison="=", names=("chat",)),
        Condition(fact="tenant", comparison="not in", names=("a", "b")),
    )
    assert [one.number for one in rule.when] == [32 * 1024, 1500, 150]
    assert [one.after for one in rule.when] == [False, False, True]


@pytest.mark.parametrize(("written", "means"), [("on", True), ("off", False), ("true", True), ('"off"', False)])
def test_a_switch_needs_no_quotes(written: str, means: bool) -> None:
    assert governance(f"governance: {{ledger: {written}}}").ledger is means


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("pages > 3", "a fact that is known"),
        ("tenant > 3", "=, !=, in or not in"),
        ("tenant = a, b", "one name"),
        ("tenant in", "names"),
        ("prompt_tokens in 3, 4", "a comparison such as >"),
        ("prompt_tokens > lots", "a count"),
        ("io_wait_ms > 3 bananas", "milliseconds"),
        ("prompt_tokens", "FACT COMPARISON VALUE"),
    ],
)
def test_a_condition_that_is_none_says_what_was_wanted(condition: str, wanted: str) -> None:
    text = f'governance: {{rules: [{{name: r, when: ["{condition}"]}}]}}'
    assert wanted in problems(text)["governance.rules[0].when[0]"].wanted


def test_a_fact_that_was_misspelt_is_guessed() -> None:
    found = problems('governance: {rules: [{name: r, when: ["promt_tokens > 1"]}]}')
    assert found["governance.rules[0].when[0]"].hint == "did you mean prompt_tokens?"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("queue: {total: 10, per_tenant: 11}", "governance.queue.per_tenant"),
        ("alert: {smtp: {host: h, from: a@b.c, to: []}}", "governance.alert.smtp.to"),
        ("alert: {smtp: {host: h, from: a@b.c, to: [a@b.c], user: u}}", "governance.alert.smtp"),
        (
            "alert: {smtp: {host: h, from: a@b.c, to: [a@b.c], user: u, password_env: P}}",
            "governance.alert.smtp.security",
        ),
        ("rules: [{name: r, when: []}]", "governance.rules[0].when"),
        ("rules: [{name: r, when: [model = a]}, {name: r, when: [model = a]}]", "governance.rules[1].name"),
        ("rules: [{name: r, scenario: [ttft_ms > 1], when: [model = a]}]", "governance.rules[0].scenario[0]"),
        ("rules: [{name: r, when: [model = a], model: m}]", "governance.rules[0].model"),
        ("rules: [{name: r, when: [model = a], action: queue, message: m}]", "governance.rules[0].message"),
        ("rules: [{name: r, when: [model = a], queue: high}]", "governance.rules[0].queue"),
    ],
)
def test_keys_that_cannot_stand_together_are_named(text: str, path: str) -> None:
    assert path in problems(f"governance: {{{text}}}")


def test_a_rule_about_a_tenant_that_is_not_there_is_named_and_so_is_a_degradation_nobody_allows() -> None:
    tenants = "tenants: [{id: a, key: sk-1}]\n"
    rule = 'governance: {rules: [{name: r, scenario: ["tenant = b"], when: ["model = x"]}]}'
    assert problems(tenants + rule)["governance.rules[0].scenario[0]"].seen == "tenant b"
    rule = "governance: {rules: [{name: r, when: [model = x], action: degrade}]}"
    assert problems(tenants + rule)["governance.rules[0].action"].hint


def test_a_webhook_never_appears_in_a_message() -> None:
    found = problems("governance: {alert: {webhook: 'ftp://secret.example.org'}}")
    assert "secret" not in str(found["governance.alert.webhook"])


def test_a_tenants_key_may_be_trusted() -> None:
    deployment = load_text(HEAD + "tenants: [{id: a, key: sk-1, scopes: [trusted-caller]}]", source="x")
    assert deployment.tenants[0].scopes == ("trusted-caller",)


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("state_url", "sqlite:///state.db"),
        ("state_url", "postgresql://u:p@db/name"),
        ("shared_url", "valkey://cache:6379"),
        ("shared_url", "postgresql://db/name"),
    ],
)
def test_stores_that_are_known_are_taken(key: str, url: str) -> None:
    assert getattr(load_text(HEAD + f"gateway: {{{key}: '{url}'}}", source="x").gateway, key) == url


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("state_url", "mysql://u:geheim@db/n"),
        ("state_url", "redis://:geheim@c"),
        ("shared_url", "memcached://:geheim@c"),
    ],
)
def test_a_store_of_another_kind_is_named_without_its_password(key: str, url: str) -> None:
    found = problems(f"gateway: {{{key}: '{url}'}}")[f"gateway.{key}"]
    assert url.partition(":")[0] in found.seen
    assert "geheim" not in str(found)
    assert ("shared_url" in found.hint) == url.startswith("redis")


def test_ten_thousand_tenants_fit_into_a_document() -> None:
    tenants = "".join(f"  - {{id: t{index}, key: sk-{index:012d}, weight: 2, rpm: 600}}\n" for index in range(10_000))
    deployment = load_text(HEAD + "tenants:\n" + tenants, source="x")
    assert (len(deployment.tenants), deployment.tenants[-1].id) == (10_000, "t9999")
