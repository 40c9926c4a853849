"""Whom bad links have in common: everything, a rail, a host, a port, or nothing but the two ends of a pair.

One faulty cable makes every link of its port slow; told link by link it would be a page of findings. What explains most
of the bad links goes first, as long as nearly all of its links are bad and some of the rest are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.diagnose.hosts.fabric.values import Measured

Where = Literal["all", "host", "rail", "port", "pair"]
SHARE = 0.8
"""Of a culprit's links must be bad; the rest may have been lucky."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What bad links have in common; ``subject`` names it."""

    where: Where
    subject: str
    links: tuple[Measured, ...]


def culprits(links: Sequence[Measured], bad: Sequence[Measured]) -> tuple[Culprit, ...]:
    """What explains ``bad``, which is part of ``links``: each bad link under one culprit, the widest first."""
    if not bad:
        return ()
    pairs = {_hosts(link) for link in links}
    if len(bad) >= SHARE * len(links) and len(pairs) >= 3:
        hosts = sorted({end.host for link in links for end in (link.one, link.two)})
        subject = f"{hosts[0]}, all GPUs" if links[0].inside else ", ".join(hosts)
        return (Culprit(where="all", subject=subject, links=tuple(bad)),)
    suspects, left = _suspects(links), {id(link) for link in bad}
    found: list[Culprit] = []
    while left:
        shares = [(one, [link for link in one.links if id(link) in left]) for one in suspects]
        guilty = [(one, mine) for one, mine in shares if mine and len(mine) >= SHARE * len(one.links)]
        if not guilty:
            break
        suspect, mine = max(guilty, key=lambda pair: (len(pair[1]), _ORDER.index(pair[0].where)))
        found.append(replace(suspect, links=tuple(mine)))
        left -= {id(link) for link in mine}
    return (*found, *_pairs([link for link in bad if id(link) in left]))


_ORDER: tuple[Where, ...] = ("host", "rail", "port")
"""Among those that explain as much, the later is the narrower claim."""


def _suspects(links: Sequence[Measured]) -> list[Culprit]:
    """Hosts, rails and ports with all their links: enough of them, to enough others, to speak against one."""
    groups: dict[tuple[Where, str], list[Measured]] = defaultdict(list)
    for link in links:
        for end in (link.one, link.two):
            groups["host", end.host].append(link)
            if end.part:
                groups["port", end.text].append(link)
        if link.one.part and link.one.part == link.two.part:
            groups["rail", link.one.part].append(link)
    found = []
    for (where, subject), some in groups.items():
        members = tuple({id(link): link for link in some}.values())
        if len(members) < len(links) and _convicts(where, subject, members):
            found.append(Culprit(where=where, subject=subject, links=members))
    return found


def _convicts(where: Where, subject: str, members: Sequence[Measured]) -> bool:
    """Whether bad links to several others speak against ``subject`` rather than against the others."""
    others = {
        end.host if where == "host" else end.text
        for link in members
        for end in (link.one, link.two)
        if (end.host if where == "host" else end.text) != subject
    }
    if where == "rail":
        return len({_hosts(link) for link in members}) >= 2 and len({end for m in members for end in _hosts(m)}) >= 3
    if where == "host":
        parts = {end.part for link in members for end in (link.one, link.two) if end.host == subject}
        return len(others) >= 2 and (parts == {""} or len(parts) >= 2)
    return len(others) >= 2


def _hosts(link: Measured) -> tuple[str, str]:
    """The two hosts in order; inside one host its two GPUs."""
    names = (link.one.text, link.two.text) if link.inside else (link.one.host, link.two.host)
    first, second = sorted(names)
    return first, second


def _pairs(left: Sequence[Measured]) -> tuple[Culprit, ...]:
    """What nothing wider explains: one culprit for each pair of ends, whatever the direction."""
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for link in left:
        groups[_hosts(link)].append(link)
    found = []
    for pair, links in groups.items():
        parts = [] if links[0].inside else sorted({_rail(link) for link in links} - {""})
        subject = " and ".join(pair) + (f", {', '.join(parts)}" if parts else "")
        found.append(Culprit(where="pair", subject=subject, links=tuple(links)))
    return tuple(found)


def _rail(link: Measured) -> str:
    one, two = link.one.part, link.two.part
    return one if one == two else " to ".join(sorted((one, two)))
