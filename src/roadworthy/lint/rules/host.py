"""Host preparation: NUMA wrappers, shared-memory cleaners, kernel and firmware settings, RoCE commands, sysfs paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.edits import remove_words
from roadworthy.lint.values import Edit

if TYPE_CHECKING:
    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.shell_lexer import ShellCommand
    from roadworthy.lint.values import Invocation


def check_host(judge: Judge) -> None:
    for invocation in judge.reading.invocations:
        _numactl(judge, invocation)
        _firmware(judge, invocation)
        _roce_tool(judge, invocation)
        _commands(judge, invocation)
    _sysv_cleaner(judge)
    _oom(judge)
    _sysctl(judge)
    _texts(judge)
    _infiniband_names(judge)
    _index_pairs(judge)


# -- NUMA


def _numactl(judge: Judge, invocation: Invocation) -> None:
    for wrapper in invocation.wrappers:
        if wrapper.program != "numactl" or not _is_server(invocation):
            continue
        words = [word.value for word in wrapper.words]
        text = "numactl " + " ".join(words)
        strict = re.search(r"(?:--membind[= ]|(?<!\S)-m ?)\d+(?=\s|$)", text) is not None  # one node, not several
        harmless = not words or any(re.match(r"--(?:show|hardware)|-[sH]$", word) for word in words)
        if harmless:
            continue
        inner = next((one for one in (*invocation.program_words, *invocation.words)), None)
        taken = (*wrapper.program_words, *wrapper.words)
        edits: tuple[Edit, ...] = ()
        if (
            inner is not None
            and all(word.layout in ("shell", "array", "folded") for word in taken)
            and taken[-1].end <= inner.start
        ):
            edits = (Edit(start=taken[0].start, end=inner.start, text=""),)
        elif taken and all(word.layout in ("yaml-block", "yaml-flow") for word in taken):
            edits = remove_words(judge.text, taken)
        if strict:
            judge.report("host.numactl-wrapper", wrapper.start, text, edits=edits)
        else:
            judge.report(
                "vllm.numa-bind",
                wrapper.start,
                text,
                reason="All workers inherit the binding of the parent; vLLM binds each worker to its own GPU's node"
                " with --numa-bind, and its"
                " automatic mode refuses to run under an outer numactl.",
                edits=edits,
            )


def _is_server(invocation: Invocation) -> bool:
    return (
        invocation.program in ("vllm serve", "?", "ray start", "torchrun", "deepspeed")
        or invocation.program.startswith(("vllm", "python"))
        or "vllm" in invocation.program
    )


# -- firmware and RoCE tools


def _firmware(judge: Judge, invocation: Invocation) -> None:
    if invocation.program not in ("mstconfig", "mlxconfig"):
        return
    for word in invocation.words:
        name = word.value.partition("=")[0]
        if "DEADLOCK" in name.upper():
            judge.report("fw.PFC_DEADLOCK_DETECTION_EN", word.start, word.value)
    device = invocation.flag("-d", "--dev")
    if invocation.program == "mstconfig" and device is not None:
        written = device.value or ""
        if "/dev/mst/" in written:
            judge.report("fw.mst-device-path", device.word.start, f"mstconfig -d {written}")
        elif device.dynamic:
            _mst_loop(judge, written)


def _mst_loop(judge: Judge, written: str) -> None:
    name = re.search(r"\$\{?(\w+)", written)
    for command in judge.reading.commands:
        values = [word.value for word in command.words]
        if name and values[:3] == ["for", name.group(1), "in"] and any("/dev/mst/" in value for value in values):
            judge.report("fw.mst-device-path", command.words[3].start, " ".join(values))
    for variable in judge.reading.env:
        if name and variable.name == name.group(1) and "/dev/mst/" in variable.raw:
            judge.report("fw.mst-device-path", variable.start, f"{variable.name}={variable.raw}")


_IB_NAME = re.compile(r"ib(?:p?\d|s\d|\d)|ibp\w+")


def _roce_tool(judge: Judge, invocation: Invocation) -> None:
    if invocation.program not in ("mlnx_qos", "dcb", "lldptool", "cma_roce_tos", "ethtool"):
        return
    words = [word.value for word in invocation.words]
    text = f"{invocation.program} {' '.join(words)}"
    about_pfc = invocation.program in ("mlnx_qos", "lldptool", "dcb") and (
        any("pfc" in word.lower() for word in words) or invocation.program == "mlnx_qos"
    )
    about_pfc |= invocation.program == "ethtool" and any(word in ("-A", "--pause", "--set-tunable") for word in words)
    infiniband = judge.context.options.link_layer == "infiniband"
    target = next((word for word in invocation.words if _IB_NAME.fullmatch(word.value)), None)
    if about_pfc and (target is not None or (infiniband and invocation.program != "ethtool")):
        at = target.start if target is not None else invocation.start
        judge.report("fabric.pfc-on-ib", at, text)
    elif invocation.program == "mlnx_qos" and any(word.startswith("--pfc") for word in words):
        trust = re.search(r"--trust[= ]+dscp", judge.code)
        if not trust:
            judge.report(
                "roce.mlnx_qos",
                invocation.start,
                text,
                reason="PFC is on for a priority that no packet is put into: nothing here makes the port trust"
                " DSCP. The setting is lost at"
                " the next boot and must match the switch.",
            )
    elif invocation.program == "cma_roce_tos" and any(re.fullmatch(r"\d+", word) for word in words):
        _tos(judge, invocation, text)


def _tos(judge: Judge, invocation: Invocation, text: str) -> None:
    if not any(one.name == "NCCL_IB_TC" for one in judge.reading.env):
        judge.report("roce.cma_roce_tos", invocation.start, text)


def _commands(judge: Judge, invocation: Invocation) -> None:
    words = [word.value for word in invocation.words]
    text = " ".join([invocation.program, *words])
    if invocation.program in ("ip", "ifconfig") and "mtu" in words[:-1]:
        index = words.index("mtu") + 1
        mtu = words[index]
        fabric = re.search(r"roce|rdma|mlx5|NCCL_|mlnx|ibv_", judge.code, re.IGNORECASE)
        if mtu.isdecimal() and int(mtu) < 4200 and fabric and judge.context.options.link_layer != "infiniband":
            judge.report(
                "host.mtu",
                invocation.words[index - 1].start,
                text,
                reason=f"A netdev of {mtu} bytes limits RDMA to an MTU of {'1024' if int(mtu) < 2200 else '2048'};"
                f" right on a management NIC alone.",
            )
    elif invocation.program == "modprobe" and "nv_peer_mem" in words:
        word = invocation.words[words.index("nv_peer_mem")]
        judge.report(
            "host.peermem",
            word.start,
            text,
            reason="The module is called nvidia_peermem and comes with the driver; with DMA-BUF none is needed.",
            edits=(Edit(start=word.start, end=word.end, text="nvidia_peermem"),) if word.layout == "shell" else (),
        )
    elif invocation.program == "setpci" and any("ACS" in word.upper() for word in words):
        judge.report(
            "host.acs-iommu",
            invocation.start,
            text,
            reason="Right on bare metal alone: in a virtual machine ACS stays on and ATS has to work. It belongs"
            " into a reviewed host set-up.",
        )
    elif invocation.program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat"):
        for index, said in enumerate(words[:-1]):
            if said in ("-x", "--gid-index") and words[index + 1].isdecimal():
                judge.report(
                    "host.gid-table",
                    invocation.words[index].start,
                    f"{invocation.program} {said} {words[index + 1]}",
                    reason="Which index holds the RoCE v2 address differs by port and node; list gid_attrs/types"
                    " first.",
                )
    elif invocation.program.endswith(" run") and invocation.program.split(" ")[0] in ("docker", "podman", "nerdctl"):
        _container_options(judge, invocation)
    elif invocation.program == "choom" and re.search(r"-n\s*-?1000|--adjust[= ]-1000", text):
        judge.report("ray.oom_score_adj", invocation.start, text)


def _container_options(judge: Judge, invocation: Invocation) -> None:
    for index, word in enumerate(invocation.words):
        name, equals, value = word.value.partition("=")
        if not equals and index + 1 < len(invocation.words):
            value = invocation.words[index + 1].value
        if name == "--shm-size":
            _shm(judge, word.start, f"{name}={value}", value)
        elif name == "--sysctl" and value.replace(" ", "") == "net.ipv4.tcp_ecn=1":
            end = word if equals else invocation.words[index + 1]
            judge.report(
                "sysctl.tcp_ecn",
                word.start,
                f"--sysctl {value}",
                edits=remove_words(judge.text, (word, end) if end is not word else (word,)),
            )


def _shm(judge: Judge, at: int, setting: str, value: str) -> None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", value.strip().lower())
    if match is None:
        return
    factor = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}[match.group(2)]
    if float(match.group(1)) * factor < 64 * 2**30:
        return
    judge.report(
        "host.shm-64g",
        at,
        setting,
        reason="vLLM's queues take a few hundred MB an engine and NCCL hardly any; only a large object store of Ray"
        " or shared-memory tensors"
        " need this much.",
        replacement="16 to 32 GiB",
    )


# -- shared memory, OOM


def _sysv_cleaner(judge: Judge) -> None:
    removers = [one for one in judge.reading.invocations if one.program == "ipcrm"]
    lists = re.search(r"\bipcs\b", judge.code)
    for invocation in removers:
        words = [word.value for word in invocation.words]
        everything = any(word in ("-a", "--all") or word.startswith("--all=") for word in words)
        if everything or lists:
            at = next(
                (
                    one.start
                    for one in judge.reading.invocations
                    if one.program == "ipcs" and one.pipe == invocation.pipe and one.pipe >= 0
                ),
                invocation.wrappers[0].start if invocation.wrappers else invocation.start,
            )
            judge.report("host.ipcs-gc", at, "ipcs | ipcrm" if lists else "ipcrm " + " ".join(words))
    if not removers and lists:
        for match in judge.found(re.compile(r"\bipcs\b[^\n]*\bipcrm\b")):
            judge.report("host.ipcs-gc", match.start(), match.group())


_OOM_WRITE = re.compile(r"oom_score_adj")


def _oom(judge: Judge) -> None:
    broad = re.search(r"pgrep\s+(?:-\w*f|--full)|pkill\s+-\w*f|ps\s+\S*[^\n]*grep", judge.code)
    for match in judge.found(_OOM_WRITE):
        line_start = judge.code.rfind("\n", 0, match.start()) + 1
        line_end = judge.code.find("\n", match.end())
        line = judge.code[line_start : line_end if line_end >= 0 else len(judge.code)]
        value = re.search(r"(?:echo|printf)\s+(?:-n\s+|--\s+|['\"]?%s['\"]?\s+)?['\"]?(-\d+)", line)
        if value is None:
            value = re.search(r"write\w*\(\s*['\"](-\d+)", line) or re.search(r"<<<\s*['\"]?(-\d+)", line)
        if value is None or not (value.group(1) == "-1000" or broad):
            continue
        judge.report("ray.oom_score_adj", line_start + (len(line) - len(line.lstrip())), line.strip())
    for key in judge.reading.keys:
        if key.family == "unit" and key.key == "OOMScoreAdjust" and key.value == "-1000":
            edits: tuple[Edit, ...] = ()
            if key.word is not None:
                low = key.word.piece.at(0)
                edits = (Edit(start=low, end=low + len("-1000"), text="-500"),)
            judge.report(
                "ray.oom_score_adj",
                key.start,
                f"OOMScoreAdjust={key.value}",
                reason="Children inherit it: the processes that hold the memory can then not be killed, and the"
                " kernel kills the rest.",
                replacement="OOMScoreAdjust=-500",
                edits=edits,
            )


# -- kernel


_TCP_ECN = re.compile(r"net[./]ipv4[./]tcp_ecn\s*=\s*[\"']?1\b")
_TCP_ECN_PATH = re.compile(
    r"(?:echo|printf)\s+[\"']?1[\"']?\s*(?:>+|\|\s*(?:sudo\s+)?tee(?:\s+-a)?)\s*/proc/sys/net/ipv4/tcp_ecn\b"
)


def _sysctl(judge: Judge) -> None:
    for key in judge.reading.keys:
        if key.family == "sysctl" and key.key == "net.ipv4.tcp_ecn" and key.value.strip("\"' ") == "1":
            judge.report(
                "sysctl.tcp_ecn", key.start, f"{key.key} = {key.value}", edits=_without_key(judge, key.start, key.end)
            )
    for pattern in (_TCP_ECN, _TCP_ECN_PATH):
        for match in judge.found(pattern):
            line = judge.reading.lines.line(match.start())
            if not judge.has("sysctl.tcp_ecn", line):
                judge.report(
                    "sysctl.tcp_ecn", match.start(), match.group(), edits=_without_statement(judge, match.start())
                )


def _without_key(judge: Judge, start: int, end: int) -> tuple[Edit, ...]:
    from roadworthy.lint.edits import _line, _remove_block

    begin, stop, after = _line(judge.text, start)
    if judge.reading.kind == "sysctl" or (not judge.text[begin:start].strip() and ":" not in judge.text[begin:stop]):
        return (Edit(start=begin, end=after, text=""),)
    if judge.reading.kind == "yaml":
        return _remove_block(judge.text, start, end)
    return ()


def _without_statement(judge: Judge, at: int) -> tuple[Edit, ...]:
    """The whole line of a shell command that does nothing else."""
    from roadworthy.lint.edits import _line

    for command in judge.reading.commands:
        if command.start <= at < command.end:
            begin, stop, after = _line(judge.text, command.start)
            whole = (
                judge.text[begin : command.start].strip() in ("", "sudo") and not judge.text[command.end : stop].strip()
            )
            return (Edit(start=begin, end=after, text=""),) if whole and command.separator in ("\n", "") else ()
    return ()


# -- texts that mean one thing wherever they stand


# (word that has to be in the text, in small letters; rule; pattern; reason where the row's own does not fit)
_TEXTS: tuple[tuple[str, str, str, str], ...] = (
    ("event", "fabric.dmesg-0x4", r"(?i)async[ _]event[^\n]{0,12}0x0?4\b", ""),
    ("deadlock", "fw.PFC_DEADLOCK_DETECTION_EN", r"PFC_DEADLOCK_\w+(?:\s*=\s*\w+)?", ""),
    (
        "/sys/class/infiniband",
        "host.gid-table",
        r"/sys/class/infiniband/\S+?/ports/\S+?/(?:gid_attrs/(?:types|ndevs)|gids)/\d+",
        "Which index holds the RoCE v2 address differs by port and node.",
    ),
    (
        "_iommu=on",
        "host.acs-iommu",
        r"\b(?:intel|amd)_iommu=on\b(?![^\n]*iommu=pt)(?<!iommu=pt )",
        "The IOMMU without passthrough sends peer traffic through the CPU, unless this is a host of virtual machines.",
    ),
    (
        "mlx5_",
        "host.gpu-nic-numbering",
        r"\b(?:GPU|gpu|cuda:?)[ _-]?(\d+)[\"']?\s*(?:[:=]|->|=>)\s*[\"'\[]?mlx5_\1\b",
        "GPUs and NICs are numbered in the order of the PCI bus; which are near each other differs by vendor.",
    ),
    ("525.60", "vllm.fp8-kv-prereq", r"\b525\.60(?:\.13)?\b", ""),
    ("flash_attn", "proc.flash_attn-patch", r"vllm[./]attention[./]backends[./]flash_attn\b(?:\.py)?", ""),
    (
        "zrd",
        "proc.zrd",
        r"(?im)(?:(?<=[/\s\"'=])|^)zrd(?:[-_.][\w.-]+)?(?=[\s\"'/;.,)]|$)|\bZRD_\w+(?==)|\b(?:import|from)\s+zrd\b",
        "",
    ),
    ("gc", "vllm.admission-and-priority", r"/(?:v1/)?(?:force_gc|forceGC|force-gc|kv_gc|gc/force)\b", ""),
    (
        "kda",
        "gw.kda-redis",
        r"\b(?:KDA_(?:STATE_)?REDIS\w*|REDIS_KDA\w*|KDA_STATE_(?:STORE|BACKEND|CACHE)\w*|kda_state\w*redis\w*"
        r"|redis\w*kda_state\w*)|(?i:redis\w*\.(?:set|hset|mset|setex)\([^\n]*kda)",
        "",
    ),
)


_ECN_PATH = re.compile(r"/sys/class/net/(mlx5_\d+|ib\w*)/ecn/|/sys/class/net/(?![A-Z]+/)\S+/ecn/roce_[nr]p/enable/\d")
"""Switches of ECN; a name in capitals stands for an interface in a text."""


def _texts(judge: Judge) -> None:
    lowered = judge.code.lower()
    for word, rule, pattern, reason in _TEXTS:
        for match in judge.found(re.compile(pattern)) if word in lowered else ():
            line = judge.reading.lines.line(match.start())
            if not judge.has(rule, line):
                judge.report(rule, match.start(), match.group(), reason=reason)
    for match in judge.found(_ECN_PATH):
        infiniband = (
            judge.context.options.link_layer == "infiniband"
            or match.group(1)
            or re.search(r"\bibstat\b|opensm|LINK_TYPE_P\d=(?:1|IB)", judge.code)
        )
        if infiniband:
            judge.report(
                "roce.dcqcn",
                match.start(),
                match.group(),
                reason="ECN and DCQCN exist on Ethernet alone (and only with the NVIDIA driver stack); this fabric"
                " looks like InfiniBand.",
            )


_SYS_NET = re.compile(r"/sys/class/net/(?:(mlx5_\w+)|\$\{?(\w+)\}?)(?=/)")
_RDMA_SOURCE = re.compile(
    r"\b(?:ibstat\s+(?:-l|--list)|ibv_devices|ibdev2netdev|rdma\s+link)|mlx5_|/sys/class/infiniband"
)


def _infiniband_names(judge: Judge) -> None:
    for match in judge.found(_SYS_NET):
        name = match.group(2)
        if name is not None and not _from_rdma(judge, name):
            continue
        low = match.start() + len("/sys/class/")
        judge.report(
            "host.numa-sysfs",
            match.start(),
            judge.text[
                match.start() : judge.text.find("\n", match.start()) if "\n" in judge.text[match.start() :] else None
            ]
            .split(")")[0]
            .split()[0],
            edits=(Edit(start=low, end=low + len("net"), text="infiniband"),),
        )


def _from_rdma(judge: Judge, name: str) -> bool:
    """Whether a loop or an assignment fills the name with RDMA devices."""
    for command in judge.reading.commands:
        values = [word.value for word in command.words]
        if values[:3] == ["for", name, "in"] and any(_source(value) for value in values[3:]):
            return True
        if values[:1] == ["read"] and name in values and _pipe_has_source(judge, command):
            return True
    if re.search(rf"\bread\s+(?:-\w+\s+)*{name}\b", judge.code) and re.search(
        rf"(?:ibstat\s+-l|ibv_devices)[^\n]*\|\s*while\s+read[^\n]*\b{name}\b", judge.code
    ):
        return True
    if re.search(rf"\bread\b[^\n]*\b{name}\b[\s\S]*?done\s*<\s*<\([^\n]*(?:ibstat\s+-l|ibv_devices)", judge.code):
        return True
    return any(one.name == name and _source(one.raw) for one in judge.reading.env)


def _source(text: str) -> bool:
    return bool(_RDMA_SOURCE.search(text)) and "ibdev2netdev" not in text


def _pipe_has_source(judge: Judge, command: ShellCommand) -> bool:
    return any(
        _source(" ".join(word.value for word in one.words))
        for one in judge.reading.commands
        if one.pipe == command.pipe and one is not command
    )


def _index_pairs(judge: Judge) -> None:
    """CUDA_VISIBLE_DEVICES and NCCL_IB_HCA given together with the same numbers: GPU N with mlx5_N."""
    for devices in judge.reading.env:
        numbers = re.fullmatch(r"\d(?:,\d)*", devices.value or "") if devices.name == "CUDA_VISIBLE_DEVICES" else None
        if numbers is None or len(numbers.group()) > 13:
            continue
        wanted = devices.value.split(",") if devices.value else []
        for nics in judge.reading.env:
            if nics.name != "NCCL_IB_HCA" or nics.owner is not devices.owner:
                continue
            if re.findall(r"mlx5_(\d+)", nics.raw) == wanted:
                judge.report(
                    "host.gpu-nic-numbering",
                    nics.start,
                    f"CUDA_VISIBLE_DEVICES={devices.value} {nics.name}={nics.raw}",
                    reason="GPUs and NICs are numbered in the order of the PCI bus; GPU N is not near mlx5_N by name.",
                )
