"""Host probes: limits, mounts, shared memory, modules, processors, clocks, processes, topology."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, Document, Line

MEMLOCK_SMALL_BYTES = GIB
"""A registration of NCCL's buffers takes tens of MiB a channel; whoever limits at all limits far below this."""

CAP_IPC_LOCK = 1 << 14
"""linux/capability.h; the kernel's RDMA core asks for it before it looks at the limit."""

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def size_bytes(text: str) -> float | None:
    """Bytes of ``64M``, ``1.3G``, ``24Gi``, ``512 kB``; None when it is no size."""
    found = re.match(r"^\s*([\d.]+)\s*([KMGTkmgt]?)i?B?\s*$", text)
    try:
        return float(found.group(1)) * UNITS[found.group(2).upper()] if found else None
    except ValueError:
        return None


def limits(document: Document) -> Iterator[Clue]:
    """``limit.memlock-small``, ``limit.memlock-unlimited``, ``limit.open-files-small`` of `ulimit -a` or /proc/limits;
    ``limit.ipc-lock`` where a process may lock memory whatever its limit (CapEff of /proc/PID/status)."""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]{16})\s*$", document.text, re.MULTILINE)
    if capabilities and int(capabilities.group(1), 16) & CAP_IPC_LOCK:
        at = document.text.count("\n", 0, capabilities.start()) + 1
        yield document.clue("limit.ipc-lock", document.line(at))
    for line in document.numbered():
        if found := re.search(r"[Mm]ax locked memory\s*(?:\((?P<unit>\w+), -l\))?\s+(?P<soft>\w+)", line.text):
            yield from _memlock(document, line, found["soft"], 1024 if found["unit"] == "kbytes" else 1)
        elif found := re.search(
            r"(?:ulimit -l|memlock)\)?(?: \w+)?[\s:=]+(?P<soft>unlimited|-1|\d+)\s*$", line.text, re.IGNORECASE
        ):
            yield from _memlock(document, line, found["soft"], 1024)
        elif found := re.search(r"VmLck|LimitMEMLOCK=(?P<soft>\w+)", line.text):
            if found["soft"]:
                yield from _memlock(document, line, found["soft"], 1)
        elif (found := re.search(r"(?:[Mm]ax open files|open files\s+\(-n\))\s+(?P<soft>\d+)", line.text)) and int(
            found["soft"]
        ) <= 4096:
            yield document.clue("limit.open-files-small", line, limit=found["soft"])


def _memlock(document: Document, line: Line, soft: str, unit_bytes: int) -> Iterator[Clue]:
    if soft in ("unlimited", "infinity", "-1"):
        yield document.clue("limit.memlock-unlimited", line)
    elif soft.isdigit() and int(soft) * unit_bytes < MEMLOCK_SMALL_BYTES:
        yield document.clue("limit.memlock-small", line, limit=soft, bytes=int(soft) * unit_bytes)


DF_ROW = re.compile(
    r"^(?P<source>\S+)\s+(?:(?P<type>[a-z]\w+)\s+)?(?P<size>[\d.]+[KMGTP]?i?)\s+(?P<used>[\d.]+[KMGTP]?i?)\s+"
    r"(?P<available>[\d.]+[KMGTP]?i?)\s+(?P<percent>\d+)%\s+(?P<mount>/\S*)"
)


def mounts(document: Document) -> Iterator[Clue]:
    """``shm.small``, ``shm.full``, ``shm.roomy``, ``disk.full`` of `df`; ``storage.network-fs`` of `mount`."""
    kilo = 1024 if "1K-blocks" in document.text else 1
    for line in document.numbered():
        if found := DF_ROW.match(line.text):
            size, available = (size_bytes(found[key]) or 0 for key in ("size", "available"))
            yield from _mount(document, line, found.groupdict(), size * kilo, available * kilo)
            if (found["type"] or "").startswith(("nfs", "lustre", "ceph", "gpfs", "beegfs", "fuse")):
                yield document.clue("storage.network-fs", line, type=found["type"])
        elif found := re.search(
            r"(?:\btype |\bfstype[=: ]+|Type:\s+|^\S+ /\S+ )(?P<type>nfs4?|lustre|ceph|gpfs|beegfs|wekafs|fuse\.\w+|cifs|9p)\b", line.text
        ):  # fmt: skip
            yield document.clue("storage.network-fs", line, type=found["type"])
        elif found := re.search(
            r"(?:ShmSize\"?:|shm_size:|--shm-size[= ]|\bshm\S*\s+size[=:])\s*\"?(?P<size>[\d.]+ ?[kKmMgGtT]?)i?[bB]?",
            line.text,
        ):
            size = size_bytes(found["size"].replace(" ", "")) or 0
            if 0 < size <= GIB and "passing" not in line.text:
                yield document.clue("shm.small", line, size=found["size"], bytes=int(size))
        elif found := re.match(r"^(?:tmpfs|shm) (?:on )?/dev/shm .*size=(?P<size>\d+[kKmMgG]?)", line.text):
            size = size_bytes(found["size"]) or 0
            if 0 < size <= GIB:
                yield document.clue("shm.small", line, size=found["size"], bytes=int(size))


def _mount(document: Document, line: Line, row: dict[str, str], size: float, available: float) -> Iterator[Clue]:
    percent = int(row["percent"])
    if row["mount"] == "/dev/shm":
        if size <= GIB:
            yield document.clue("shm.small", line, size=row["size"], bytes=int(size))
        elif percent >= 90:
            yield document.clue("shm.full", line, size=row["size"], percent=percent)
        else:
            yield document.clue("shm.roomy", line, size=row["size"], percent=percent)
    elif percent >= 95 and available < 20 * GIB and not row["source"].startswith(("/dev/loop", "overlay-ro")):
        yield document.clue("disk.full", line, mount=row["mount"], percent=percent, available=row["available"])


SHM_FILE = re.compile(
    r"(?P<name>(?:vllm_offload_|sgl_shm_|nccl-|psm_|plasma|torch_|__KMP|sem\.|vader_segment|cuda\.shm|mp-|wnsm_|shm_)[\w.-]*)"
)


def shared_memory_files(document: Document) -> Iterator[Clue]:
    """``shm.files``: a listing of /dev/shm with files that outlive their process; how many there are."""
    if not re.search(r"shm", document.file + document.text[:4000]):
        return
    rows = [(line, found) for line in document.numbered() if (found := _listed(line.text))]
    if rows:
        yield document.clue("shm.files", *(line for line, _ in rows[:3]), count=len(rows), name=rows[0][1])
    for line in document.numbered():
        if re.search(
            r"(?:no (?:process|owner)|not (?:open|in use|held|mapped)|0 processes|no live|orphan|fuser.*: *$)",
            line.text,
            re.IGNORECASE,
        ) or (re.match(r"^[$#] ?(?:sudo )?(?:lsof|fuser)\b.*shm", line.text) and _said_nothing(document, line)):
            yield document.clue("shm.no-owner", line)
        elif re.match(r"^#? ?\d+ files? .*(?:sgl_shm|nccl|psm|offload|shm)", line.text):
            yield document.clue("shm.files", line, count=re.findall(r"\d+", line.text)[0], name="")


def _said_nothing(document: Document, line: Line) -> bool:
    """Whether the command of ``line`` printed nothing before the next prompt or the end."""
    rest = document.numbered()[line.number :]
    return not rest or re.match(r"^\s*(?:[$#]|\(no output\)|\(nothing\)|$)", rest[0].text) is not None


def _listed(text: str) -> str | None:
    if not re.match(r"^(?:[-l][rwxsStT-]{9}|\d+\s|/dev/shm/|\s*[\d.]+[KMG]\s)", text):
        return None
    found = SHM_FILE.search(text)
    return found["name"] if found else None


def modules(document: Document) -> Iterator[Clue]:
    """Peer memory: loaded, missing, renamed; and the options that NVSHMEM needs."""
    text = document.text
    listing = re.search(r"^nvidia\s+\d+\s+\d+", text, re.MULTILINE)
    names = {line.text.split()[0] for line in document.numbered() if re.match(r"^\w+\s+\d+\s+\d+", line.text)}
    for line in document.numbered():
        if (
            re.match(r"^nvidia_peermem\s+\d+|^/sys/module/nvidia_peermem/version", line.text)
            and "cannot access" not in line.text
        ):
            yield document.clue("peermem.loaded", line)
        elif re.match(r"^nv_peer_mem\s+\d+", line.text):
            yield document.clue("peermem.legacy", line)
        elif re.search(
            r"(?:cannot access|No such file).*(?:nvidia_peermem|nv_mem)|(?:nvidia_peermem|nv_mem|nvidia-peermem).*(?:No such file|not found|[Ii]nvalid argument|could not insert|inactive)",
            line.text,
        ):
            name = "peermem.sysfs-missing" if "memory_peers" in line.text else "peermem.missing"
            yield document.clue(name, line)
        elif found := re.search(r"NVreg_\w+|PeerMappingOverride", line.text):
            yield document.clue("nvreg.options", line, option=found.group())
    if listing and not names & {"nvidia_peermem", "nv_peer_mem"} and re.search(r"mlx5|ib_core", text):
        yield document.clue("peermem.missing", document.line(text.count("\n", 0, listing.start()) + 1))


def processors(document: Document) -> Iterator[Clue]:
    """``cpu.throttled`` of cpu.stat, ``cpu.quota`` of cpu.max, threads and load against cores, ``cpu.steal``."""
    for line in document.numbered():
        kept = re.findall(r"\b(nr_periods|nr_throttled|throttled_usec|throttled_time)[\s:=]+(\d+)", line.text)
        for key, value in kept:
            yield document.clue(f"cpu.{key}", line, value=value)
        if kept:
            continue
        if found := re.match(r"^(?:cpu\.max\S*\s+)?(?P<quota>\d{4,}) (?P<period>\d{4,})$", line.text):
            cores = int(found["quota"]) / int(found["period"])
            yield document.clue("cpu.quota", line, cores=f"{cores:g}")
        elif found := re.search(r"load average: (?P<one>[\d.]+)", line.text):
            yield document.clue("cpu.load", line, load=found["one"])
        elif (found := re.search(r"(?:^CPU\(s\):|logical CPUs:|nproc[:=]?|cores?:)\s*(?P<cores>\d+)", line.text)) or (
            "nproc" in document.file and (found := re.match(r"^\s*(?P<cores>\d{1,4})\s*$", line.text))
        ):
            yield document.clue("cpu.cores", line, cores=found["cores"])
        elif found := re.search(r"threads (?:in|of) [^:]+: (?P<threads>\d+)", line.text):
            yield document.clue("cpu.threads", line, threads=found["threads"])
        elif found := re.search(r"throttled[^%\d]{0,30}(?P<percent>\d+(?:\.\d+)?) ?%", line.text):
            yield document.clue("cpu.throttled-percent", line, percent=found["percent"])


def processes(document: Document) -> Iterator[Clue]:
    """``process.orphan`` (parent 1), ``process.big`` (largest of `top`), paging and I/O wait, host memory."""
    lines = list(document.numbered())
    header: list[str] = []
    biggest: tuple[float, Line, list[str]] | None = None
    for line in lines:
        parts = line.text.split()
        if "PID" in parts:
            header = parts
        elif header and len(parts) >= len(header) - 1:
            row = dict(zip(header, parts, strict=False))
            if row.get("PPID") == "1" and re.search(r"python|vllm|VLLM|sglang|ray::|spawn_main|EngineCore", line.text):
                yield document.clue("process.orphan", line, pid=row.get("PID", ""))
            if "%MEM" in row and re.fullmatch(r"[\d.]+", row["%MEM"]):
                share = float(row["%MEM"])
                if biggest is None or share > biggest[0]:
                    biggest = (share, line, parts)
            if "majflt/s" in row and re.fullmatch(r"[\d.]+", row["majflt/s"]) and float(row["majflt/s"]) > 500:
                yield document.clue("io.major-faults", line, per_s=row["majflt/s"])
    if biggest and biggest[0] > 40:
        yield document.clue("process.big", biggest[1], percent=biggest[0], command=" ".join(biggest[2][-2:]))
    yield from _vmstat(document, lines)
    for line in lines:
        if found := re.match(
            r"^Mem:\s+(?P<total>[\d.]+\w*)\s+(?P<used>[\d.]+\w*)\s+(?P<free>[\d.]+\w*).*?(?P<available>[\d.]+\w*)\s*$",
            line.text,
        ):
            total, available = (size_bytes(found[key]) or 0 for key in ("total", "available"))
            name = "host.memory-full" if available < 0.05 * total else "host.memory-ample"
            yield document.clue(name, line, total=found["total"], available=found["available"])


def _vmstat(document: Document, lines: list[Line]) -> Iterator[Clue]:
    for number, line in enumerate(lines[:-1]):
        header = line.text.split()
        if header[:2] == ["r", "b"] and "wa" in header:
            values = lines[number + 1].text.split()
            at = header.index("wa")
            if len(values) > at and values[at].isdigit() and int(values[at]) >= 30:
                yield document.clue("io.wait-high", lines[number + 1], percent=values[at])
            if "id" in header and len(values) > at and values[header.index("id")] in ("0", "1", "2"):
                yield document.clue("cpu.saturated", lines[number + 1], runnable=values[0])
        elif "%iowait" in header:
            values = lines[number + 1].text.split()
            at = header.index("%iowait") - (1 if header[0] == "avg-cpu:" else 0)
            if len(values) > at >= 0 and re.fullmatch(r"[\d.]+", values[at]) and float(values[at]) >= 30:
                yield document.clue("io.wait-high", lines[number + 1], percent=values[at])


def reads(document: Document) -> Iterator[Clue]:
    """``storage.small-reads`` where most reads are of a page or so; ``storage.slow-read`` of dd and fio."""
    for line in document.numbered():
        if found := re.search(r"\b(?:4|8|16)[Kk]i?B?\b[:=\s]+(?P<percent>\d+(?:\.\d+)?) ?%", line.text):
            if float(found["percent"]) > 60:
                yield document.clue("storage.small-reads", line, percent=found["percent"])
        elif found := re.search(r"bytes .*copied, [\d.]+ s, (?P<rate>[\d.]+) (?P<unit>[MG]B/s)", line.text):
            yield document.clue("storage.dd", line, rate=found["rate"], unit=found["unit"])


BOOT_WORDS = re.compile(
    r"_iommu=on|ACSCtl|LnkSta|P2P_DISABLE|no output|h[au]ng|stuck|never |killed after|timeout|rev ff|header type 7f"
)
"""What every reading of :func:`boot` begins with; `lspci -vvv` of a large host has 10,000 lines of other things."""


def boot(document: Document) -> Iterator[Clue]:
    """IOMMU on the kernel command line; ACS redirection and link status of `lspci`; a peer-to-peer test that hangs."""
    for line in document.numbered():
        text = line.text
        if not BOOT_WORDS.search(text):
            continue
        if found := re.search(r"\b(?P<what>(?:intel|amd)_iommu=on)\b", text):
            name = "iommu.passthrough" if "iommu=pt" in text else "iommu.translating"
            yield document.clue(name, line, option=found["what"])
        elif "ACSCtl" in text and "ReqRedir+" in text:
            yield document.clue("acs.redirect", line)
        elif found := re.search(
            r"LnkSta:.*?Speed (?P<speed>\S+?)(?: \((?P<speed_note>\w+)\))?, Width (?P<width>x\d+)(?: \((?P<width_note>\w+)\))?",
            text,
        ):
            if "downgraded" in (found["speed_note"] or "", found["width_note"] or ""):
                able = document.numbered()[max(0, line.number - 4) : line.number - 1]
                yield document.clue(
                    "pcie.downgraded",
                    line,
                    *(one for one in able if "LnkCap:" in one.text),
                    **{key: value or "" for key, value in found.groupdict().items()},
                )
        elif re.search(r"NCCL_P2P_DISABLE=1.*(?:ok|works|pass|busbw|success)", text):
            yield document.clue("p2p.cured-by-disabling", line)
        elif re.search(
            r"(?:no output|hang|hung|stuck|never (?:returns|finishes)|killed after|timeout)", text
        ) and re.search(r"CUDA_VISIBLE_DEVICES|all_reduce|pair|P2P|p2p", text):
            yield document.clue("p2p.hang", line)
        elif re.search(r"rev ff\)|!!! Unknown header type 7f", text):
            yield document.clue("gpu.off-the-bus", line)


def peer_bandwidth(document: Document) -> Iterator[Clue]:
    """``p2p.slow-pair`` of p2pBandwidthLatencyTest: a pair with peer access that moves less than 2 GB/s."""
    lines = list(document.numbered())
    for number, line in enumerate(lines):
        if "P2P=Enabled Bandwidth" not in line.text:
            continue
        for row in lines[number + 2 : number + 20]:
            cells = row.text.split()
            if not cells or not cells[0].isdigit():
                break
            for at, cell in enumerate(cells[1:]):
                if at != int(cells[0]) and re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", cell) and float(cell) < 2.0:
                    yield document.clue("p2p.slow-pair", row, one=cells[0], two=at, gb_per_s=cell)
                    return


def clocks(document: Document) -> Iterator[Clue]:
    """``clock.offset-large`` of chronyc, timedatectl, ntpq, or dates that hosts print."""
    for line in document.numbered():
        if found := re.search(
            r"(?:System time|Last offset|RMS offset|offset)\s*[:=]?\s*(?P<sign>[+-]?)(?P<seconds>\d+(?:\.\d+)?) ?(?P<unit>seconds|s\b|ms\b)",
            line.text,
        ):
            seconds = float(found["seconds"]) / (1000 if found["unit"].strip() == "ms" else 1)
            if seconds >= 1.0:
                yield document.clue("clock.offset-large", line, seconds=f"{seconds:g}")
            else:
                yield document.clue("clock.in-step", line)


def scanned_ports(document: Document) -> Iterator[Clue]:
    """``connect.selective`` of `nmap`: the host answers on some ports, and others are filtered."""
    address, opened = "", None
    for line in document.numbered():
        if found := re.search(r"scan report for (?:\S+ \()?(?P<address>[\w.:-]+)", line.text):
            address, opened = found["address"], None
        elif found := re.match(r"^(?P<port>\d+)/tcp\s+(?P<state>open|filtered)\b", line.text):
            if found["state"] == "open":
                opened = (found["port"], line)
            elif opened is not None:
                yield document.clue(
                    "connect.selective", line, opened[1], address=address, port=found["port"], open_port=opened[0]
                )


def network(document: Document) -> Iterator[Clue]:
    """``net.interface`` of `ip addr`: name and address."""
    name = ""
    for line in document.numbered():
        if found := re.match(r"^\d+: (?P<name>[\w.@-]+?)(?:@\S+)?:", line.text):
            name = found["name"]
        if found := re.search(r"\binet (?P<address>[\d.]+)/(?P<bits>\d+)", line.text):
            shown = re.search(r"scope \w+ (?P<name>\S+)$", line.text)
            yield document.clue(
                "net.interface", line, interface=name or (shown["name"] if shown else ""), address=found["address"], bits=found["bits"]
            )  # fmt: skip


PROBES = (
    limits, mounts, shared_memory_files, modules, processors, processes, reads, boot, peer_bandwidth, clocks, network, scanned_ports,
)  # fmt: skip
