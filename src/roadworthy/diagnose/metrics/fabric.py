"""What node exporter counts on RDMA ports and NICs over time, as the counters and port states that probes give too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.metrics.series import Family, Series
    from roadworthy.diagnose.values import Clue

ALIASES = {
    "port_errors_received": "port_rcv_errors", "port_discards_transmitted": "port_xmit_discards",
    "port_receive_switch_relay_errors": "port_rcv_switch_relay_errors", "port_transmit_wait": "port_xmit_wait",
}  # fmt: skip
"""Node exporter's names of what the kernel calls otherwise."""

COUNTED = re.compile(
    r"symbol_error|link_downed|link_error_recovery|port_rcv_errors|port_xmit_discards|discard|pause|out_of_sequence|"
    r"packet_seq_err|local_ack_timeout|implied_nak|roce_|cnp|ecn_marked|out_of_buffer|adp_retrans"
)
STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}


def counters(family: Family) -> Iterator[Clue]:
    """``counter.NAME`` twice, before and after, for every counter of a port that is known to matter."""
    for metric, some in family:
        found = re.fullmatch(r"node_(?:infiniband|ethtool)_(?:hw_)?(?P<name>\w+?)(?:_total|_packets)?", metric)
        if not found:
            continue
        name = ALIASES.get(found["name"], found["name"])
        if not COUNTED.search(name):
            continue
        for one in some:
            grown = one.increase()
            for value in (one.values[0], one.values[0] + grown):
                yield one.clue(
                    f"counter.{name}", note=f"{grown:.0f} more", value=f"{value:.0f}", counter=metric,
                    device=one.label("device"),
                )  # fmt: skip


def ports(family: Family) -> Iterator[Clue]:
    """``port.state`` with the rate at the end; ``link.lost`` for a port that was up and went down."""
    rates = {_port(one): one for one in family.all("node_infiniband_rate_bytes_per_second")}
    for one in family.all("node_infiniband_state_id"):
        rate = rates.get(_port(one))
        gigabits = f"{rate.last * 8 / 1e9:.0f}" if rate is not None else ""
        yield one.clue(
            "port.state", *([rate.quoted()] if rate is not None else []), device=one.label("device"),
            port=one.label("port"), state=STATES.get(int(one.last), ""), rate=gigabits, link_layer="",
        )  # fmt: skip
        yield from _lost(one, up=4)
    for one in family.all("node_network_carrier"):
        if re.match(r"(?:eth|en|ib|bond|rdma|roce)", one.label("device")):
            yield from _lost(one, up=1)


def _lost(one: Series, *, up: int) -> Iterator[Clue]:
    for at in range(1, len(one.values)):
        if one.values[at - 1] == up != one.values[at]:
            yield one.clue("link.lost", time_s=one.times[at], device=one.label("device"))
            return


def _port(one: Series) -> tuple[str, ...]:
    return (one.host or "", one.label("device"), one.label("port"))


READERS = (counters, ports)
