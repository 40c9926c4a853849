"""Measures the fabric: asks hosts what they have, takes the steps round by round, leaves nothing running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import chain, zip_longest
from typing import TypeVar

from roadworthy.adapters.capture import file_name
from roadworthy.adapters.remote_shell import SSH, Programs, RemoteProgram, reach, script_of
from roadworthy.diagnose.hosts.fabric.interpret import measured
from roadworthy.diagnose.hosts.fabric.inventory import inventory_script, parse_inventory
from roadworthy.diagnose.hosts.fabric.schedule import rounds
from roadworthy.diagnose.hosts.fabric.steps import Alternative, Choice, Party, between, inside, missing
from roadworthy.diagnose.hosts.fabric.values import Command, End, FabricCapture, Inventory, Output, Run, Step

INVENTORY_LIMIT_S = 60.0
READY_LIMIT_S = 60.0
"""Loading torch from a slow disk takes half of it; a program that ends before is not waited for."""
CLIENT_GONE_S = 5.0
"""For a server to print its own result, once its client has."""
HOSTS_AT_ONCE = 64
Outcome = TypeVar("Outcome")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host to measure: the name by which it is reached, the address by which its peers reach it."""

    name: str
    address: str
    interface: str = ""
    hcas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How to reach hosts and for how long to wait: seconds for one step."""

    reach: tuple[str, ...] = SSH
    limit_s: float = 60.0
    python: str | None = None


def program_text() -> str:
    """Our own measurement, as the text that is sent to the hosts."""
    return files("roadworthy.adapters").joinpath("fabric_program.py").read_text(encoding="utf-8")


def measure(hosts: Sequence[Host], choice: Choice, ways: Ways, progress: Progress) -> FabricCapture:
    """Inventory of every host, then its GPUs, then every pair of hosts, in rounds of disjoint pairs.

    ``progress`` gets one line for each stage. An interrupt ends every program on every host before it goes on.
    """
    running = Programs()
    with ThreadPoolExecutor(max_workers=HOSTS_AT_ONCE) as pool:
        try:
            progress(f"asking {len(hosts)} hosts what they have …")
            inventories = _each(pool, [partial(_inventory, host, ways, running) for host in hosts])
            parties = [
                Party(inventory=one, address=host.address, interface=host.interface)
                for one, host in zip(inventories, hosts, strict=True)
            ]
            runs = [_unasked(one) for one in inventories if one.unanswered]
            reached = [party for party in parties if not party.inventory.unanswered]
            for plan in (_inside_rounds, _between_rounds):
                for said, together in plan(reached, choice, ways, running):
                    progress(said)
                    runs += chain.from_iterable(_each(pool, together))
        except BaseException:
            running.close_all()
            raise
    return FabricCapture(inventories=tuple(inventories), runs=tuple(runs))


def _each(pool: ThreadPoolExecutor, work: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
    futures: list[Future[Outcome]] = [pool.submit(one) for one in work]
    wait(futures, return_when=FIRST_EXCEPTION)
    return [future.result() for future in futures]


Round = tuple[str, tuple[Callable[[], list[Run]], ...]]
"""What is said of a round, and the measurements that go on at the same time in it."""


def _inside_rounds(parties: Sequence[Party], choice: Choice, ways: Ways, running: Programs) -> Iterator[Round]:
    for number, plans in enumerate(zip_longest(*(inside(party, choice) for party in parties), fillvalue=()), 1):
        together = [found for plan in plans for found in plan]
        said = f"GPUs of each host, round {number}: {len(together)} measurements …"
        yield said, tuple(partial(_first_that_measures, found, ways, running) for found in together)


def _between_rounds(parties: Sequence[Party], choice: Choice, ways: Ways, running: Programs) -> Iterator[Round]:
    plan = rounds(parties)
    for number, pairs in enumerate(plan, 1):
        who = ", ".join(f"{one.host} and {two.host}" for one, two in pairs)
        yield (
            f"round {number} of {len(plan)}: {who} …",
            tuple(partial(_pair, one, two, choice, ways, running) for one, two in pairs),
        )


def _pair(one: Party, two: Party, choice: Choice, ways: Ways, running: Programs) -> list[Run]:
    found = between(one, two, choice)
    if not found:
        return [_untaken(one.host, two.host, missing(one.inventory, two.inventory, choice.tools))]
    return _first_that_measures(found, ways, running)


def _first_that_measures(found: Sequence[Alternative], ways: Ways, running: Programs) -> list[Run]:
    """Runs of the first alternative that gives a number; those before it are kept too, for why they gave none."""
    runs: list[Run] = []
    for steps in found:
        taken = [_take(step, ways, running) for step in steps]
        runs += taken
        if any(one.status == "measured" for run in taken for one in measured(run)):
            break
    return runs


def _untaken(one: str, two: str, why: str) -> Run:
    step = Step(
        name=f"none.{one}.{two}", tool="torch", program="any tool", kinds=("bandwidth",), one=End(host=one),
        two=End(host=two), both_ways=True, first=Command(host=one, argv=()),
    )  # fmt: skip
    return Run(step=step, trouble=why)


def _unasked(inventory: Inventory) -> Run:
    run = _untaken(inventory.host, "any other host", inventory.unanswered)
    return replace(run, step=replace(run.step, name=f"none.{inventory.host}"))


def _inventory(host: Host, ways: Ways, running: Programs) -> Inventory:
    asks = Command(host=host.name, argv=("sh", "-s"), reads=inventory_script(ways.python))
    try:
        with _started(asks, ways, running, limit_s=INVENTORY_LIMIT_S) as program:
            ended = program.wait(INVENTORY_LIMIT_S + 10)
            text, code = program.text, program.code
    except FileNotFoundError as error:
        return Inventory(host=host.name, unanswered=f"{error.filename} is not installed here")
    found = parse_inventory(host.name, text, hcas=host.hcas)
    if not found.unanswered:
        return found
    said = text.strip().splitlines()
    why = "no answer within the time limit" if not ended or code == 124 else said[-1] if said else "no answer"
    return Inventory(host=host.name, unanswered=why)


def _take(step: Step, ways: Ways, running: Programs) -> Run:
    if running.stopped:
        return Run(step=step, trouble="interrupted")
    try:
        return _alone(step, ways, running) if step.then is None else _both(step, step.then, ways, running)
    except FileNotFoundError as error:
        return Run(step=step, trouble=f"{error.filename} is not installed here")


def _alone(step: Step, ways: Ways, running: Programs) -> Run:
    with _begun(step.first, ways, running) as program:
        ended = program.wait(ways.limit_s + 5)
    return Run(step=step, outputs=(_output(step, program, "only"),), timed_out=not ended or program.code in (124, 137))


def _both(step: Step, then: Command, ways: Ways, running: Programs) -> Run:
    with _begun(step.first, ways, running) as first:
        if not first.wait_ready(min(READY_LIMIT_S, ways.limit_s)):
            return _not_ready(step, first, ways)
        if first.ready_port is not None:
            then = replace(then, argv=(*then.argv, "--port", str(first.ready_port)))
        with _begun(then, ways, running) as second:
            ended = second.wait(ways.limit_s + 5)
            if ended and second.code == 0:
                first.wait(CLIENT_GONE_S)
            elif ended:
                first.wait(1.0)  # what it has to say of a client that failed, it says at once or after minutes
    outputs = (_output(step, second, "sends"), _output(step, first, "receives"))
    return Run(step=step, outputs=outputs, timed_out=not ended or second.code in (124, 137))


def _not_ready(step: Step, first: RemoteProgram, ways: Ways) -> Run:
    """The receiving side ended, or never listened."""
    ended = first.wait(0.0)
    first.close()
    why = "" if ended else f"not ready within {min(READY_LIMIT_S, ways.limit_s):g} s"
    return Run(step=step, outputs=(_output(step, first, "receives"),), timed_out=not ended, trouble=why)


def _output(step: Step, program: RemoteProgram, side: str) -> Output:
    name = file_name(step.name, otherwise="step")
    return Output(file=f"fabric/{name}.{side}.txt", text=program.text, code=program.code)


def _begun(command: Command, ways: Ways, running: Programs) -> AbstractContextManager[RemoteProgram]:
    return _started(command, ways, running, limit_s=ways.limit_s)


def _started(
    command: Command, ways: Ways, running: Programs, *, limit_s: float
) -> AbstractContextManager[RemoteProgram]:
    script = script_of(
        command.argv, command.environment, limit_s=limit_s, listens_on=command.listens_on, reads=command.reads
    )
    return running.started(reach(command.host, ways.reach), script)
