"""`--capture` of a fabric: ``DIR/fabric.json`` says what was measured how, ``DIR/fabric/`` keeps what tools printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from roadworthy.adapters.capture import FABRIC_MANIFEST
from roadworthy.adapters.files import write_atomically
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.hosts.fabric.values import Command, End, FabricCapture, Inventory, Output, Port, Run, Step

FORM = 1


def write_fabric(folder: Path, capture: FabricCapture) -> None:
    """The manifest last, so that a folder with one is whole. Our own program's text is left out of the commands."""
    (folder / "fabric").mkdir(parents=True, exist_ok=True)
    for run in capture.runs:
        for output in run.outputs:
            write_atomically(folder / output.file, output.text, durable=False)
    told = {
        "form": FORM,
        "hosts": [_of_inventory(one) for one in capture.inventories],
        "runs": [_of_run(run) for run in capture.runs],
    }
    write_atomically(folder / FABRIC_MANIFEST, json.dumps(told, indent=1) + "\n")


def read_fabric(folder: Path) -> FabricCapture:
    """What :func:`write_fabric` wrote. Raises ProbeError for anything else; an output that is gone is empty."""
    path = folder / FABRIC_MANIFEST
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["form"] != FORM:
            raise ProbeError(f"{path}: form {told['form']}, wanted {FORM}", hint="it is from another version")
        inventories = tuple(_inventory(one) for one in told["hosts"])
        runs = tuple(_run(folder, one) for one in told["runs"])
    except OSError as error:
        raise ProbeError(
            f"{path}: {error.strerror}", hint="`roadworthy check --fabric --capture DIR` writes one"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProbeError(f"{path}: no capture of a fabric: {error!r}") from error
    return FabricCapture(inventories=inventories, runs=runs)


def _of_inventory(one: Inventory) -> dict[str, Any]:
    ports = [
        {
            "device": p.device,
            "port": p.port,
            "rate_bytes_per_s": p.rate_bytes_per_s,
            "ethernet": p.ethernet,
            "gid_index": p.gid_index,
        }
        for p in one.ports
    ]
    return {
        "host": one.host, "ports": ports, "tools": dict(one.tools), "python": one.python, "gpus": one.gpus,
        "nvlink": one.nvlink, "unanswered": one.unanswered,
    }  # fmt: skip


def _inventory(told: Mapping[str, Any]) -> Inventory:
    return Inventory(
        host=str(told["host"]), ports=tuple(Port(**port) for port in told["ports"]),
        tools=MappingProxyType(dict(told["tools"])), python=str(told["python"]), gpus=int(told["gpus"]),
        nvlink=bool(told["nvlink"]), unanswered=str(told["unanswered"]),
    )  # fmt: skip


def _of_run(run: Run) -> dict[str, Any]:
    step = run.step
    return {
        "name": step.name, "tool": step.tool, "program": step.program, "kinds": list(step.kinds),
        "one": [step.one.host, step.one.part], "two": [step.two.host, step.two.part], "both_ways": step.both_ways,
        "link_bytes_per_s": step.link_bytes_per_s, "timed_out": run.timed_out, "trouble": run.trouble,
        "outputs": [{"file": one.file, "code": one.code} for one in run.outputs],
    }  # fmt: skip


def _run(folder: Path, told: Mapping[str, Any]) -> Run:
    one, two = (End(host=str(host), part=str(part)) for host, part in (told["one"], told["two"]))
    if told["tool"] not in ("perftest", "nccl-tests", "torch") or not set(told["kinds"]) <= {"bandwidth", "latency"}:
        raise ValueError(f"unknown tool or kind in {told['name']!r}")
    rate = told["link_bytes_per_s"]
    step = Step(
        name=str(told["name"]), tool=told["tool"], program=str(told["program"]), kinds=tuple(told["kinds"]), one=one,
        two=two, both_ways=bool(told["both_ways"]), link_bytes_per_s=None if rate is None else float(rate),
        first=Command(host=one.host, argv=()),
    )  # fmt: skip
    outputs = tuple(_output(folder, each) for each in told["outputs"])
    return Run(step=step, outputs=outputs, timed_out=bool(told["timed_out"]), trouble=str(told["trouble"]))


def _output(folder: Path, told: Mapping[str, Any]) -> Output:
    name = Path(str(told["file"]))
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{told['file']!r} leaves the folder")
    path = folder / name
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    code = told["code"]
    return Output(file=str(told["file"]), text=text, code=None if code is None else int(code))
