"""Two hosts on one machine: network namespaces joined by a cable, where the kernel lets us make them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A namespace with one interface; ``enter`` goes before a command that runs there."""

    namespace: str
    address: str
    interface: str

    @property
    def enter(self) -> tuple[str, ...]:
        return (*_as_root(), "ip", "netns", "exec", self.namespace)


def _as_root() -> tuple[str, ...]:
    return () if os.geteuid() == 0 else ("sudo", "-n")


def _ip(*arguments: str) -> None:
    subprocess.run([*_as_root(), "ip", *arguments], check=True, capture_output=True, text=True)


def why_not() -> str:
    """Why there can be no such hosts here; empty when there can."""
    if shutil.which("ip", path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
        return "no `ip` here (Debian package iproute2)"
    if os.geteuid() != 0:
        return "network namespaces and processes in them need root"
    try:
        with two_hosts():
            return ""
    except subprocess.CalledProcessError as error:
        return f"the kernel gives no network namespaces here: {error.stderr.strip()}"


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other and nothing else; gone afterwards, with every process that was left in them."""
    tag = f"rw{os.getpid()}"
    hosts = tuple(
        Host(namespace=f"{tag}{name}", address=f"10.77.0.{number}", interface=f"rwcable{name}")
        for number, name in enumerate("ab", start=1)
    )
    made = []
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
            made.append(host)
        first, second = hosts
        _ip(
            "link", "add", first.interface, "netns", first.namespace,
            "type", "veth", "peer", "name", second.interface, "netns", second.namespace,
        )  # fmt: skip
        for host in hosts:
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.interface)
            for interface in ("lo", host.interface):
                _ip("-n", host.namespace, "link", "set", interface, "up")
        yield first, second
    finally:
        for host in made:
            _end_all(host)
            _ip("netns", "del", host.namespace)


def _end_all(host: Host) -> None:
    """Nothing survives in a namespace of ours: whoever is left there was started by the test."""
    left = subprocess.run(
        [*_as_root(), "ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=False
    ).stdout.split()
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), 9)
