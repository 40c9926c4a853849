"""GPU probes: nvidia-smi in its forms, topology matrices, NUMA placement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, Document, Line


def versions(document: Document) -> Iterator[Clue]:
    """``driver.version`` and the CUDA it speaks, from the head of nvidia-smi; ``nvidia-smi.works``."""
    for line in document.numbered():
        if found := re.search(
            r"NVIDIA-SMI (?P<smi>[\d.]+)\s+(?:KMD Version.*?|Driver Version: (?P<driver>[\d.]+))\s*(?:CUDA Version: (?P<cuda>[\d.]+))?", line.text
        ):  # fmt: skip
            yield document.clue(
                "driver.version", line, driver=found["driver"] or found["smi"], cuda=found["cuda"] or ""
            )
        elif found := re.search(
            r"(?:NVRM version:.*Kernel Module|Kernel Module)(?:\s+for x86_64)?\s+(?P<version>\d+\.[\d.]+)", line.text
        ):
            yield document.clue("driver.module", line, version=found["version"])
        elif (found := re.match(r"^\|?\s*(?P<gpu>\d+)\s+(?P<name>NVIDIA \S.*?)\s+(?:On|Off)\s", line.text)) or (
            found := re.match(r"^GPU (?P<gpu>\d+): (?P<name>.*?)(?: \(UUID|$)", line.text)
        ):
            yield document.clue("gpu.listed", line, gpu=found["gpu"], name=found["name"])


def memory_and_processes(document: Document) -> Iterator[Clue]:
    """``gpu.process`` for each compute process, ``gpu.memory`` with what is used of what."""
    for line in document.numbered():
        if found := re.search(
            r"\|?\s*(?P<gpu>\d+)\s+(?:N/A|\d+)\s+(?:N/A|\d+)\s+(?P<pid>\d+)\s+[CG+]+\s+(?P<name>\S+)\s+(?P<mib>\d+) ?MiB",
            line.text,
        ):
            yield document.clue("gpu.process", line, **found.groupdict())
        elif found := re.match(r"^\s*(?P<pid>\d{2,}),\s*(?P<name>[^,]+),\s*(?P<mib>\d+)(?: MiB)?\s*$", line.text):
            yield document.clue("gpu.process", line, gpu="", **found.groupdict())
        elif found := re.search(r"(?P<used>\d+) ?MiB\s*/\s*(?P<total>\d+) ?MiB", line.text):
            utilisation = re.search(r"(\d+) ?%", line.text[found.end() :])
            yield document.clue(
                "gpu.memory", line, **found.groupdict(), utilisation=utilisation.group(1) if utilisation else ""
            )  # fmt: skip


def health(document: Document) -> Iterator[Clue]:
    """ECC, row remapping, NVLink, clocks, fabric and PCIe state of ``nvidia-smi -q``, ``nvlink`` and queries."""
    section, gpu = "", ""
    for line in document.numbered():
        text = line.text
        if found := re.match(r"^GPU (?P<gpu>[\w:.]+)", text):
            gpu = found["gpu"].rstrip(":")
        if re.match(
            r"^\s*(Volatile|Aggregate|Remapped Rows|Clocks (?:Event|Throttle) Reasons|Fabric|ECC Errors|Power)", text
        ):
            section = text.strip()
        yield from _memory_errors(document, line, section, gpu)
        if found := re.search(r"Link (?P<link>\d+): <?(?P<state>inactive|disabled)>?", text, re.IGNORECASE):
            yield document.clue("nvlink.inactive", line, gpu=gpu, **found.groupdict())
        elif found := re.search(
            r"(?:Link (?P<link>\d+):? )?(?:Replay|Recovery|CRC FLIT) Errors?(?: Count)?: (?P<count>[1-9]\d{2,})", text
        ):
            yield document.clue("nvlink.errors", line, gpu=gpu, count=found["count"], link=found["link"] or "")
        if found := re.search(
            r"(?P<reason>HW Slowdown|HW Thermal Slowdown|SW Thermal Slowdown|HW Power Brake(?: Slowdown)?|SW Power Cap)\s*: Active",
            text,
        ):
            yield document.clue(
                "clocks." + found["reason"].lower().replace(" slowdown", "").replace(" ", "-"),
                line,
                gpu=gpu,
                reason=found["reason"],
            )
        if section.startswith("Fabric") and (found := re.search(r"^\s+(?P<key>State|Status)\s*: (?P<value>.+)$", text)):
            ok = found["value"].strip() in ("Completed", "Success", "N/A")
            if not ok:
                yield document.clue("fabric.not-completed", line, value=found["value"].strip(), gpu=gpu)
        yield from _pcie_query(document, line)


def _memory_errors(document: Document, line: Line, section: str, gpu: str) -> Iterator[Clue]:
    text = line.text
    if found := re.search(r"(?:SRAM |DRAM )?Uncorrectable(?: Error)?\w*\s*:\s*(?P<count>[1-9]\d*)", text):
        name = "ecc.remapped-rows" if section.startswith("Remapped") else "ecc.uncorrectable"
        yield document.clue(name, line, count=found["count"], gpu=gpu)
    elif re.search(r"Pending(?: Page Blacklist| Row Remap\w*)?\s*:\s*Yes", text):
        yield document.clue("ecc.pending", line, gpu=gpu)
    elif re.search(r"Remapping Failure Occurred\s*:\s*Yes|remapped_rows\.failure\D+[1-9]", text):
        yield document.clue("ecc.remap-failed", line, gpu=gpu)
    elif found := re.search(r"ecc\.errors\.uncorrected\S*\D+(?P<count>[1-9]\d*)\s*$", text):
        yield document.clue("ecc.uncorrectable", line, count=found["count"], gpu=gpu)


def _pcie_query(document: Document, line: Line) -> Iterator[Clue]:
    text = line.text
    gen = re.search(r"(?:pcie\.link\.gen\.current|[Gg]en(?:eration)? current)\D{0,3}(?P<now>\d)", text)
    gen_max = re.search(r"(?:pcie\.link\.gen\.max|gen max)\D{0,3}(?P<max>\d)", text)
    width = re.search(r"(?:pcie\.link\.width\.current|width current)\D{0,3}(?P<now>\d+)", text)
    width_max = re.search(r"(?:pcie\.link\.width\.max|width max)\D{0,3}(?P<max>\d+)", text)
    busy = re.search(r"utilization\.gpu\D{0,3}(?P<percent>\d+)", text)
    state = re.search(r"\bP(?P<state>\d+)\b", text)
    if gen or width:
        yield document.clue(
            "pcie.link", line, gen=gen["now"] if gen else "", gen_max=gen_max["max"] if gen_max else "",
            width=width["now"] if width else "", width_max=width_max["max"] if width_max else "",
            utilisation=busy["percent"] if busy else "", pstate=state["state"] if state else "",
            gpu=_gpu_of(text),
        )  # fmt: skip


def link_information(document: Document) -> Iterator[Clue]:
    """``pcie.link`` of `nvidia-smi -q`: generation and width now and at most, and how busy the GPU is."""
    gpu, block = "", ""
    seen: dict[str, str] = {}
    where: list[Line] = []

    def ended() -> Iterator[Clue]:
        if seen.get("width") or seen.get("gen"):
            values = {key: seen.get(key, "") for key in ("gen", "gen_max", "width", "width_max", "utilisation")}
            yield document.clue("pcie.link", *where[:3], **values, pstate=seen.get("pstate", ""), gpu=gpu)

    for line in document.numbered():
        if found := re.match(r"^GPU (?P<gpu>[\w:.]+)\s*$", line.text):
            yield from ended()
            gpu, block, seen, where = found["gpu"], "", {}, []
        elif found := re.match(r"^\s+(?P<block>PCIe Generation|Link Width|Utilization)\s*$", line.text):
            block = found["block"]
        elif found := re.match(r"^\s+Performance State\s*: P(?P<state>\d+)", line.text):
            seen["pstate"] = found["state"]
        elif found := re.match(r"^\s+(?P<key>Max|Current|GPU|Gpu)\s+: (?P<value>\d+)", line.text):
            name = {"PCIe Generation": "gen", "Link Width": "width"}.get(block, "")
            if name and found["key"] in ("Max", "Current"):
                seen[name if found["key"] == "Current" else f"{name}_max"] = found["value"]
                where.insert(0 if found["key"] == "Current" else len(where), line)
            elif block == "Utilization" and found["key"] in ("GPU", "Gpu"):
                seen["utilisation"] = found["value"]
    yield from ended()


def _gpu_of(text: str) -> str:
    found = re.search(r"(?:GPU|gpu|index)[ =:]*(\d+)|^(\d+),", text)
    return next((value for value in found.groups() if value), "") if found else ""


def topology(document: Document) -> Iterator[Clue]:
    """The matrix of ``nvidia-smi topo -m``: ``topo.gpu`` (cores and NUMA node), ``topo.flat``, ``topo.nic``."""
    header: list[str] = []
    rows: list[tuple[Line, str, list[str]]] = []
    for line in document.numbered():
        cells = [cell.strip() for cell in re.split(r"\t+|\s{2,}", line.text.strip()) if cell.strip()]
        if (
            cells
            and cells[0] == "GPU0"
            and (len(cells) > 1 and not re.fullmatch(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS", cells[1]))
        ):
            header = cells
        elif header and cells and re.fullmatch(r"(?:GPU|NIC|mlx5_)\d+", cells[0]):
            rows.append((line, cells[0], cells[1:]))
    if not rows:
        return
    links: dict[tuple[str, str], tuple[str, Line]] = {}
    for line, name, cells in rows:
        values = dict(zip(header, cells, strict=False))
        for column, value in values.items():
            if re.fullmatch(r"NV\d+|PIX|PXB|PHB|NODE|SYS", value):
                links[name, column] = (value, line)
        if name.startswith("GPU"):
            yield document.clue(
                "topo.gpu", line, gpu=name[3:], cores=values.get("CPU Affinity", ""), numa=values.get("NUMA Affinity", "")
            )  # fmt: skip
    for line in document.numbered():
        if found := re.match(r"^\s*(?P<nic>NIC\d+):\s*(?P<device>\w+)\s*$", line.text):
            yield document.clue("topo.legend", line, **found.groupdict())
    yield from _flatness(document, links, {cells[-1] for _, name, cells in rows if cells and name.startswith("GPU")})


def _flatness(document: Document, links: dict[tuple[str, str], tuple[str, Line]], numa: set[str]) -> Iterator[Clue]:
    pairs = {pair: link for pair, link in links.items() if pair[0].startswith("GPU") and not pair[1].startswith("GPU")}
    for (gpu, nic), (value, line) in pairs.items():
        yield document.clue("topo.nic", line, gpu=gpu[3:], nic=nic, link=value)
    kinds = {value for value, _ in pairs.values()}
    if len(pairs) >= 4 and kinds == {"PHB"} and len(numa) == 1:
        yield document.clue("topo.flat", next(iter(pairs.values()))[1])
    elif len(pairs) >= 2 and kinds == {"SYS"}:
        yield document.clue("topo.all-far", next(iter(pairs.values()))[1])
    inner = {value for (one, two), (value, _) in links.items() if one.startswith("GPU") and two.startswith("GPU")}
    if inner & {"PIX", "PXB"}:
        line = next(
            line for (_, two), (value, line) in links.items() if value in ("PIX", "PXB") and two.startswith("GPU")
        )
        yield document.clue("topo.gpus-below-switch", line)


def placement(document: Document) -> Iterator[Clue]:
    """``numa.process`` of numastat -p (which GPU, megabytes by node), ``numa.unbound`` of taskset, ``numa.device``."""
    for line in document.numbered():
        if found := re.match(r"^(?P<who>.*?GPU ?(?P<gpu>\d+).*?)\s+(?P<nodes>\d+\.\d+(?:\s+\d+\.\d+)+)\s*$", line.text):
            *nodes, _total = found["nodes"].split()
            yield document.clue("numa.process", line, gpu=found["gpu"], nodes=" ".join(nodes))
        elif found := re.match(r"^Total\s+(?P<nodes>\d+\.\d+(?:\s+\d+\.\d+)+)\s*$", line.text):
            *nodes, whole = map(float, found["nodes"].split())
            if len(nodes) > 1 and whole > 1000 and max(nodes) > 0.95 * whole:
                yield document.clue("numa.process-on-one-node", line, node=nodes.index(max(nodes)), mb=f"{whole:.0f}")
        elif found := re.search(r"affinity list: (?P<cores>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)", line.text):
            gpu = re.search(r"GPU ?(\d+)", line.text)
            yield document.clue("numa.affinity", line, cores=found["cores"], gpu=gpu.group(1) if gpu else "")
        elif (
            found := re.search(
                r"(?P<device>GPU ?\d+(?![\d:])|gpu\d+|mlx5_\d+|nic\d+|eth\d+|ens\w+)\b.*?numa[_ ]?node[\s:=]+(?P<node>-?\d+)",
                line.text,
                re.IGNORECASE,
            )
        ) or (
            found := re.search(r"(?:infiniband|net)/(?P<device>\w+)/device/numa_node[:\s=]+(?P<node>-?\d+)", line.text)
        ):
            yield document.clue("numa.device", line, device=found["device"], node=found["node"])


def services(document: Document) -> Iterator[Clue]:
    """``fabric.down`` where `systemctl status` or a list of units shows Fabric Manager not running."""
    unit = ""
    for line in document.numbered():
        if found := re.match(r"^\W{0,3}(?P<unit>[\w@.-]+)\.service\b(?P<rest>.*)", line.text):
            unit = found["unit"]
            if "fabricmanager" in unit and (state := re.search(r"\b(?P<state>failed|inactive|dead)\b", found["rest"])):
                yield document.clue("fabric.down", line, state=state["state"])
        elif "fabricmanager" in unit and (found := re.match(r"^\s+Active: (?P<state>failed|inactive)", line.text)):
            yield document.clue("fabric.down", line, state=found["state"])


PROBES = (link_information, services, versions, memory_and_processes, health, topology, placement)
