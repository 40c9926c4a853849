"""Business rules: predicates over named facts, and what follows: refuse, degrade to another model, queue class.

A rule without ``in_a_row`` acts on each request by itself. One with it looks at requests that have ended: when so many
of its scenario in a row met its conditions, on one group of engines (those that serve one model), the rule holds. It
then acts on the whole scenario, for ``hold_s``; after that one request is let through to try, and how that one ends
decides whether the rule goes on holding.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from roadworthy.core.errors import Refused
from roadworthy.core.units import format_duration
from roadworthy.route.govern.holds import Hold
from roadworthy.route.govern.values import Facts, Treatment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roadworthy.route.govern.values import QueueClass
    from roadworthy.route.values import RouteRequest
    from roadworthy.spec.governance_values import Condition, Rule
    from roadworthy.spec.values import Tenant

IN_A_ROW = 3
"""For a rule about facts that are known only afterwards, unless it says another number."""

_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_NO_FACTS = Facts()
_HOLDS_KEPT = 4096


class RuleBook:
    """The document's rules, and which of them hold now."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._counting = {rule.name: rule for rule in self._rules if _in_a_row(rule) is not None}
        self._holds: dict[tuple[str, str], Hold] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def follow(self, rules: Iterable[Rule]) -> RuleBook:
        """The book for ``rules``; what is known of those that are the same is kept."""
        book = RuleBook(rules)
        book._holds = {
            key: hold for key, hold in self._holds.items() if book._counting.get(key[0]) == self._counting[key[0]]
        }
        return book

    def holding(self) -> tuple[tuple[str, str], ...]:
        """(rule, model) of each hold-down that acts now or waits for its trial to end."""
        return tuple(key for key, hold in self._holds.items() if hold.on)

    def treat(self, tenant: Tenant, request: RouteRequest, facts: Facts | None, now_s: float) -> Treatment:
        """What the rules say of ``request``. The first that refuses has the last word; of those that degrade, and of
        those that name a class, the first counts.

        Raises:
            Refused: with the rule's code, 422.
        """
        facts = facts or _NO_FACTS
        asked = request.model
        applied: list[str] = []
        counted: list[tuple[str, bool]] = []
        model, why, probe = asked, [], False
        queue_class: QueueClass | None = None
        for rule in self._rules:
            if not _all(rule.scenario, tenant, request, facts):
                continue
            meets = _all(rule.when, tenant, request, facts)
            if rule.name in self._counting:
                counted.append((rule.name, meets))
                hold = self._holds.get((rule.name, asked))
                verdict = hold.judge(now_s, rule.hold_s) if hold is not None else "free"
                probe = probe or verdict == "probe"
                if verdict != "held":
                    continue
            elif not meets:
                continue
            if rule.action == "refuse":
                raise _refusal(rule)
            if rule.action == "degrade":
                target = (rule.model or tenant.fallback) if tenant.fallback is not None else None
                if model == asked and target is not None and target != asked:
                    model = target
                    applied.append(rule.name)
                    why.append(f"rule {rule.name}: {target} instead of {asked}")
            elif queue_class is None:
                queue_class = rule.queue
                applied.append(rule.name)
                why.append(f"rule {rule.name}: class {rule.queue}")
        degraded = model != asked
        return Treatment(
            model=model,
            queue_class=queue_class or "normal",
            why="; ".join(why),
            degraded=degraded,
            rules=tuple(applied),
            counted=() if degraded else tuple(counted),
            probe=probe and not degraded,
        )

    def ended(
        self, treatment: Treatment, *, itl_p99_s: float | None, ttft_s: float | None, judged: bool, now_s: float
    ) -> None:
        """A request that ``treat`` let through is over.

        Args:
            itl_p99_s, ttft_s: None where they are not known; a rule that asks for one is then not counted.
            judged: False where it ended early or by a fault, so that it says nothing about its scenario.
        """
        for name, meets in treatment.counted:
            rule = self._counting.get(name)
            if rule is None:
                continue
            over = _over(rule, meets, itl_p99_s, ttft_s) if judged else None
            key = (name, treatment.model)
            hold = self._holds.get(key)
            if hold is None:
                if not over:
                    continue
                if len(self._holds) >= _HOLDS_KEPT:
                    self._holds = {one: held for one, held in self._holds.items() if held.on}
                hold = self._holds[key] = Hold()
            in_a_row = _in_a_row(rule)
            assert in_a_row is not None
            hold.ended(over, probe=treatment.probe, in_a_row=in_a_row, hold_s=rule.hold_s, now_s=now_s)


def _in_a_row(rule: Rule) -> int | None:
    if rule.in_a_row is not None:
        return rule.in_a_row
    return IN_A_ROW if any(one.after for one in rule.when) else None


def _all(conditions: tuple[Condition, ...], tenant: Tenant, request: RouteRequest, facts: Facts) -> bool:
    """Whether all of ``conditions`` hold that can be judged beforehand."""
    return all(one.after or _holds(one, tenant, request, facts) for one in conditions)


def _holds(condition: Condition, tenant: Tenant, request: RouteRequest, facts: Facts) -> bool:
    fact = condition.fact
    if fact == "prompt_tokens":
        return _compare(condition, request.prompt_tokens)
    if fact == "io_wait_ms":
        return _compare(condition, facts.io_wait_ms)
    text = tenant.id if fact == "tenant" else request.model if fact == "model" else facts.operation
    return (text in condition.names) is (condition.comparison in ("=", "in"))


def _compare(condition: Condition, value: float | None) -> bool:
    """A fact that is not known meets no condition."""
    assert condition.number is not None
    return value is not None and _NUMBERS[condition.comparison](value, condition.number)


def _over(rule: Rule, meets: bool, itl_p99_s: float | None, ttft_s: float | None) -> bool | None:
    """Whether a finished request meets all of ``when``; None where a fact is missing that would decide."""
    if not meets:
        return False
    known = {"itl_p99_ms": itl_p99_s, "ttft_ms": ttft_s}
    unknown = False
    for condition in rule.when:
        if condition.after:
            value_s = known[condition.fact]
            if value_s is None:
                unknown = True
            elif not _compare(condition, value_s * 1e3):
                return False
    return None if unknown else True


def _refusal(rule: Rule) -> Refused:
    held = _in_a_row(rule) is not None
    about = ", ".join(f"{one.fact} {one.comparison} {_value(one)}" for one in rule.when)
    return Refused(
        rule.message or f"rule {rule.name}: {about}",
        code=rule.code,
        status=422,
        hint=f"the rule is tried again every {format_duration(rule.hold_s)}; sending again at once will not help"
        if held
        else "sending the same request again will not help: change it, or ask the operator about this rule",
    )


def _value(condition: Condition) -> str:
    return ", ".join(condition.names) if condition.number is None else f"{condition.number:,.15g}"
