"""NCCL's variables: names and values that work against what they are set for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.edits import remove_variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.values import Edit, EnvVar

# Which collectives each algorithm has (NCCL guide, environment variables): vLLM needs all four.
_ALGORITHMS: dict[str, frozenset[str]] = {
    "ring": frozenset({"allreduce", "allgather", "reducescatter", "broadcast"}),
    "tree": frozenset({"allreduce"}),
    "collnetdirect": frozenset({"allreduce", "allgather", "reducescatter"}),
    "collnetchain": frozenset({"allreduce"}),
    "collnet": frozenset({"allreduce"}),
    "nvls": frozenset({"allreduce", "allgather", "reducescatter"}),
    "nvlstree": frozenset({"allreduce"}),
    "pat": frozenset({"allgather", "reducescatter"}),
}
_NEEDED = _ALGORITHMS["ring"]
_PROTOCOLS = frozenset({"ll", "ll128", "simple"})


def check_nccl(judge: Judge) -> None:
    for variable in judge.reading.env:
        check = _BY_NAME.get(variable.name)
        if check is not None and variable.value is not None:
            check(judge, variable, variable.value.strip())
        elif variable.name == "NCCL_IB_HCA" and variable.dynamic:
            _indexed_hca(judge, variable)


def _said(variable: EnvVar) -> str:
    return f"{variable.name}={variable.raw}"


def _gdr_level(judge: Judge, variable: EnvVar, value: str) -> None:
    if (value.isdecimal() and int(value) >= 4) or value.upper() == "SYS":
        judge.report("nccl.NET_GDR_LEVEL", variable.start, _said(variable), edits=remove_variable(judge.text, variable))
    elif not value.isdecimal() and value.upper() not in ("LOC", "PIX", "PXB", "P2C", "PXN", "PHB", "NODE", "NVL"):
        _invalid(judge, variable, "a distance is LOC, PIX, PXB, P2C, PHB or SYS")


def _invalid(judge: Judge, variable: EnvVar, reason: str) -> None:
    judge.report(
        "nccl.invalid-value", variable.start, _said(variable), reason=f"NCCL does not know the value: {reason}."
    )


def _algorithms(text: str, known: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The names a list allows (``^`` excludes), and those in it that are none."""
    negated = text.startswith("^")
    names = frozenset(name.strip().lower() for name in text.lstrip("^").split(",") if name.strip())
    unknown = names - known
    return (known - names if negated else names & known), unknown


def _algo(judge: Judge, variable: EnvVar, value: str) -> None:
    if not value:
        return
    known = frozenset(_ALGORITHMS)
    if ":" in value:
        for part in value.split(";"):
            function, _, names = part.partition(":")
            allowed, unknown = _algorithms(names.strip(), known)
            if unknown:
                _invalid(judge, variable, f"{', '.join(sorted(unknown))} is no algorithm")
                return
            function = function.strip().lower()
            if function in _NEEDED and not any(function in _ALGORITHMS[name] for name in allowed):
                judge.report("nccl.ALGO", variable.start, _said(variable), edits=remove_variable(judge.text, variable))
                return
        return
    allowed, unknown = _algorithms(value, known)
    if unknown:
        judge.report(
            "nccl.ALGO",
            variable.start,
            _said(variable),
            reason=f"NCCL knows no algorithm {', '.join(sorted(unknown))}.",
            edits=remove_variable(judge.text, variable),
        )
        return
    missing = [function for function in sorted(_NEEDED) if not any(function in _ALGORITHMS[name] for name in allowed)]
    if missing:
        judge.report("nccl.ALGO", variable.start, _said(variable), edits=remove_variable(judge.text, variable))


def _proto(judge: Judge, variable: EnvVar, value: str) -> None:
    if not value or ":" in value:
        return
    allowed, unknown = _algorithms(value, _PROTOCOLS)
    if unknown:
        _invalid(judge, variable, "a protocol is LL, LL128 or Simple")
    elif not allowed & {"ll", "ll128"}:
        judge.report("nccl.PROTO", variable.start, _said(variable), edits=remove_variable(judge.text, variable))


def _stack_size(judge: Judge, variable: EnvVar, value: str) -> None:
    if value not in ("0", ""):
        judge.report(
            "nccl.SET_STACK_SIZE", variable.start, _said(variable), edits=remove_variable(judge.text, variable)
        )


def _gid_index(judge: Judge, variable: EnvVar, value: str) -> None:
    if not re.fullmatch(r"\d+", value):
        return
    layer = judge.context.options.link_layer
    if layer == "infiniband":
        reason, edits = "On InfiniBand the variable is ignored.", remove_variable(judge.text, variable)
    else:
        reason = (
            "NCCL 2.21 and later find the RoCE v2 address themselves. A fixed index is right only where every"
            " port's table has the"
            " same entries: extra addresses, VLANs, SR-IOV and containers shift it."
        )
        reason += "" if layer else " On InfiniBand it is ignored; --spec says which fabric it is."
        edits = ()
    judge.report("nccl.IB_GID_INDEX", variable.start, _said(variable), reason=reason, edits=edits)


def _service_level(judge: Judge, variable: EnvVar, value: str) -> None:
    if not value.isdecimal() or value == "0":
        return
    layer = judge.context.options.link_layer
    if layer == "ethernet":
        reason = "On RoCE a service level is only the VLAN priority: switches that trust DSCP do not look at it."
    elif layer == "infiniband":
        reason = "It selects a virtual lane only if the subnet manager maps this level; unmapped, it changes nothing."
    else:
        reason = "A lane on InfiniBand if the subnet manager maps it, nothing useful on RoCE; --spec says which"
        " fabric it is."
    judge.report("nccl.IB_SL", variable.start, _said(variable), reason=reason)


def _cross_nic(judge: Judge, variable: EnvVar, value: str) -> None:
    if value == "1":
        judge.report(
            "nccl.CROSS_NIC",
            variable.start,
            _said(variable),
            reason="Fine where all NICs hang on one leaf switch; on a rail-optimised fabric it sends traffic across"
            " rails. Which it is"
            " no file says.",
        )


def _hca(judge: Judge, variable: EnvVar, value: str) -> None:
    if not value or value.lstrip("^").startswith("="):
        return
    entries = [entry.strip() for entry in value.lstrip("^").split(",") if entry.strip()]
    exact = all(re.search(r"\d(?::\d+)?$", entry) for entry in entries)
    edits: tuple[Edit, ...] = ()
    if exact and variable.word is not None and variable.word.value.strip() == value:
        start = variable.word.value.index(value) + (1 if value.startswith("^") else 0)
        edits = _insert(variable, start, "=")
    judge.report(
        "nccl.IB_HCA",
        variable.start,
        _said(variable),
        reason="Names match by how they begin: mlx5_1 also takes mlx5_10 to mlx5_19. A host has more devices than"
        " its compute NICs.",
        replacement=f"={value}" if exact and not value.startswith("^") else None,
        edits=edits,
    )


def _insert(variable: EnvVar, position: int, text: str) -> tuple[Edit, ...]:
    from roadworthy.lint.values import Edit

    word = variable.word
    if word is None or variable.place == "python" or not word.value:
        return ()
    at = word.piece.at(position)
    return (Edit(start=at, end=at, text=text),)


def _indexed_hca(judge: Judge, variable: EnvVar) -> None:
    if re.search(r"mlx5_\$", variable.raw):
        judge.report(
            "host.gpu-nic-numbering",
            variable.start,
            _said(variable),
            reason="Devices are numbered in the order of the PCI bus, which differs by vendor and shifts with every"
            " further NIC: GPU N is"
            " not near mlx5_N by name.",
        )


def _interface(judge: Judge, variable: EnvVar, value: str) -> None:
    if value.startswith(("^", "=")) or not re.fullmatch(r"eth\d*(?:,eth\d*)*", value):
        return
    in_pod = variable.place == "pod"
    reason = "A name without '=' matches by how it begins: eth0 also takes eth01. " + (
        "In a pod eth0 usually is the right interface, unless the pod uses the host's network."
        if in_pod
        else "Hosts rarely call the management NIC eth0; pods do."
    )
    exact = re.fullmatch(r"eth\d+", value) is not None
    judge.report(
        "nccl.SOCKET_IFNAME",
        variable.start,
        _said(variable),
        reason=reason,
        replacement=f"={value}" if in_pod else None,
        edits=_insert(variable, variable.word.value.index(value), "=") if exact and variable.word is not None else (),
    )


def _debug(judge: Judge, variable: EnvVar, value: str) -> None:
    level = value.upper()
    if level not in ("INFO", "TRACE", "ABORT", "WARN", "VERSION", ""):
        _invalid(judge, variable, "a level is VERSION, WARN, INFO or TRACE")
        return
    if level not in ("INFO", "TRACE"):
        return
    servers = any(one.program == "vllm serve" for one in judge.reading.invocations)
    tests = judge.mentions(r"\b(?:all_reduce|all_gather|reduce_scatter|alltoall|sendrecv)_perf\b")
    subsystems = any(one.name == "NCCL_DEBUG_SUBSYS" for one in judge.reading.env)
    if not servers and (tests or subsystems) and level == "INFO":
        return
    judge.report(
        "nccl.DEBUG",
        variable.start,
        _said(variable),
        reason="Every rank writes its log at this level; right for a check before the start, noise in production."
        + ("" if servers else " Which of the two this is for is not to be seen here."),
        replacement="NCCL_DEBUG=WARN; for a check INFO with NCCL_DEBUG_SUBSYS=INIT,ENV,NET",
        edits=_level(variable),
    )


def _level(variable: EnvVar) -> tuple[Edit, ...]:
    from roadworthy.lint.edits import replace_value

    return replace_value(variable.word, "WARN") if variable.place != "python" else ()


def _dmabuf(judge: Judge, variable: EnvVar, value: str) -> None:
    if value == "0" and not judge.mentions(r"nvidia[_-]peermem"):
        judge.report(
            "nccl.DMABUF",
            variable.start,
            _said(variable),
            reason="Without DMA-BUF, GPUDirect needs the module nvidia_peermem, which nothing here loads.",
        )


_BY_NAME: dict[str, Callable[[Judge, EnvVar, str], None]] = {
    "NCCL_NET_GDR_LEVEL": _gdr_level,
    "NCCL_ALGO": _algo,
    "NCCL_PROTO": _proto,
    "NCCL_SET_STACK_SIZE": _stack_size,
    "NCCL_IB_GID_INDEX": _gid_index,
    "NCCL_IB_SL": _service_level,
    "NCCL_CROSS_NIC": _cross_nic,
    "NCCL_IB_HCA": _hca,
    "NCCL_SOCKET_IFNAME": _interface,
    "NCCL_DEBUG": _debug,
    "NCCL_DMABUF_ENABLE": _dmabuf,
}
