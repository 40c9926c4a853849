"""Answers that only a capture of `check` has, in the forms that its own questions give them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, Document

GPU_NODE = re.compile(r"^gpu (?P<bus>[0-9a-fA-F:.]{7,}) numa_node: (?P<node>-?\d+)$")
ECN = re.compile(r"^/sys/class/net/(?P<device>[^/]+)/ecn/roce_(?P<side>np|rp)/enable/(?P<priority>\d):(?P<value>[01])$")
LISTENING = re.compile(r"^LISTEN\s+\d+\s+\d+\s+(?P<address>\S+):(?P<port>\d+)\s")
OPEN_MODULE = re.compile(r"NVIDIA UNIX Open Kernel Module|Open Kernel Module for")
KERNEL = re.compile(r"^Linux \S+ (?P<major>\d+)\.(?P<minor>\d+)\.")
HUGE = re.compile(r"^(?P<key>HugePages_Total|Hugepagesize|MemTotal):\s+(?P<value>\d+)")


def placement(document: Document) -> Iterator[Clue]:
    """``gpu.numa-node`` by bus address; -1 where the firmware or a virtual machine tells none."""
    if "numa_node:" not in document.text:
        return
    for line in document.numbered():
        if found := GPU_NODE.match(line.text):
            yield document.clue("gpu.numa-node", line, **found.groupdict())


NUMA_NODES = re.compile(r"^NUMA node\(s\):\s+(?P<count>\d+)$")
ENGINE = re.compile(
    r"^\s*\d+\s+\d+\s+\S+\s+[\d:-]+\s+.*(?:vllm serve|vllm\.entrypoints|VLLM::|EngineCore|sglang\.launch_server)"
)


def machine(document: Document) -> Iterator[Clue]:
    """``numa.nodes`` of `lscpu`, ``process.engine`` of `ps`."""
    if "NUMA node(s)" not in document.text and "PPID" not in document.text:
        return
    for line in document.numbered():
        if found := NUMA_NODES.match(line.text):
            yield document.clue("numa.nodes", line, count=found["count"])
        elif ENGINE.match(line.text):
            yield document.clue("process.engine", line)


def notification(document: Document) -> Iterator[Clue]:
    """``ecn.enable`` of each interface, side (np answers marks, rp slows down) and priority."""
    if "/ecn/roce_" not in document.text:
        return
    for line in document.numbered():
        if found := ECN.match(line.text):
            yield document.clue("ecn.enable", line, **found.groupdict())


def listeners(document: Document) -> Iterator[Clue]:
    """``port.listening`` of `ss -ltn`."""
    if "LISTEN" not in document.text:
        return
    for line in document.numbered():
        if found := LISTENING.match(line.text):
            yield document.clue("port.listening", line, **found.groupdict())


def kernel_and_driver(document: Document) -> Iterator[Clue]:
    """``kernel.version`` of `uname -a`, ``driver.open-module`` where the driver's open kernel module is loaded: with
    it and Linux 5.12 GPUs offer their memory to NICs as DMA-BUF, without a peer memory module."""
    if len(document.text) > 4096:
        return
    for line in document.numbered():
        if found := KERNEL.match(line.text):
            yield document.clue("kernel.version", line, **found.groupdict())
        elif OPEN_MODULE.search(line.text):
            yield document.clue("driver.open-module", line)


def huge_pages(document: Document) -> Iterator[Clue]:
    """``memory.huge-pages``: bytes reserved as huge pages, of all memory, from /proc/meminfo."""
    if "HugePages_Total" not in document.text:
        return
    values: dict[str, int] = {}
    where = None
    for line in document.numbered():
        if found := HUGE.match(line.text):
            values[found["key"]] = int(found["value"])
            where = line if found["key"] == "HugePages_Total" else where
    if where is not None and {"HugePages_Total", "Hugepagesize", "MemTotal"} <= values.keys():
        reserved = values["HugePages_Total"] * values["Hugepagesize"] * 1024
        if reserved:
            yield document.clue("memory.huge-pages", where, bytes=reserved, of_bytes=values["MemTotal"] * 1024)


def container(document: Document) -> Iterator[Clue]:
    """``cgroup.memory-limit`` and ``cgroup.pids-limit`` (bytes, processes) where there is one, ``cgroup.oom-kills``."""
    if "# memory.max" not in document.text and "# pids.max" not in document.text:
        return
    section = ""
    for line in document.numbered():
        text = line.text.strip()
        if text.startswith("# "):
            section = text[2:]
        elif section == "memory.max" and text.isdigit():
            yield document.clue("cgroup.memory-limit", line, bytes=text)
        elif section == "pids.max" and text.isdigit():
            yield document.clue("cgroup.pids-limit", line, limit=text)
        elif section == "memory.events" and (found := re.match(r"oom_kill ([1-9]\d*)$", text)):
            yield document.clue("cgroup.oom-kills", line, count=found[1])


def hidden(document: Document) -> Iterator[Clue]:
    """``pcie.capabilities-hidden``: `lspci` was not allowed to read what it shows of ACS and links."""
    if "Capabilities: <access denied>" in document.text:
        at = document.text.count("\n", 0, document.text.index("Capabilities: <access denied>")) + 1
        yield document.clue("pcie.capabilities-hidden", document.line(at))


PROBES = (placement, machine, notification, listeners, kernel_and_driver, huge_pages, container, hidden)
