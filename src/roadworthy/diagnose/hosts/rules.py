"""All rules about one host, whichever file they stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts import network, readiness, system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.hosts.facts import Expected, HostFacts

RULES = (*readiness.RULES, *network.RULES, *system.RULES)


def findings_on(facts: HostFacts, expected: Expected) -> Iterator[Finding]:
    """Findings about one host, beside those that its logs give by themselves."""
    for rule in RULES:
        yield from rule(facts, expected)


def notes_on(facts: HostFacts, expected: Expected) -> tuple[dict[str, str], ...]:
    """Weaker things about one host: ``what`` (a short name), ``subject``, ``text``."""
    return tuple(system.notes(facts, expected))
