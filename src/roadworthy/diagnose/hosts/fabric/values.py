"""What a measurement of the fabric is made of: two ends, the steps that measure them, what they printed, the number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.core.finding import Evidence

Kind = Literal["bandwidth", "latency"]
Tool = Literal["perftest", "nccl-tests", "torch"]
TOOLS: tuple[Tool, ...] = ("perftest", "nccl-tests", "torch")
Status = Literal["measured", "missing", "failed", "timed out"]
GBIT = 1e9 / 8
"""Bytes a second of one Gb/s."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class End:
    """One end of a link: a host, and the part of it that was used: an RDMA device, a GPU, or nothing in particular."""

    host: str
    part: str = ""

    @property
    def text(self) -> str:
        return f"{self.host} {self.part}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One RDMA port that is up. ``rate_bytes_per_s`` is one direction, as negotiated; ``gid_index`` is the first
    routable RoCE v2 entry, None on InfiniBand or where there is none."""

    device: str
    port: int = 1
    rate_bytes_per_s: float | None = None
    ethernet: bool = False
    gid_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What one host has to measure with.

    Args:
        tools: program -> its path; those that are not there are left out.
        python: an interpreter that has torch; empty when none was found.
        nvlink: whether the topology shows NVLink between GPUs.
        unanswered: why the host could not be asked; empty when it was.
    """

    host: str
    ports: tuple[Port, ...] = ()
    tools: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    python: str = ""
    gpus: int = 0
    nvlink: bool = False
    unanswered: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program on one host. ``listens_on`` is the port by which it is ready for the other side, 0 where it says so
    itself; None where nobody waits for it. ``reads`` is what it gets on its standard input."""

    host: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    listens_on: int | None = None
    reads: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One measurement to make: ``first`` starts, ``then`` once that is ready.

    Args:
        name: of the step, and of the files that keep what it printed.
        one, two: the ends; ``one`` sends to ``two`` where the measurement has a direction.
        kinds: what it measures.
        both_ways: whether the number holds for both directions.
        link_bytes_per_s: what the link is said to carry in one direction; None where nothing says.
    """

    name: str
    tool: Tool
    program: str
    kinds: tuple[Kind, ...]
    one: End
    two: End
    first: Command
    then: Command | None = None
    both_ways: bool = False
    link_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one program printed. ``code`` is its exit code, None when it was stopped."""

    file: str
    text: str
    code: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A step that was taken, with what came back, the sending side first. ``trouble`` is why it could not be taken."""

    step: Step
    outputs: tuple[Output, ...] = ()
    timed_out: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A number as a tool printed it: bytes a second, or seconds for a latency. ``line`` counts from 1."""

    kind: Kind
    value: float
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a tool has no number: the taxonomy id it points to (empty: none), and its own words. The lower ``rank``, the
    closer to the cause: a client that cannot connect says less than a server that says why it ended."""

    rank: int
    code: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One direction of one link.

    Args:
        program: what measured, ``ib_write_bw`` or ``torch gloo``; only equal ones are compared.
        value: bytes a second or seconds, None unless ``status`` is ``measured``.
        fault: taxonomy id that the failure points to.
    """

    kind: Kind
    tool: Tool
    program: str
    one: End
    two: End
    status: Status
    value: float | None = None
    both_ways: bool = False
    link_bytes_per_s: float | None = None
    why: str = ""
    fault: str = ""
    evidence: tuple[Evidence, ...] = ()

    @property
    def inside(self) -> bool:
        """Between two GPUs of one host."""
        return self.one.host == self.two.host


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricCapture:
    """Everything that a measurement of a fabric brought; what `--capture` keeps."""

    inventories: tuple[Inventory, ...]
    runs: tuple[Run, ...]
