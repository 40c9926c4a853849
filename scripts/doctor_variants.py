"""Other forms of a labelled case that mean the same: renumbered, other hosts, interleaved, buried in healthy log."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping

Form = Callable[[str, Mapping[str, str]], Mapping[str, str]]

HOSTS = re.compile(r"\b(node|pod|vm|dgx|gpu-pod)-([a-z0-9]+)\b")
PROCESS = re.compile(r"(?<=pid=)\d+|(?<=:)\d{3,6}(?=:\d{3,6} \[)")
CLOCK = re.compile(r"\b([01]\d|2[0-3]):([0-5]\d):([0-5]\d)\b")


def renumbered(case: str, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Other process ids, other documentation addresses, other minutes; the same everywhere in the case."""
    r = random.Random(case)
    shift, ids = r.randrange(1, 59), {}

    def process(found: re.Match[str]) -> str:
        return ids.setdefault(found.group(), str(r.randrange(10_000, 99_999)))

    def clock(found: re.Match[str]) -> str:
        minutes = int(found.group(1)) * 60 + int(found.group(2)) + shift
        return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}:{found.group(3)}"

    if any("+0." in text or "t=" in text for text in inputs.values()):
        shift = 0
    return {name: CLOCK.sub(clock, PROCESS.sub(process, text)) if shift else text for name, text in inputs.items()}


def rehosted(_case: str, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Hosts by other names, in the texts and in the files' names."""

    def host(found: re.Match[str]) -> str:
        return f"{found.group(1)}-x{found.group(2)}7"

    return {HOSTS.sub(host, name): HOSTS.sub(host, text) for name, text in inputs.items()}


def interleaved(case: str, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Lines of another, healthy rank between those of each log."""
    return {
        name: "\n".join(_between(text.splitlines(), random.Random(case + name))) + "\n" if _is_log(name, text) else text
        for name, text in inputs.items()
    }


def _is_log(name: str, text: str) -> bool:
    return name.endswith(".log") and not text.lstrip().startswith("#") and "Ray: " not in text and "CA '" not in text


def _between(lines: list[str], r: random.Random) -> Iterator[str]:
    for line in lines:
        yield line
        if r.random() < 0.6 and not line.startswith((" ", "\t")):
            yield healthy_line(r)


HEALTHY = (
    "(Worker_TP{a} pid={p}) INFO 09-24 04:{m:02d}:{s:02d} [gpu_model_runner.py:2011] step {p} done in {a}.{s:02d} ms",
    "(APIServer pid={p}) INFO 09-24 04:{m:02d}:{s:02d} [async_llm.py:300] Added request chatcmpl-{p}{s}.",
    'INFO:     192.0.2.{s}:{p} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "2026-09-24T04:{m:02d}:{s:02d}Z INFO gateway request finished tenant=t{a} model=m tokens={p} ttft=0.{s:02d}",
    "node-q:{p}:{p} [{a}] NCCL INFO Channel {s:02d}/0 : {a}[{a}] -> 1[1] via P2P/CUMEM/read",
    "Sep 24 04:{m:02d}:{s:02d} node-q kubelet[{p}]: I0924 reconciler.go:224 volume attached for pod llm-{a}",
    "[{p}.{s:02d}] usb 1-1: new high-speed USB device number {a} using xhci_hcd",
)


def healthy_line(r: random.Random) -> str:
    return r.choice(HEALTHY).format(a=r.randrange(8), p=r.randrange(1000, 99999), m=r.randrange(60), s=r.randrange(60))


def buried(megabytes: float) -> Form:
    """The case's files among a log of healthy lines of that size, and the longest log inside it."""

    def bury(case: str, inputs: Mapping[str, str]) -> Mapping[str, str]:
        r = random.Random(case)
        block = "\n".join(healthy_line(r) for _ in range(2000)) + "\n"
        times = max(1, int(megabytes * 1e6 / len(block)))
        logs = [name for name in inputs if name.endswith(".log")]
        if not logs:
            return inputs if all(name.isdigit() for name in inputs) else {**inputs, "zz-other.log": block * times}
        longest = max(logs, key=lambda name: len(inputs[name]))
        half = block * (times // 2)
        return {**inputs, longest: half + inputs[longest].rstrip("\n") + "\n" + half}

    return bury


VARIANTS: dict[str, Form] = {
    "renumbered": renumbered, "rehosted": rehosted, "interleaved": interleaved, "buried 2 MB": buried(2),
}  # fmt: skip
