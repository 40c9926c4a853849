"""What addresses, GIDs and devices say when they are put side by side, across hosts too."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.diagnose.values import Clue, ClueBook

LOCAL_INTERFACES = re.compile(r"^(?:lo|docker|br-|virbr|veth|cni|flannel|cali|tunl|lxc|lxd|podman|usb|vmnet|kube-)")

BRIDGE_DEFAULTS = ("172.17.", "192.168.122.", "10.88.0.")
"""Networks that docker, libvirt and podman give to a bridge of their own on every host: no peer is reached by them."""


def bootstrap(book: ClueBook) -> Iterator[Clue]:
    """Interfaces that peers cannot reach, and hosts that answer in different networks."""
    seen: dict[str, Clue] = {}
    for clue in book.all("nccl.bootstrap-address", "nccl.socket-address"):
        interface, address = clue.value("interface"), clue.value("address")
        if LOCAL_INTERFACES.match(interface) or _unreachable(address):
            yield derived(clue, "bootstrap.local-interface")
        if clue.host and clue.name == "nccl.bootstrap-address":
            seen.setdefault(clue.host, clue)
    if len(seen) >= 2:
        networks = {
            host: clue.value("address").rsplit(".", 1)[0] for host, clue in seen.items() if "." in clue.value("address")
        }
        common, times = Counter(networks.values()).most_common(1)[0] if networks else ("", 0)
        odd = [host for host, network in networks.items() if network != common]
        if odd and times >= 1:
            one, other = seen[odd[0]], next(clue for host, clue in seen.items() if host != odd[0])
            yield derived(one, "bootstrap.networks-differ", other, odd=odd[0])
    bridges = {
        clue.value("address") for clue in book.all("net.interface") if LOCAL_INTERFACES.match(clue.value("interface"))
    }
    for clue in book.all(
        "gloo.connect-failed", "socket.refused", "socket.no-route", "socket.timed-out", "store.timeout",
        "collective.peer-closed",
    ):  # fmt: skip
        address = clue.value("address") or clue.value("address2")
        if _unreachable(address) or address in bridges:
            yield derived(clue, "connect.to-unreachable-address", address=address)
    known = {(clue.host, clue.value("interface")) for clue in book.all("net.interface")}
    for clue in book.all("env.NCCL_SOCKET_IFNAME", "env.GLOO_SOCKET_IFNAME"):
        names = [name.lstrip("=^") for name in clue.value("value").split(",")]
        here = {name for host, name in known if host == clue.host}
        if (
            here
            and not clue.value("value").startswith("^")
            and not any(known_name.startswith(name) for name in names for known_name in here)
        ):
            yield derived(clue, "bootstrap.interface-absent")


def _unreachable(address: str) -> bool:
    if address in ("localhost", "ip6-localhost"):
        return True
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.is_loopback or parsed.is_link_local or address.startswith(BRIDGE_DEFAULTS)


def firewall(book: ClueBook) -> Iterator[Clue]:
    """A failed connection to a sound address together with a rule that rejects or a session that expires."""
    failed = [
        clue
        for clue in book.all(
            "socket.no-route", "socket.timed-out", "store.timeout", "socket.reset", "socket.no-route-bare"
        )
        if not _unreachable(clue.value("address") or clue.value("address2"))
    ]  # fmt: skip
    rules = book.all(
        "firewall.reject", "firewall.zone", "firewall.blocked-log", "firewall.conntrack", "firewall.network-policy"
    )
    yield from _selective(book)
    if failed and rules:
        yield derived(failed[0], "connect.blocked", rules[0])


def _selective(book: ClueBook) -> Iterator[Clue]:
    """The same address answers on one port and not on another."""
    opened = {clue.value("address") or clue.value("address2"): clue for clue in book.all("net.port-open")}
    for clue in book.all("net.port-failed"):
        if (good := opened.get(clue.value("address"))) is not None and "refused" not in clue.lines[0].text:
            yield derived(clue, "connect.selective", good, open_port=good.value("port") or good.value("port2"))


def gids(book: ClueBook) -> Iterator[Clue]:
    """The GID index in use against the tables of each host."""
    rows: dict[tuple[str | None, str], dict[str, Clue]] = defaultdict(dict)
    for row in book.all("gid.row"):
        rows[row.host, row.value("device")][row.value("index")] = row
    for setting in book.all("env.NCCL_IB_GID_INDEX"):
        index = setting.value("value")
        for (host, device), table in rows.items():
            if host is not None and setting.host is not None and host != setting.host:
                continue
            named = table.get(index)
            if named is None:
                shown = next(
                    (one for one in table.values() if one.value("kind") == "routable"), next(iter(table.values()))
                )
                yield derived(
                    setting,
                    "gid.index-absent",
                    shown,
                    device=device,
                    good=_routable(table),
                    index=index,
                    node=host or "",
                )
            elif named.value("kind") != "routable":
                yield _not_routable(setting, named, table, index=index, node=host or "")
    for chosen in book.all("rdma.gid-selected"):
        device, index = (chosen.value(key) or chosen.value(f"{key}2") for key in ("device", "index"))
        named = rows.get((chosen.host, device), {}).get(index) or rows.get((None, device), {}).get(index)
        if named is not None and named.value("kind") != "routable":
            yield _not_routable(chosen, named, rows[named.host, named.value("device")], index=index)
    for context in book.all("rdma.context-gid"):
        gid = context.value("gid").lower()
        if context.value("lid") == "0" and gid.startswith(("fe80", "fe:80")):  # no LID: Ethernet, not InfiniBand
            yield derived(context, "gid.link-local-in-use", local_gid=gid)
    yield from _differing_indices(book, rows)
    for clue in book.all("rdma.modify-qp-failed"):
        if clue.value("local_gid").startswith("fe80") or clue.value("remote_gid").startswith("fe80"):
            yield derived(clue, "gid.link-local-in-use")


def _routable(table: Mapping[str, Clue]) -> str:
    """The indices of a port that hold a routable RoCE v2 address."""
    return ",".join(row.value("index") for row in table.values() if row.value("kind") == "routable")


def _not_routable(chosen: Clue, named: Clue, table: Mapping[str, Clue], **values: object) -> Clue:
    """``gid.index-not-routable``: the index that was chosen names ``named``, a row of ``table``."""
    return derived(
        chosen, "gid.index-not-routable", named, device=named.value("device"), good=_routable(table),
        kind=named.value("kind"), **values,
    )  # fmt: skip


def _differing_indices(book: ClueBook, rows: dict[tuple[str | None, str], dict[str, Clue]]) -> Iterator[Clue]:
    routable: dict[str, dict[str, Clue]] = defaultdict(dict)
    for (host, device), table in rows.items():
        for row in table.values():
            if row.value("kind") == "routable" and host:
                routable[device].setdefault(host, row)
    for device, hosts in routable.items():
        if len({row.value("index") for row in hosts.values()}) > 1:
            some = list(hosts.values())
            text = ", ".join(f"{host} {row.value('index')}" for host, row in hosts.items())
            yield derived(some[0], "gid.index-differs", *some[1:3], device=device, hosts=text)
    listed = book.all("gid.host-index")
    if len({clue.value("index") for clue in listed}) > 1:
        text = ", ".join(f"{clue.value('node')} {clue.value('index')}" for clue in listed)
        wrong = [
            clue for clue in listed for setting in book.all("env.NCCL_IB_GID_INDEX")
            if clue.value("index") != setting.value("value") and setting.host in (None, clue.value("node"))
        ]  # fmt: skip
        first = wrong[0] if wrong else listed[0]
        yield derived(
            first, "gid.index-differs", *(clue for clue in listed if clue is not first), hosts=text, device=""
        )


def devices(book: ClueBook) -> Iterator[Clue]:
    """Which HCAs NCCL uses against what it was told, and against the peers."""
    uses = [(clue, used_devices(clue)) for clue in book.all("rdma.devices-used")]
    for setting in book.all("env.NCCL_IB_HCA"):
        value = setting.value("value")
        if value.count("^") > 1 or ("^" in value and not value.startswith("^")):
            yield derived(setting, "hca.list-malformed")
        names = [re.sub(r":\d+$", "", name.lstrip("^=")) for name in value.split(",") if name]
        if "^" not in value:
            yield from _other_networks(book, setting, names)
        for used, actual in uses:
            if setting.host and used.host and setting.host != used.host:
                continue
            yield from _against_list(setting, used, names, actual, exclude=value.startswith("^"), exact="=" in value)
    for clue, actual in uses:
        kinds = {kind for _, kind in actual}
        if len(kinds) > 1:
            yield derived(clue, "hca.mixed-link-layers", kinds=" and ".join(sorted(kinds)))
    by_host: dict[str, Clue] = {}
    orders: dict[str, list[str]] = {}
    for clue, actual in uses:
        if clue.host and clue.host not in by_host:
            by_host[clue.host], orders[clue.host] = clue, [name for name, _ in actual]
    if len({tuple(order) for order in orders.values()}) > 1:
        some = list(by_host.values())
        yield derived(
            some[0],
            "hca.order-differs",
            some[1],
            hosts="; ".join(f"{host}: {' '.join(order)}" for host, order in orders.items()),
        )
    yield from _wrong_pairs(book)


FABRIC_ROLES = ("fabric", "compute")


def _other_networks(book: ClueBook, setting: Clue, names: list[str]) -> Iterator[Clue]:
    """``hca.other-network``: a name of the list is a port of another network on one of the hosts."""
    roles = [role for role in book.all("port.role") if setting.host in (None, role.host)]
    for role in roles:
        if role.value("device") not in names or role.value("role") in FABRIC_ROLES:
            continue
        here = [one for one in roles if one.host == role.host and one.value("role") in FABRIC_ROLES]
        if here:
            fabric = ", ".join(one.value("device") for one in here)
            yield derived(
                setting, "hca.other-network", role, device=role.value("device"), role=role.value("role"),
                node=role.host or "this node", fabric=fabric,
            )  # fmt: skip


def used_devices(clue: Clue) -> list[tuple[str, str]]:
    """Name and link layer of each device of a ``NET/IB : Using`` line, in its order."""
    return re.findall(r"\[\d+\](\w+):\d+/(\w+)", clue.value("devices"))


def _against_list(
    setting: Clue, used: Clue, names: list[str], actual: list[tuple[str, str]], *, exclude: bool, exact: bool
) -> Iterator[Clue]:
    on = [name for name, _ in actual]
    if exclude:
        still = [name for name in on if name in names]
        if still:
            yield derived(setting, "hca.excluded-still-used", used, still=", ".join(still))
        return
    extra = [name for name in on if name not in names and any(name.startswith(one) for one in names)]
    if extra and not exact and not all(re.fullmatch(r"[a-z]+\d*_?", name) for name in names):
        yield derived(setting, "hca.prefix-takes-more", used, extra=", ".join(extra))
    missing = [name for name in names if on and not any(one.startswith(name) for one in on)]
    if missing:
        yield derived(setting, "hca.listed-not-used", used, missing=", ".join(missing))


def _wrong_pairs(book: ClueBook) -> Iterator[Clue]:
    """A queue pair between networks: another device of ours is in the peer's network, or none is."""
    rows = book.all("gid.row")
    for clue in book.all("rdma.modify-qp-failed"):
        local, remote = _mapped(clue.value("local_gid")), _mapped(clue.value("remote_gid"))
        if local is None or remote is None or local.rsplit(".", 1)[0] == remote.rsplit(".", 1)[0]:
            continue
        ours = [
            row
            for row in rows
            if row.value("ipv4").rsplit(".", 1)[0] == remote.rsplit(".", 1)[0]
            and row.value("device") != clue.value("device")
        ]
        if ours:
            yield derived(
                clue, "qp.other-device-in-network", ours[0], local=local, remote=remote, other=ours[0].value("device")
            )
        else:
            yield derived(clue, "qp.networks-differ", local=local, remote=remote)


def _mapped(gid: str) -> str | None:
    found = re.search(r"(\d+\.\d+\.\d+\.\d+)$", gid)
    if found:
        return found.group(1)
    try:
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped if gid else None
    except ValueError:
        return None
    return str(mapped) if mapped else None


def gdr(book: ClueBook) -> Iterator[Clue]:
    """``gdr.one-sided``: channels of one host lack GDRDMA while another's have it."""
    direct = {clue.host for clue in book.all("nccl.channel-gdr")}
    staged = [clue for clue in book.all("nccl.channel-no-gdr") if clue.host not in direct]
    if direct and staged:
        yield derived(staged[0], "gdr.one-sided", other=next(iter(direct)))
    elif staged:
        yield derived(staged[0], "gdr.absent")
    missing = book.all("peermem.missing")
    if missing and book.all("peermem.loaded"):
        hosts = {clue.host for clue in missing}
        yield derived(missing[0], "peermem.one-host-lacks", node=next(iter(hosts)))


def hcas_on_the_host(book: ClueBook) -> Iterator[Clue]:
    """``rdma.host-has-hca``: the host lists HCAs while the process finds none."""
    shown = book.all("port.state", "gid.row", "lspci.mellanox", "hca.listed")
    if book.has("rdma.no-device") and shown:
        yield derived(shown[0], "rdma.host-has-hca")


JOINS = (bootstrap, firewall, gids, devices, gdr, hcas_on_the_host)
