"""Numbers to findings: each link against what it is said to carry and against its peers, then who is to blame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from roadworthy.core.finding import Finding
from roadworthy.diagnose.hosts.fabric.blame import Culprit, culprits
from roadworthy.diagnose.hosts.facts import REMEDIES, gravest_first

if TYPE_CHECKING:
    from roadworthy.diagnose.hosts.fabric.values import Measured

LINK_SLOW_RATIO = 0.8
"""Of what a healthy link gets for large messages (nameplate times the catalog's efficiency)."""

PEER_SLOW_RATIO = {"perftest": 0.75, "nccl-tests": 0.75, "torch": 0.5}
"""Of the median host's best link. An all-reduce in Python over TCP spreads more than RDMA writes do."""

LATENCY_RATIO, LATENCY_ADDED_S = 2.0, {"perftest": 3e-6, "nccl-tests": 30e-6, "torch": 300e-6}
"""A link is late beyond this multiple of its peers' and this much on top: a few switches more are no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What large transfers get of a nameplate rate, from the catalog."""

    nic_ratio: float
    nvlink_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricJudgement:
    """Findings, weaker things, and what could not be measured; ``slow`` are the links that the matrix marks."""

    findings: tuple[Finding, ...]
    notes: tuple[dict[str, str], ...]
    could_not_look: tuple[tuple[str, str], ...]
    slow: frozenset[Measured]
    usual_by_group: tuple[tuple[str, float], ...]

    @property
    def measured_anything(self) -> bool:
        return bool(self.usual_by_group)


def judge_fabric(all_measured: Sequence[Measured], efficiency: Efficiency) -> FabricJudgement:
    """Judge everything that was measured or could not be."""
    findings: list[Finding] = []
    notes: list[dict[str, str]] = []
    slow: set[Measured] = set()
    usual_by_group: list[tuple[str, float]] = []
    for name, links in _groups(all_measured).items():
        with_number = [link for link in links if link.status == "measured"]
        usual = _usual(with_number)
        if usual is None:
            continue
        usual_by_group.append((name, usual))
        if links[0].kind == "latency":
            late = [link for link in with_number if _late(link, usual)]
            slow |= set(late)
            notes += [_late_note(one, usual) for one in culprits(with_number, late)]
            continue
        bad = [link for link in with_number if _slow(link, usual, efficiency)]
        slow |= set(bad)
        alone = len({end.host for link in links for end in (link.one, link.two)}) == 2
        findings += [_slow_finding(one, usual, alone=alone) for one in culprits(with_number, bad)]
    unreached, blind = _failures(all_measured)
    findings += unreached
    return FabricJudgement(
        findings=gravest_first(findings), notes=tuple(notes), could_not_look=blind, slow=frozenset(slow),
        usual_by_group=tuple(usual_by_group),
    )  # fmt: skip


def _groups(everything: Sequence[Measured]) -> dict[str, list[Measured]]:
    """What may be compared: one program, one kind; GPUs of one host by themselves, since hosts may differ."""
    groups: dict[str, list[Measured]] = defaultdict(list)
    for link in everything:
        where = f"GPUs of {link.one.host}" if link.inside else "hosts"
        groups[f"{where}, {link.kind}, {link.program}"].append(link)
    return groups


def _usual(links: Sequence[Measured]) -> float | None:
    """The median over ends of each one's best link. Plain medians give way when one host of three is slow: two
    thirds of all links are then its own."""
    best: dict[str, float] = {}
    for link in links:
        if link.value is None:
            continue
        for end in (link.one, link.two):
            name = end.text if link.inside else end.host
            better = min if link.kind == "latency" else max
            best[name] = better(best.get(name, link.value), link.value)
    return median(best.values()) if best else None


def _slow(link: Measured, usual: float, efficiency: Efficiency) -> bool:
    value = link.value or 0.0
    if link.inside and link.link_bytes_per_s is None:
        return False  # without NVLink, pairs below one switch and across sockets differ by design
    if value < PEER_SLOW_RATIO[link.tool] * usual:
        return True
    return value < _wanted(link, efficiency)


def _wanted(link: Measured, efficiency: Efficiency) -> float:
    """What the link's rate asks for at least; 0 where nothing says."""
    ratio = efficiency.nvlink_ratio if link.inside else efficiency.nic_ratio
    return LINK_SLOW_RATIO * ratio * (link.link_bytes_per_s or 0.0)


def _late(link: Measured, usual: float) -> bool:
    value = link.value or 0.0
    if link.inside and link.link_bytes_per_s is None:
        return False
    return value > LATENCY_RATIO * usual and value > usual + LATENCY_ADDED_S[link.tool]


def _late_note(culprit: Culprit, usual: float) -> dict[str, str]:
    worst = max(link.value or 0.0 for link in culprit.links)
    return {
        "what": "late", "subject": _who(culprit),
        "text": f"{_who(culprit)}: {worst * 1e6:.1f} us, usual here {usual * 1e6:.1f} us.",
    }  # fmt: skip


def _who(culprit: Culprit) -> str:
    return f"rail {culprit.subject}" if culprit.where == "rail" else culprit.subject


CODES = {"all": "rdma-path-oversubscribed", "rail": "rdma-path-oversubscribed", "host": "rdma-link-degraded",
         "port": "rdma-link-degraded", "pair": "rdma-path-oversubscribed"}  # fmt: skip
CONFIDENCE = {"all": 0.5, "rail": 0.65, "host": 0.7, "port": 0.8, "pair": 0.75}
MEANS = {
    "all": "Every pair of hosts is below the rate of its links",
    "rail": "This rail is slow between all hosts while the others are not: look at its switch and uplinks",
    "host": "This host is slow to all others, which are fast among themselves: look at its cables, the width of its "
    "PCIe links and the sockets that its NICs sit on",
    "port": "This port is slow to all others while the host's other ports are not: cable, optic, or PCIe link",
    "pair": "These two are slow to each other and fast to others: their flows share a link of the fabric",
}


def _slow_finding(culprit: Culprit, usual: float, *, alone: bool) -> Finding:
    first = culprit.links[0]
    values = sorted(link.value or 0.0 for link in culprit.links)
    code, confidence, means = CODES[culprit.where], CONFIDENCE[culprit.where], MEANS[culprit.where]
    if first.inside:
        code, confidence = "nvlink-fault", 0.8 if culprit.where == "port" else 0.65
        means = "GPUs joined by NVLink exchange less than NVLink carries"
    elif alone:
        code, confidence = "rdma-link-degraded", 0.6
        means = "Between two hosts nothing tells which end is slow: repeat with a third, or look at both"
    if first.tool == "torch" and not first.inside:
        confidence = round(confidence - 0.2, 2)
        means += ". Measured over TCP or through NCCL, so what carried it may be no RDMA at all"
    rates = {link.link_bytes_per_s for link in culprit.links if link.link_bytes_per_s}
    says = f", the link is said to carry {_gb(min(rates))}" if rates else ""
    span = _gb(values[0]) if values[0] > 0.98 * values[-1] else f"{_gb(values[0])} to {_gb(values[-1])}"
    return Finding(
        code=code, severity="warning", confidence=confidence, subject=_who(culprit),
        evidence=tuple(evidence for link in culprit.links for evidence in link.evidence)[:8],
        diagnosis=f"{means}. {first.program}: {span} in {_count(culprit)}, usual {_gb(usual)}{says}.",
        remedy=REMEDIES[code],
    )  # fmt: skip


def _count(culprit: Culprit) -> str:
    return "one measurement" if len(culprit.links) == 1 else f"{len(culprit.links)} measurements"


def _gb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def _failures(everything: Sequence[Measured]) -> tuple[list[Finding], tuple[tuple[str, str], ...]]:
    """Links that a tool found broken, by cause and culprit; links that could not be looked at, with the reason."""
    findings: list[Finding] = []
    failed = [link for link in everything if link.status != "measured"]
    for code in dict.fromkeys(link.fault for link in failed if link.fault):
        bad = [link for link in failed if link.fault == code]
        groups = {(link.kind, link.program, link.inside) for link in bad}
        peers = [link for link in everything if (link.kind, link.program, link.inside) in groups]
        findings += [_broken(code, one) for one in culprits(peers, bad)]
    blind = [
        (f"{link.kind} between {link.one.text} and {link.two.text} by {link.program}", f"{link.status}: {link.why}")
        for link in failed
        if not link.fault
    ]
    return findings, tuple(dict.fromkeys(blind))


def _broken(code: str, culprit: Culprit) -> Finding:
    first = culprit.links[0]
    who = {
        "all": "No pair",
        "rail": "No pair on this rail",
        "host": "No other host reaches it",
        "port": "No other port reaches it",
    }
    begin = who.get(culprit.where, "These two do not reach each other")
    return Finding(
        code=code, severity="critical", confidence=0.6 if culprit.where in ("pair", "all") else 0.75,
        subject=_who(culprit), evidence=tuple(e for link in culprit.links for e in link.evidence)[:8],
        diagnosis=f"{begin}: {first.program} says {first.why!r} in {_count(culprit)}.",
        remedy=REMEDIES[code],
    )  # fmt: skip
