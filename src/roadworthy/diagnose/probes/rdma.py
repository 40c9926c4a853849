"""RDMA probes: GID tables, port state and rate, counters, QoS, reachability and bandwidth matrices."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, Document, Line

GID_ROW = re.compile(
    r"^\s*(?P<device>[a-zA-Z][\w]*)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4})"
    r"\s+(?:(?P<ipv4>\d+\.\d+\.\d+\.\d+)\s+)?(?P<version>v[12])(?:\s+(?P<netdev>\S+))?"
)
GID_TYPED = re.compile(r"^(?P<gid>[0-9a-fA-F:]+)\s+(?:type:?\s*)?(?P<type>.*\bv[12]\b.*)$")
GID_SYSFS = re.compile(
    r"infiniband/(?P<device>\w+)/ports/(?P<port>\d+)/(?P<what>gids|gid_attrs/types|gid_attrs/ndevs)/(?P<index>\d+)[: \t=]+(?P<value>.+)$"
)
GID_BARE = re.compile(r"^\s*(?P<index>\d{1,3})\s+(?P<gid>(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4})(?:\s+(?P<version>.+))?$")
GID_FOLDER = re.compile(r"infiniband/(?P<device>\w+)/ports/(?P<port>\d+)")
GID_LIST = re.compile(r"^(?P<host>[a-zA-Z][\w.-]*\d[\w.-]*)[\s:=]+(?:gid[_ ]?index[\s:=]+)?(?P<index>\d{1,3})\s*$")


def gid_tables(document: Document) -> Iterator[Clue]:
    """``gid.row`` for each row of `show_gids` or of sysfs, ``gid.host-index`` for a list of hosts and indices."""
    types: dict[tuple[str, str], tuple[str, Line]] = {}
    gids: dict[tuple[str, str], tuple[str, Line]] = {}
    lists = "gid" in (document.file + document.text[:400]).lower()
    folder: re.Match[str] | None = None
    for line in document.numbered():
        folder = GID_FOLDER.search(line.text) or folder
        if found := GID_ROW.match(line.text):
            row = {key: value or "" for key, value in found.groupdict().items()}
            yield document.clue("gid.row", line, **row, kind=gid_kind(row["gid"], row["version"]))
        elif (found := GID_BARE.match(line.text)) and set(found["gid"]) - set("0:"):
            version = "v2" if "v2" in (found["version"] or "").lower() else "v1"
            yield document.clue(
                "gid.row", line, device=folder["device"] if folder else "", port=folder["port"] if folder else "1",
                index=found["index"], gid=found["gid"], ipv4="", version=version, netdev="",
                kind=gid_kind(found["gid"], version),
            )  # fmt: skip
        elif found := GID_SYSFS.search(line.text):
            key = (found["device"], found["index"])
            if typed := GID_TYPED.match(found["value"].strip()):
                gids[key] = (typed["gid"], line)
                types[key] = (typed["type"], line)
                continue
            (gids if found["what"] == "gids" else types)[key] = (found["value"].strip(), line)
        elif lists and (found := GID_LIST.match(line.text)):
            clue = document.clue("gid.host-index", line, index=found["index"], node=found["host"])
            yield clue
    for (device, index), (gid, line) in gids.items():
        version = "v2" if "v2" in types.get((device, index), ("", line))[0].lower() else "v1"
        if set(gid) - set("0:"):
            yield document.clue(
                "gid.row", line, device=device, port="1", index=index, gid=gid, ipv4="", version=version, netdev="",
                kind=gid_kind(gid, version),
            )  # fmt: skip


def gid_kind(gid: str, version: str) -> str:
    """``routable`` (RoCE v2 with an address of the fabric), ``link-local``, or ``v1``."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return "unknown"
    mapped = address.ipv4_mapped
    if address.is_link_local or (mapped is not None and mapped.is_link_local):
        return "link-local"
    return "routable" if version == "v2" else "v1"


def port_states(document: Document) -> Iterator[Clue]:
    """``port.state`` of `ibstat`, `ibstatus`, `ethtool`, `mlxlink`: device, rate in Gb/s, state, link layer."""
    device = ""
    seen: dict[str, str] = {}
    first: Line | None = None
    for line in document.numbered():
        text = line.text.strip()
        if found := re.match(
            r"(?:CA '(?P<a>\w+)'|Infiniband device '(?P<b>\w+)' port \d+ status|Settings for (?P<c>[\w.@-]+):|"
            r"hca_id:\s*(?P<d>\w+)|Device:\s*(?P<e>\w+))", text
        ):  # fmt: skip
            if seen and first is not None:
                yield document.clue("port.state", first, device=device, **seen)
            device, seen, first = next(name for name in found.groups() if name), {}, None
            continue
        for key, pattern in PORT_FIELDS:
            if (found := re.match(pattern, text, re.IGNORECASE)) and key not in seen:
                seen[key] = found.group(1).strip()
                if key == "rate" or first is None:
                    first = line
    if seen and first is not None:
        yield document.clue("port.state", first, device=device or document.host or "", **seen)
    for line in document.numbered():
        if (
            found := re.match(
                r"\s*(?:link )?(?P<device>\w+)/\d+\s+state\s+(?P<state>\w+)\s+physical_state\s+(?P<phys>\w+)", line.text
            )
        ) or (
            found := re.match(
                r"^(?P<device>\w+)[,\s:]+(?:port \d+[,\s:]+)?(?:rate|speed)[=:\s]+(?P<rate>\d+)",
                line.text,
                re.IGNORECASE,
            )
        ):  # rdma link
            yield document.clue("port.state", line, **found.groupdict())


def port_roles(document: Document) -> Iterator[Clue]:
    """``port.role``: a listed port whose remark says what its network is for."""
    for line in document.numbered():
        if found := re.match(
            r"^\s*(?:link )?(?P<device>(?:mlx5|bnxt_re|irdma|ionic|rocep)\w*?)(?:/\d+)?\s.*#.*?"
            r"\b(?P<role>fabric|compute|storage|management|mgmt|oob|bmc|in-band)\b",
            line.text, re.IGNORECASE,
        ):  # fmt: skip
            yield document.clue("port.role", line, device=found["device"], role=found["role"].lower())


PORT_FIELDS = (
    ("rate", r"rate:\s+(\d+)"),
    ("rate", r"(?:Speed|Active speed)\s*:\s+(\d+)\s*(?:Mb/s|Gb/s|G)"),
    ("rate_text", r"(?:rate|Speed)\s*:\s+(\S.*)$"),
    ("state", r"state:\s+(?:\d+:\s+)?(\w+)"),
    ("state", r"Link detected:\s+(\w+)"),
    ("phys", r"(?:Physical state|phys state|phys_state):\s+(?:\d+:\s+)?(\w+)"),
    ("link_layer", r"link[_ ]layer:\s+(\w+)"),
    ("active_mtu", r"active_mtu:\s+(\d+)"),
    ("netdev", r"netdev:\s+(\S+)$"),
    ("mtu", r"netdev_mtu:\s+(\d+)$"),
    ("numa", r"numa_node:\s+(-?\d+)$"),
    ("width", r"(?:Width|active_width)\s*:\s+(\S+)"),
    ("type", r"CA type:\s+(\S+)"),
)

PLAN_RATE = re.compile(
    r"(?:expected|planned|plan|nominal|inventory|should be|rated)[\w_ ]*?(?:rate|speed|link)?[\w_]*?\s*[=:]?\s*(?P<rate>\d{2,4})\s*(?:G|gbps|Gb/s|Gbit|\b)",
    re.IGNORECASE,
)


def planned_rates(document: Document) -> Iterator[Clue]:
    """``plan.rate`` where an inventory or a plan says what a port should run at."""
    if len(document.text) > 20_000:
        return
    yield from _planned_columns(document)
    for line in document.numbered():
        if not re.search(r"rate|speed|gbps|Gb/s|NDR|HDR|EDR", line.text, re.IGNORECASE) or "bandwidth" in line.text:
            continue
        if found := PLAN_RATE.search(line.text):
            yield document.clue("plan.rate", line, rate=found["rate"])


PLANNED = re.compile(r"^(?:planned|expected|nominal|rated)\w*(?:rate|speed|gbps|gbit)\w*$", re.IGNORECASE)


def _planned_columns(document: Document) -> Iterator[Clue]:
    """The same of an inventory that is a table, even of a single row."""
    column: int | None = None
    for line in document.numbered():
        cells = [cell.strip() for cell in re.split(r"[,\t;]", line.text)]
        named = next((at for at, cell in enumerate(cells) if PLANNED.match(cell)), None)
        if named is not None:
            column = named
        elif column is not None and len(cells) > column and re.fullmatch(r"\d{2,4}", cells[column]):
            yield document.clue("plan.rate", line, rate=cells[column])


COUNTER = re.compile(
    r"(?:^|[/\s\"'])(?P<name>(?:[rt]x_|np_|rp_|link_|symbol_|port_|out_of_|packet_seq|local_ack|implied_nak|rnr_nak|roce_|req_|resp_|duplicate_|local_link|excessive_|vl15|unicast_|multicast_)[\w]+|SymbolErrorCounter|LinkDownedCounter|LinkErrorRecoveryCounter|PortRcvErrors|PortXmitDiscards|PortRcvSwitchRelayErrors|SymbolErrors|LinkDowned|LinkErrorRecovery|RcvErrors|XmtDiscards)[\s:=.\]]+(?:\.*\s*)?(?P<value>\d+)"
)


def counters(document: Document) -> Iterator[Clue]:
    """``counter.NAME`` with the value, and the growth where the same counter is read twice (t0/t1, before/after)."""
    for line in document.numbered():
        device = re.search(r"infiniband/(\w+)/", line.text)
        for found in COUNTER.finditer(line.text):
            name = found["name"].lower()
            yield document.clue(
                f"counter.{COUNTER_ALIASES.get(name, name)}", line, value=found["value"], counter=found["name"],
                device=device.group(1) if device else "",
            )  # fmt: skip


COUNTER_ALIASES = {
    "linkdownedcounter": "link_downed", "linkdowned": "link_downed", "symbolerrorcounter": "symbol_error",
    "symbolerrors": "symbol_error", "symbol_errors": "symbol_error", "linkerrorrecoverycounter": "link_error_recovery",
    "linkerrorrecovery": "link_error_recovery", "portrcverrors": "port_rcv_errors", "rcverrors": "port_rcv_errors",
    "portxmitdiscards": "port_xmit_discards", "xmtdiscards": "port_xmit_discards",
}  # fmt: skip


def quality_of_service(document: Document) -> Iterator[Clue]:
    """``qos.trust`` and ``qos.pfc-off`` from `mlnx_qos`."""
    for line in document.numbered():
        if (found := re.search(r"[Pp]riority trust(?: state)?:?\s*(?P<state>\w+)", line.text)) or (
            found := re.search(r"\btrust[ =:]+(?P<state>pcp|dscp)\b", line.text)
        ):
            yield document.clue(f"qos.trust-{found['state'].lower()}", line, state=found["state"])
        elif found := re.match(r"\s*enabled\s+(?P<bits>[01](?:\s+[01]){7})", line.text):
            name = "qos.pfc-on" if "1" in found["bits"] else "qos.pfc-off"
            yield document.clue(name, line, bits=found["bits"])
        elif re.search(r"(?:PFC|pfc)\s*(?:is|:|=)?\s*(?:disabled|off|not configured|0(?:[ ,]+0){7})", line.text):
            yield document.clue("qos.pfc-off", line)
        elif re.search(r"(?:PFC|pfc).*(?:watchdog|storm).*(?:detect|restor|drop|triggered)", line.text):
            yield document.clue("qos.pfc-storm", line)
        elif re.search(r"(?:ECN|ecn|DCQCN|dcqcn)\s*(?:is|:|=)?\s*(?:disabled|off|0\b|not configured)", line.text):
            yield document.clue("qos.ecn-off", line)


def matrices(document: Document) -> Iterator[Clue]:
    """``rail.isolated`` from a reachability matrix, ``matrix.slow-pair`` from a pairwise bandwidth matrix."""
    lines = list(document.numbered())
    for number, line in enumerate(lines):
        row = re.match(r"^\s*(?P<label>(?:local |from )?[\w.-]+)\s+(?P<cells>(?:[01](?:\s+|$)){3,})$", line.text)
        if row and re.search(r"rail|rping|ping|reach", document.text[:600], re.IGNORECASE):
            cells = row["cells"].split()
            if cells.count("1") == 1:
                yield document.clue("rail.isolated", line, row=row["label"].strip())
        header = re.match(r"^\s*(?:[^\d\s]+\s+)?(?P<names>[A-Za-z][\w-]*\d(?:\s+[A-Za-z][\w-]*\d){2,})\s*$", line.text)
        if header:
            yield from _slow_pairs(document, header["names"].split(), lines[number + 1 : number + 40])
    for line in lines:
        if STATIC_HASH.search(line.text):
            yield document.clue("fabric.static-hash", line)
    yield from _pair_list(document, lines)
    yield from _rails(document, lines)
    yield from _unreached(document, lines)


STATIC_HASH = re.compile(
    r"(?<!no )(?:\bECMP\b|hash (?:collision|polari[sz]ation)|static routing)(?!.*adaptive)", re.IGNORECASE
)
DEVICE_PAIR = re.compile(
    r"^\W*(?P<one>[A-Za-z]\w*?\d+)\s*(?:<->|->|=>|to|,|\s)\s*(?P<two>[A-Za-z]\w*?\d+)\b[\s:,|=]+(?P<said>.+)$"
)
UNREACHED = re.compile(r"fail|time.?out|unreachable|no route|error|exceeded|0(?:\.0+)? ?(?:[GM]b|$)", re.IGNORECASE)


REACHED_ROW = re.compile(
    r"^\s*(?P<one>[A-Za-z][\w.-]*\d)\s+(?P<cells>(?:(?:[xX]|-|ok|OK|\d+(?:\.\d+)?)(?:\s+|$)){3,})$"
)


def _unreached(document: Document, lines: list[Line]) -> Iterator[Clue]:
    """``pairs.unreachable`` from a matrix in which some pairs could not connect at all (x)."""
    rows = [(line, found["cells"].split()) for line in lines if (found := REACHED_ROW.match(line.text))]
    failed = [line for line, cells in rows if any(cell in ("x", "X") for cell in cells)]
    passed = any(re.match(r"\d|ok", cell, re.IGNORECASE) for _, cells in rows for cell in cells)
    if len(rows) >= 3 and len(failed) >= 2 and passed:
        yield document.clue("pairs.unreachable", *failed[:3])


def _rails(document: Document, lines: list[Line]) -> Iterator[Clue]:
    """``rail.isolated`` from a list of device pairs: each device reaches its namesake and no other."""
    same: list[bool] = []
    cross: list[tuple[bool, Line]] = []
    for line in lines:
        found = DEVICE_PAIR.match(line.text)
        if found and re.match(r"\D+", found["one"])[0] == re.match(r"\D+", found["two"])[0]:  # type: ignore[index]
            reached = UNREACHED.search(found["said"]) is None and re.search(r"\d|ok|pass", found["said"]) is not None
            if found["one"] == found["two"]:
                same.append(reached)
            else:
                cross.append((reached, line))
    if same and all(same) and len(cross) >= 2 and not any(reached for reached, _ in cross):
        yield document.clue("rail.isolated", *(line for _, line in cross[:2]), row=cross[0][1].text.strip()[:80])


def _slow_pairs(document: Document, names: list[str], rows: list[Line]) -> Iterator[Clue]:
    cells: list[tuple[float, str, str, Line]] = []
    for line in rows:
        parts = line.text.split()
        if not parts or parts[0] not in names:
            break
        values = parts[1:]
        for name, value in zip(names, values, strict=False):
            if name != parts[0] and re.fullmatch(r"\d+(?:\.\d+)?", value):
                cells.append((float(value), parts[0], name, line))
    yield from _below_most(document, cells)


PAIR = re.compile(
    r"^\W*(?P<one>(?:[A-Za-z][\w.-]*?)?\d+)\s*(?:<->|<=>|->|--|-|,| to | and |\s)\s*(?P<two>(?:[A-Za-z][\w.-]*?)?\d+)"
    r"[\s:,=|]+(?:bw|busbw|avg|avg_busbw)?[\s:=]*(?P<value>\d+(?:\.\d+)?)\s*(?:GB/s|Gb/s|Gbps|Gbit/s|MB/s)?\s*(?:,\s*[A-Za-z]\w*\s*)*(?:#.*|\(.*)?$",
    re.IGNORECASE,
)


def _pair_list(document: Document, lines: list[Line]) -> Iterator[Clue]:
    if not re.search(r"pair|busbw|bandwidth|GB/s|Gb/s|bw", document.file + document.text[:2000], re.IGNORECASE):
        return
    cells = [
        (float(found["value"]), found["one"], found["two"], line)
        for line in lines
        if (found := PAIR.search(line.text)) and found["one"] != found["two"]
    ]
    yield from _below_most(document, cells)


def _below_most(document: Document, cells: list[tuple[float, str, str, Line]]) -> Iterator[Clue]:
    """Pairs that run below 70 % of the upper half; fewer than half of all, or it is not about pairs."""
    if len(cells) < 3:
        return
    good = sorted(value for value, *_ in cells)[-max(1, len(cells) // 3)]
    slow = [cell for cell in cells if cell[0] < 0.7 * good]
    if slow and len(slow) <= 0.6 * len(cells):
        for value, one, two, line in slow[:4]:
            yield document.clue("matrix.slow-pair", line, value=value, one=one, two=two, usual=good)


def mtus(document: Document) -> Iterator[Clue]:
    """``mtu.interface`` of `ip link`, and ``mtu.too-long`` of a ping that may not be cut."""
    uncut = False
    for line in document.numbered():
        if re.search(r"ping\b.*-M do.*-s \d{4}|ping\b.*-s \d{4}.*-M do", line.text):
            uncut = True
        elif uncut and re.search(r"\b0 received|100% packet loss", line.text):
            yield document.clue("mtu.too-long", line)
            uncut = False
        if re.match(r"^\s*\d{4,}\s+.*(?:completion with error|Failed status|failed)", line.text):
            yield document.clue("mtu.large-messages-fail", line)
        if found := re.match(
            r"^(?:(?P<host>[\w.-]+): )?\d+: (?P<device>[\w.@-]+?)(?:@\S+)?: .*\bmtu (?P<mtu>\d+)", line.text
        ):
            yield document.clue("mtu.interface", line, device=found["device"], mtu=found["mtu"])
        elif re.search(r"[Mm]essage too long|[Ff]rag(?:mentation)? needed|local error: message", line.text):
            yield document.clue("mtu.too-long", line)
        elif found := re.search(r"active_mtu[:=\s]+(?P<mtu>\d+)", line.text):
            yield document.clue("mtu.active", line, **found.groupdict())
        elif found := re.search(
            r"(?:switch|leaf|spine|tor|port|path|swp\d|Eth(?:ernet)?\d)[\w\s./:-]*mtu[:=\s]+(?P<mtu>\d+)",
            line.text,
            re.IGNORECASE,
        ):
            yield document.clue("mtu.switch", line, **found.groupdict())


PROBES = (gid_tables, port_states, port_roles, planned_rates, counters, quality_of_service, matrices, mtus)
