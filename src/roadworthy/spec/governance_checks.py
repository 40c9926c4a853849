"""What must hold between the keys of governance and the rest of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.spec.governance_values import Rule

_RULES = "governance.rules"
_TABLES = ("sqlite", "postgresql", "postgres")
_COUNTERS = ("redis", "rediss", "valkey", "valkeys", "unix", *_TABLES)


def governance_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of ``governance`` in ``values``, which maps the dotted path of each key that was right to its value."""
    total, own = values.get("governance.queue.total", 10_000), values.get("governance.queue.per_tenant")
    if own is not None and own > total:
        yield Problem(
            path="governance.queue.per_tenant", seen=f"{own:,}", wanted=f"at most governance.queue.total, {total:,}",
            hint="one tenant cannot have more waiting than wait in all",
        )  # fmt: skip
    yield from _smtp(values)
    yield from _stores(values)
    names: dict[str, int] = {}
    for index, rule in enumerate(values.get(_RULES, ())):
        path = f"{_RULES}[{index}]"
        if rule.name in names:
            yield Problem(
                path=f"{path}.name", seen=f"{rule.name}, as in {_RULES}[{names[rule.name]}]", wanted="a name of its own"
            )
        names.setdefault(rule.name, index)
        yield from _rule(path, rule, values)


def _stores(values: Mapping[str, Any]) -> Iterator[Problem]:
    for path, known, wanted in (
        ("gateway.state_url", _TABLES, "sqlite:///FILE or postgresql://USER@HOST/DATABASE"),
        ("gateway.shared_url", _COUNTERS, "redis://HOST:PORT, valkey://HOST:PORT, postgresql://… or sqlite:///FILE"),
    ):
        url = values.get(path)
        scheme = url.partition(":")[0] if url is not None else known[0]  # the rest may hold a password
        if scheme.partition("+")[0] not in known:
            hint = "counters belong under gateway.shared_url" if scheme in _COUNTERS else ""
            yield Problem(path=path, seen=f"a {scheme} URL", wanted=wanted, hint=hint)


def _smtp(values: Mapping[str, Any]) -> Iterator[Problem]:
    smtp = values.get("governance.alert.smtp")
    if smtp is None:
        return
    path = "governance.alert.smtp"
    if not smtp.to:
        yield Problem(path=f"{path}.to", seen="an empty list", wanted="somebody to tell")
    if (smtp.user is None) != (smtp.password_env is None):
        yield Problem(
            path=path, seen="user without password_env" if smtp.user else "password_env without user",
            wanted="both or neither",
        )  # fmt: skip
    if smtp.user is not None and smtp.security == "plain":
        yield Problem(
            path=f"{path}.security", seen="plain with a user", wanted="starttls or tls",
            hint="a password in clear can be read on the way",
        )  # fmt: skip


def _rule(path: str, rule: Rule, values: Mapping[str, Any]) -> Iterator[Problem]:
    if not rule.when:
        yield Problem(
            path=f"{path}.when", seen="an empty list", wanted="at least one condition",
            hint='such as when: ["prompt_tokens > 32K"]',
        )  # fmt: skip
    for at, condition in enumerate(rule.scenario):
        if condition.after:
            yield Problem(
                path=f"{path}.scenario[{at}]", seen=condition.fact, wanted="a fact that is known beforehand",
                hint=f"{condition.fact} is known once a request has ended: put the condition under when",
            )  # fmt: skip
    for key, stated, action in (
        ("model", rule.model is not None, "degrade"),
        ("message", rule.message is not None, "refuse"),
        ("queue", rule.queue != "low", "queue"),
    ):
        if stated and rule.action != action:
            yield Problem(
                path=f"{path}.{key}", seen=f"{key} with action {rule.action}", wanted=f"action {action}, or no {key}"
            )
    known = {one.id for one in values.get("tenants", ())}
    for part, conditions in (("scenario", rule.scenario), ("when", rule.when)):
        for at, condition in enumerate(conditions):
            strangers = [name for name in condition.names if name not in known]
            if condition.fact == "tenant" and known and strangers:
                yield Problem(
                    path=f"{path}.{part}[{at}]", seen=f"tenant {strangers[0]}", wanted="an id of tenants",
                    hint=f"tenants: {', '.join(sorted(known)[:6])}",
                )  # fmt: skip
    fallbacks = [one for one in values.get("tenants", ()) if one.fallback is not None]
    if rule.action == "degrade" and values.get("tenants") and not fallbacks:
        yield Problem(
            path=f"{path}.action", seen="degrade, and no tenant has a fallback", wanted="a tenant that allows it",
            hint="give the tenants that may be degraded a fallback: MODEL",
        )  # fmt: skip
