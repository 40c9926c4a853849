"""What rates, counters, link events, pauses and MTUs of ports say, before against after and host against host."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.joins.network import LOCAL_INTERFACES
from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook

BOOT_S = 90.0
"""Seconds of the kernel's clock in which drivers bring links up."""

ONE_READING_LEAST = 3
"""A counter read once says that something happened since boot; once or twice is a cable that was plugged in."""


def rates(book: ClueBook) -> Iterator[Clue]:
    """Ports slower than planned, or than their peers of the same kind; ports that are down."""
    states = book.all("port.state")
    known = [(rate, clue) for clue in states if (rate := _gigabits(clue)) is not None]
    plan = book.first("plan.rate")
    if plan is not None:
        wanted = plan.number("rate")
        slow = [clue for rate, clue in known if rate < 0.9 * wanted]
        if slow:
            names = ", ".join(clue.value("device") for clue in slow)
            yield derived(
                slow[0], "rate.below-plan", plan, rate=f"{_gigabits(slow[0]):g}", wanted=f"{wanted:g}", devices=names
            )
    by_layer: dict[str, list[tuple[float, Clue]]] = defaultdict(list)
    for rate, clue in known:
        if "down" not in (clue.value("state") + clue.value("phys")).lower():
            by_layer[clue.value("link_layer")].append((rate, clue))
    for some in by_layer.values():
        top = max(rate for rate, _ in some)
        slow = [clue for rate, clue in some if rate < 0.9 * top]
        if slow and len(slow) < len(some):
            yield derived(
                slow[0], "rate.below-peers", rate=f"{_gigabits(slow[0]):g}", wanted=f"{top:g}",
                devices=", ".join(clue.value("device") for clue in slow),
            )  # fmt: skip
    for clue in states:
        if re.match(r"(?:down|disabled|polling|no|init)\b", clue.value("state") or clue.value("phys"), re.IGNORECASE):
            yield derived(clue, "port.down")


def _gigabits(clue: Clue) -> float | None:
    text = clue.value("rate")
    if not text:
        return None
    value = float(text)
    whole = clue.value("rate_text")
    return value / 1000 if "Mb/s" in whole or value >= 10_000 else value


def counter_growth(book: ClueBook) -> Iterator[Clue]:
    """``grew.NAME`` for a counter that is above zero and rose between two readings, or was read once above zero."""
    level: list[Clue] = []
    fell = False
    for name in sorted(one for one in book.names() if one.startswith("counter.")):
        clues = book.all(name)
        by_place: dict[tuple[str | None, str], list[Clue]] = defaultdict(list)
        for clue in clues:
            by_place[clue.host, clue.value("device")].append(clue)
        for some in by_place.values():
            first, last = int(some[0].number("value")), int(some[-1].number("value"))
            of_link = name in ("counter.link_downed", "counter.symbol_error")
            if len(some) > 1 and last == first and of_link:
                level.append(derived(some[-1], "counters.level", some[0]))
            fell = fell or (of_link and len(some) > 1 and last > first)
            if len(some) == 1 and last >= ONE_READING_LEAST:
                yield derived(some[0], f"grew.{name[8:]}", by=last)
            elif len(some) > 1 and last > first:
                yield derived(some[-1], f"grew.{name[8:]}", some[0], by=last - first)
    if not fell:  # one port that stands still says nothing of another that does not
        yield from level


def links(book: ClueBook) -> Iterator[Clue]:
    """``link.lost``: a link that went down after the host had started; at boot every link goes down and up."""
    for clue in book.all("link.down"):
        if clue.time_s is None or not clue.lines[0].text.lstrip().startswith("[") or clue.time_s > BOOT_S:
            yield derived(clue, "link.lost")


UNCLASSED_PAUSES = 100_000
"""Global pause frames (802.3x) between two readings that hold a port: they stop every class, RoCE's among them."""


def congestion(book: ClueBook) -> Iterator[Clue]:
    """Drops without pause (a lossy class), pause storms, losses on the wire, by the counters that grew."""
    grown = {name[5:]: book.all(name)[0] for name in sorted(book.names()) if name.startswith("grew.")}

    def pick(pattern: str, at_least: int = 1) -> Clue | None:
        found = [
            clue for name, clue in grown.items() if re.search(pattern, name) and int(clue.number("by")) >= at_least
        ]  # fmt: skip
        return derived(found[0], found[0].name, *found[1:2]) if found else None

    drops = pick(r"rx_prio\d_discards|rx_discards_phy|rx_out_of_buffer|port_xmit_discards|rx_prio\d_buf_discard")
    losses = pick(
        r"out_of_sequence|packet_seq_err|local_ack_timeout_err|implied_nak|roce_adp_retrans|roce_slow_restart", 100
    )
    storm = pick(r"pause_storm")
    paused = pick(r"[rt]x_prio\d_pause(?:_duration)?$|[rt]x_pause_ctrl_phy|[rt]x_global_pause", 1000)
    unclassed = pick(r"[rt]x_global_pause(?:_transition)?$", UNCLASSED_PAUSES)
    marked = pick(r"np_cnp_sent|rp_cnp_handled|np_ecn_marked", 1000)
    if drops is not None:
        yield derived(drops, "roce.drops")
    if losses is not None:
        yield derived(losses, "roce.losses")
    if storm is not None:
        yield derived(storm, "roce.pause-storm")
    if paused is not None:
        yield derived(paused, "roce.paused")
    if unclassed is not None:
        yield derived(unclassed, "roce.global-pause")
    if marked is not None:
        yield derived(marked, "roce.marked")
    if (drops is not None or losses is not None) and paused is None:
        yield derived(drops or losses or next(iter(grown.values())), "roce.drops-without-pause")


def mtu(book: ClueBook) -> Iterator[Clue]:
    """``mtu.differs`` between hosts on the same interface, or between host and switch."""
    by_device: dict[str, dict[str, Clue]] = defaultdict(dict)
    for clue in book.all("mtu.interface"):
        if clue.host and not LOCAL_INTERFACES.match(clue.value("device")):
            by_device[clue.value("device")][clue.host] = clue
    for device, hosts in by_device.items():
        if len({clue.value("mtu") for clue in hosts.values()}) > 1:
            some = sorted(hosts.values(), key=lambda clue: int(clue.number("mtu")))
            yield derived(some[0], "mtu.differs", some[-1], device=device, other=some[-1].value("mtu"))
    switch = book.first("mtu.switch")
    for clue in book.all("mtu.interface"):
        if (
            switch is not None
            and int(switch.number("mtu")) < int(clue.number("mtu"))
            and int(clue.number("mtu")) > 2000
            and clue.value("device") != "lo"
        ):
            yield derived(clue, "mtu.differs", switch, other=switch.value("mtu"))
    active = {clue.value("mtu") for clue in book.all("mtu.active")}
    if len(active) > 1:
        some = list(book.all("mtu.active"))
        yield derived(some[0], "mtu.differs", *some[1:2], device="", other=some[-1].value("mtu"))


JOINS = (links, rates, counter_growth, congestion, mtu)
