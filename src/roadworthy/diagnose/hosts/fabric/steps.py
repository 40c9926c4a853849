"""Which steps measure a pair of hosts, and the GPUs inside one: the best tool that both sides have, then the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.fabric.schedule import rounds
from roadworthy.diagnose.hosts.fabric.values import TOOLS, Command, End, Inventory, Port, Step, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_PORT = 18515
"""perftest's own; each step of a pair takes the next, so that a port still closing is in nobody's way."""
BANDWIDTH_S = 2
LATENCY_ROUNDS = 2000
LARGEST = "256M"


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One host to be measured: its inventory, the address by which the others reach it, and our program for it."""

    inventory: Inventory
    address: str
    interface: str = ""

    @property
    def host(self) -> str:
        return self.inventory.host


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What may be used, and what the document says of a link."""

    tools: tuple[Tool, ...] = TOOLS
    program: str = ""
    nic_bytes_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None


Alternative = tuple[Step, ...]


def between(one: Party, two: Party, choice: Choice) -> tuple[Alternative, ...]:
    """Ways to measure a pair of hosts, the most telling first; empty when they have no tool in common."""
    makers = {"perftest": _perftest, "nccl-tests": _nccl_between, "torch": _torch_between}
    able = [tool for tool in choice.tools if all(_has(party.inventory, tool) for party in (one, two))]
    found = (tuple(makers[tool](one, two, choice)) for tool in able)
    return tuple(steps for steps in found if steps)


def inside(party: Party, choice: Choice) -> tuple[tuple[tuple[Alternative, ...], ...], ...]:
    """Ways to measure the pairs of GPUs of one host: rounds of things that may run at the same time, each with its
    alternatives. Empty for less than two GPUs."""
    gpus = [str(number) for number in range(party.inventory.gpus)]
    if len(gpus) < 2:
        return ()
    program = party.inventory.tools.get("sendrecv_perf", "")
    if not program or "nccl-tests" not in choice.tools:
        able = "torch" in choice.tools and _has(party.inventory, "torch")
        return ((((_torch_inside(party, choice),),),),) if able else ()
    return tuple(
        tuple(((_nccl_inside(party, program, pair, choice),),) for pair in together) for together in rounds(gpus)
    )


def rails(one: Inventory, two: Inventory) -> tuple[tuple[Port, Port], ...]:
    """Ports that belong together: of equal names where both have them, else in order of their names."""
    named = {(port.device, port.port): port for port in two.ports}
    alike = [(port, named[port.device, port.port]) for port in one.ports if (port.device, port.port) in named]
    if len(alike) == min(len(one.ports), len(two.ports)):
        return tuple(alike)
    return tuple(zip(one.ports, two.ports, strict=False))


def missing(one: Inventory, two: Inventory, tools: Sequence[Tool] = TOOLS) -> str:
    """Why no tool can measure the pair, in words."""
    said = []
    for tool in tools:
        wanted = {
            "perftest": "ib_write_bw",
            "nccl-tests": "sendrecv_perf with mpirun",
            "torch": "Python with torch",
        }
        without = [host.host for host in (one, two) if not _has(host, tool)]
        if tool == "perftest" and not without:
            without = [host.host for host in (one, two) if not host.ports]
            said.append(f"no active RDMA port on {', '.join(without)}" if without else "no RDMA port in common")
        elif without:
            said.append(f"no {wanted[tool]} on {', '.join(without)}")
    return "; ".join(said)


def _has(host: Inventory, tool: Tool) -> bool:
    if tool == "perftest":
        return "ib_write_bw" in host.tools
    if tool == "nccl-tests":
        return {"sendrecv_perf", "mpirun"} <= set(host.tools) and host.gpus > 0
    return bool(host.python)


def _perftest(one: Party, two: Party, choice: Choice) -> Iterator[Step]:
    numbers = count(FIRST_PORT)
    for near, far in rails(one.inventory, two.inventory):
        ends = ((one, near), (two, far))
        link = choice.nic_bytes_per_s or _slower(near, far)
        for sender, receiver in (ends, ends[::-1]):
            yield _perftest_step("ib_write_bw", sender, receiver, next(numbers), link)
        if all("ib_write_lat" in party.inventory.tools for party in (one, two)):
            yield _perftest_step("ib_write_lat", *ends, next(numbers), link)


def _perftest_step(
    program: str, sender: tuple[Party, Port], receiver: tuple[Party, Port], number: int, link: float | None
) -> Step:
    (client, client_port), (server, server_port) = sender, receiver
    how: tuple[str, ...] = (
        ("--report_gbits", "-D", str(BANDWIDTH_S)) if program == "ib_write_bw" else ("-n", str(LATENCY_ROUNDS))
    )

    def argv(party: Party, port: Port, *more: str) -> tuple[str, ...]:
        gid = ("-x", str(port.gid_index)) if port.ethernet and port.gid_index is not None else ()
        return (
            party.inventory.tools[program],
            "-d",
            port.device,
            "-i",
            str(port.port),
            "-F",
            "-p",
            str(number),
            *how,
            *gid,
            *more,
        )

    one, two = End(host=client.host, part=_part(client_port)), End(host=server.host, part=_part(server_port))
    return Step(
        name=f"{program}.{one.host}.{one.part}.{two.host}.{two.part}", tool="perftest", program=program,
        kinds=("bandwidth",) if program == "ib_write_bw" else ("latency",), one=one, two=two,
        both_ways=program == "ib_write_lat", link_bytes_per_s=link,
        first=Command(host=server.host, argv=argv(server, server_port), listens_on=number),
        then=Command(host=client.host, argv=argv(client, client_port, server.address)),
    )  # fmt: skip


def _part(port: Port) -> str:
    return port.device if port.port == 1 else f"{port.device}:{port.port}"


def _slower(near: Port, far: Port) -> float | None:
    rates = [port.rate_bytes_per_s for port in (near, far) if port.rate_bytes_per_s]
    return min(rates) if len(rates) == 2 else None


def _nccl_between(one: Party, two: Party, choice: Choice) -> Iterator[Step]:
    tools = one.inventory.tools
    interface = one.interface if one.interface and one.interface == two.interface else ""
    more = ("-x", f"NCCL_SOCKET_IFNAME={interface}") if interface else ()
    yield Step(
        name=f"sendrecv_perf.{one.host}.{two.host}", tool="nccl-tests", program="sendrecv_perf",
        kinds=("bandwidth", "latency"), one=End(host=one.host), two=End(host=two.host), both_ways=True,
        link_bytes_per_s=choice.nic_bytes_per_s,
        first=Command(
            host=one.host,
            argv=(
                tools["mpirun"], "--allow-run-as-root", "-np", "2", "--host", f"{one.address}:1,{two.address}:1", *more,
                tools["sendrecv_perf"], "-b", "8", "-e", LARGEST, "-f", "4", "-g", "1",
            ),
        ),
    )  # fmt: skip


def _nccl_inside(party: Party, program: str, pair: tuple[str, str], choice: Choice) -> Step:
    one, two = (End(host=party.host, part=f"GPU{gpu}") for gpu in pair)
    return Step(
        name=f"sendrecv_perf.{party.host}.{one.part}.{two.part}", tool="nccl-tests", program="sendrecv_perf",
        kinds=("bandwidth", "latency"), one=one, two=two, both_ways=True,
        link_bytes_per_s=choice.nvlink_bytes_per_s if party.inventory.nvlink else None,
        first=Command(
            host=party.host, argv=(program, "-b", "8", "-e", LARGEST, "-f", "4", "-g", "2"),
            environment=MappingProxyType({"CUDA_VISIBLE_DEVICES": ",".join(pair)}),
        ),
    )  # fmt: skip


def _torch_between(one: Party, two: Party, choice: Choice) -> Iterator[Step]:
    backend = "nccl" if one.inventory.gpus and two.inventory.gpus else "gloo"

    def command(party: Party, rank: int, other: Party) -> Command:
        return Command(
            host=party.host, listens_on=0 if rank == 0 else None, environment=_interface(party), reads=choice.program,
            argv=(
                party.inventory.python, "-", "pair", "--rank", str(rank), "--backend", backend,
                "--peer", other.address, "--seconds", str(BANDWIDTH_S),
            ),
        )  # fmt: skip

    yield Step(
        name=f"torch.{one.host}.{two.host}", tool="torch", program=f"torch {backend}", kinds=("bandwidth", "latency"),
        one=End(host=one.host), two=End(host=two.host), both_ways=True,
        link_bytes_per_s=choice.nic_bytes_per_s if backend == "nccl" else None,
        first=command(one, 0, two), then=command(two, 1, one),
    )  # fmt: skip


def _interface(party: Party) -> Mapping[str, str]:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return MappingProxyType(dict.fromkeys(names, party.interface) if party.interface else {})


def _torch_inside(party: Party, choice: Choice) -> Step:
    return Step(
        name=f"torch.{party.host}.gpus", tool="torch", program="torch copy", kinds=("bandwidth",),
        one=End(host=party.host, part="GPU*"), two=End(host=party.host, part="GPU*"),
        link_bytes_per_s=choice.nvlink_bytes_per_s if party.inventory.nvlink else None,
        first=Command(host=party.host, argv=(party.inventory.python, "-", "gpus"), reads=choice.program),
    )  # fmt: skip
