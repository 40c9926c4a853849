"""What came back from a step, as numbers or as the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from roadworthy.core.finding import Evidence
from roadworthy.diagnose.hosts.fabric import nccl_tests, own, perftest
from roadworthy.diagnose.hosts.fabric.values import End, Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roadworthy.diagnose.hosts.fabric.values import Fault, Kind, Output, Reading, Run, Status, Tool

READERS: Mapping[Tool, Mapping[Kind, Callable[[str], Reading | None]]] = {
    "perftest": {"bandwidth": perftest.bandwidth, "latency": perftest.latency},
    "nccl-tests": {"bandwidth": nccl_tests.bandwidth, "latency": nccl_tests.latency},
    "torch": {kind: partial(own.reading, kind=kind) for kind in ("bandwidth", "latency")},
}
FAULTS = {"perftest": perftest.fault, "nccl-tests": nccl_tests.fault, "torch": own.fault}


def measured(run: Run) -> tuple[Measured, ...]:
    """One for each kind that the step measures; for the GPUs of a host one for each directed pair."""
    if run.step.one.part == "GPU*":
        return tuple(_gpus(run))
    return tuple(_one(run, kind) for kind in run.step.kinds)


def _gpus(run: Run) -> Iterator[Measured]:
    pairs = [(output, pair) for output in run.outputs for pair in own.gpu_pairs(output.text)]
    if not pairs:
        yield _without_number(run, "bandwidth")
        return
    host = run.step.one.host
    for output, pair in pairs:
        reading = own.reading(output.text, "bandwidth", gpus=pair)
        if reading is not None:
            one, two = (End(host=host, part=f"GPU{gpu}") for gpu in pair)
            yield replace(_with_number(run, "bandwidth", output, reading), one=one, two=two)


def _one(run: Run, kind: Kind) -> Measured:
    for output in run.outputs:
        reading = READERS[run.step.tool][kind](output.text)
        if reading is not None:
            wrong = nccl_tests.wrong_results(output.text) if run.step.tool == "nccl-tests" else None
            return _wrong(run, kind, output, wrong) if wrong else _with_number(run, kind, output, reading)
    return _without_number(run, kind)


def _wrong(run: Run, kind: Kind, output: Output, row: Reading) -> Measured:
    """A speed at which the values come out wrong is none."""
    return replace(
        _with_number(run, kind, output, row), status="failed", value=None, why=f"{row.value:.0f} values came out wrong"
    )


def _with_number(run: Run, kind: Kind, output: Output, reading: Reading) -> Measured:
    step = run.step
    half = step.tool == "perftest" and kind == "bandwidth" and perftest.two_way(output.text)
    return Measured(
        kind=kind, tool=step.tool, program=step.program, one=step.one, two=step.two, status="measured",
        value=reading.value / (2 if half else 1), both_ways=step.both_ways or half,
        link_bytes_per_s=step.link_bytes_per_s,
        evidence=(Evidence(file=output.file, line=reading.line, text=reading.text[:600]),),
    )  # fmt: skip


def _without_number(run: Run, kind: Kind) -> Measured:
    fault, file = _fault(run)
    status: Status = "timed out" if run.timed_out else "failed"
    if run.trouble:
        status, why = "missing" if not run.outputs else status, run.trouble
    elif fault is not None:
        why = fault.text
    else:
        why = "no end within the time limit" if run.timed_out else "it printed no result"
    step = run.step
    return Measured(
        kind=kind, tool=step.tool, program=step.program, one=step.one, two=step.two, status=status, why=why,
        both_ways=step.both_ways, link_bytes_per_s=step.link_bytes_per_s, fault=fault.code if fault else "",
        evidence=(Evidence(file=file, line=fault.line, text=fault.text[:600]),) if fault else (),
    )  # fmt: skip


def _fault(run: Run) -> tuple[Fault | None, str]:
    """The most telling fault of either side; one that names a cause goes before one that does not."""
    found = [
        (fault, output.file) for output in run.outputs if (fault := FAULTS[run.step.tool](output.text)) is not None
    ]
    found.sort(key=lambda pair: (not pair[0].code, pair[0].rank))
    return found[0] if found else (None, "")
