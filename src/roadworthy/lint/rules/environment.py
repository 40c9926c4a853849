"""Environment variables of vLLM, PyTorch and Ray, wherever they are set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.catalog.truth import STATUSES, Status, truth_rows
from roadworthy.lint.edits import remove_variable, rename_variable, replace_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.values import Edit, EnvVar

_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}$")
_FIRST_ADDRESS = re.compile(r"hostname\s+-[iI]\b")


def check_environment(judge: Judge) -> None:
    for variable in judge.reading.env:
        check = _BY_NAME.get(variable.name)
        if check is not None:
            check(judge, variable)
        elif variable.name.startswith("NVIDIA_REQUIRE"):
            _cuda_requirement(judge, variable)
        else:
            _unknown(judge, variable)
    _allocator(judge)
    _propagation(judge)


_SCRIPT_OWN = re.compile(
    r".*_(?:ARGS|OPTS|OPTIONS|FLAGS|PARAMS|IMAGE|TAG|VERSION|CMD|COMMAND|BIN|DIR|HOME|PATH|NAME|PID|LOG|LOGFILE|URL"
    r"|FILE)$"
)
_OWN_RULE = {
    "vllm": "vllm.unknown-env",
    "nccl": "nccl.unknown-env",
    "ray": "ray.unknown-env",
    "torch": "torch.unknown-env",
}


def _unknown(judge: Judge, variable: EnvVar) -> None:
    """A name with the prefix of vLLM, NCCL, Ray or PyTorch that none of them reads, where it reaches a process."""
    if not variable.name.startswith(("VLLM_", "NCCL_", "RAY_", "PYTORCH_")) or not _reaches(judge, variable):
        return
    answer = judge.context.environment.explain(variable.name)
    if answer.accepted or answer.status in ("unknown", "real") or answer.owner is None:
        return
    rule = answer.row_id or _family(variable.name) or _OWN_RULE.get(answer.owner, "")
    if not rule:
        return
    row = truth_rows().get(rule)
    edits = rename_variable(variable, answer.renamed_to) if answer.renamed_to else remove_variable(judge.text, variable)
    judge.report(
        rule,
        variable.start,
        f"{variable.name}={variable.raw}",
        status=row.status
        if row is not None and row.status not in ("real", "context_dependent")
        else _word(answer.status),
        reason=answer.reason if not (row is not None and not answer.row_id) else "",
        replacement=answer.replacement or ("leave it out" if row is None else None),
        edits=edits if _surely_dead(answer.replacement, answer.renamed_to) else (),
    )


def _word(status: str) -> Status:
    return next((word for word in STATUSES if word == status), "never_existed")


def _surely_dead(replacement: str, renamed_to: str | None) -> bool:
    """A misspelling of a real name is for a person to mend: taking it out would not do what was meant."""
    return renamed_to is not None or "did you mean" not in replacement


def _family(name: str) -> str:
    from roadworthy.lint.rules.flags import family_of

    return family_of("--" + name.partition("_")[2].lower().replace("_", "-"))


def _reaches(judge: Judge, variable: EnvVar) -> bool:
    """Whether the variable gets to a process, rather than being the script's own."""
    if _SCRIPT_OWN.match(variable.name) or re.search(rf"\$\{{?{re.escape(variable.name)}\b", judge.text):
        return False
    if variable.place != "shell" or variable.owner is not None:
        return True
    if judge.reading.kind == "env":
        return True
    return bool(
        re.search(
            rf"^[^#\n]*\b(?:export|declare\s+-x)\b[^#\n]*\b{re.escape(variable.name)}\b|^\s*set\s+-\w*a",
            judge.text,
            re.MULTILINE,
        )
    )


def _host_ip(judge: Judge, variable: EnvVar) -> None:
    if variable.dynamic:
        if _FIRST_ADDRESS.search(variable.raw):
            judge.report(
                "env.VLLM_HOST_IP",
                variable.start,
                f"VLLM_HOST_IP={variable.raw}",
                reason="`hostname -I` has no fixed order: its first address may be a bridge's, IPoIB's or that of"
                " storage.",
                replacement="the address of the interface on the cluster network, such as `ip -o route get HEAD_IP`"
                " gives it",
            )
        return
    if not _ADDRESS.match(variable.value or ""):
        return
    own = any(
        (rank := one.flag("--node-rank", "-r")) is not None and (rank.value or "").isdecimal() and not rank.dynamic
        for one in judge.reading.servers()
    )
    if own and variable.place in ("shell", "docker", "env-file", "unit"):
        return  # the file is one node's own
    many = variable.place in ("pod", "compose")
    judge.report(
        "env.VLLM_HOST_IP",
        variable.start,
        f"VLLM_HOST_IP={variable.value}",
        reason="Every pod of the template would claim this one address."
        if many
        else "Right on the node that has this address alone: it is never copied to Ray workers, and must not be"
        " copied with the file.",
        replacement="valueFrom: fieldRef: status.podIP" if many else "each node's own address on the cluster network",
    )


def _visible_devices(judge: Judge, variable: EnvVar) -> None:
    value = (variable.value or "").replace(" ", "")
    if not re.fullmatch(r"\d+(?:,\d+)*", value):
        return
    devices = value.split(",")
    servers = judge.context.servers_of(variable)
    total = {degrees.world for one in servers if not one.fragment and (degrees := judge.context.degrees(one)).world}
    several = any((judge.context.degrees(one).nnodes or 1) > 1 or judge.context.uses_ray(one) for one in servers)
    if total == {len(devices)} and len(devices) < 8 and not several and variable.place not in ("pod",):
        return  # a server on part of the node
    if len(devices) >= 8:
        reason = "Listing every GPU changes nothing; on Kubernetes the device plugin decides."
    elif variable.place == "pod":
        reason = "On Kubernetes the device plugin decides which GPUs a pod sees."
    else:
        reason = "It picks GPUs, not NICs; NCCL finds the near NIC by PCIe distance."
    judge.report(
        "env.CUDA_VISIBLE_DEVICES",
        variable.start,
        f"CUDA_VISIBLE_DEVICES={variable.value}",
        reason=reason,
        edits=remove_variable(judge.text, variable) if len(devices) >= 8 else (),
    )


def _ray_dag(judge: Judge, variable: EnvVar) -> None:
    context = judge.context
    if context.version_is_known and context.environment.find(variable.name) is not None:
        return
    judge.report(
        "env.ray-dag-vars",
        variable.start,
        f"{variable.name}={variable.raw}",
        replacement="leave it out",
        edits=remove_variable(judge.text, variable),
    )


def _spawn(judge: Judge, variable: EnvVar) -> None:
    if variable.value != "fork":
        return
    servers = judge.context.servers_of(variable)
    binds = [one for one in servers if one.flag("--numa-bind") is not None]
    if servers and not binds and not any(one.fragment or one.unexpanded for one in servers):
        return
    judge.report(
        "env.numa-spawn",
        variable.start,
        "VLLM_WORKER_MULTIPROC_METHOD=fork",
        reason="With fork --numa-bind is skipped with a warning; left unset, `vllm serve` picks spawn."
        + ("" if binds else " Whether --numa-bind is given is not to be seen here."),
        replacement="leave it out",
        edits=remove_variable(judge.text, variable),
    )


def _memory_threshold(judge: Judge, variable: EnvVar) -> None:
    try:
        share = float(variable.value or "")
    except ValueError:
        return
    if share < 0.9 or share > 0.97:
        judge.report(
            "ray.memory-monitor",
            variable.start,
            f"{variable.name}={variable.value}",
            reason=f"Ray kills its workers once the node's memory is {share:.0%} full, page cache of the weights"
            + (
                " included: loading alone may reach it." if share < 0.9 else ", which leaves too little for the kernel."
            ),
        )


def _heartbeat(judge: Judge, variable: EnvVar) -> None:
    judge.report(
        "ray.heartbeat_timeout",
        variable.start,
        f"{variable.name}={variable.raw}",
        edits=rename_variable(variable, "RAY_health_check_timeout_ms", "30000"),
    )


def _heartbeats(judge: Judge, variable: EnvVar) -> None:
    judge.report(
        "ray.num_heartbeats_timeout",
        variable.start,
        f"{variable.name}={variable.raw}",
        edits=rename_variable(variable, "RAY_health_check_failure_threshold", "10"),
    )


def _gid_index(judge: Judge, variable: EnvVar) -> None:
    if re.fullmatch(r"\d+", variable.value or ""):
        judge.report(
            "host.gid-table",
            variable.start,
            f"{variable.name}={variable.value}",
            reason="Which index holds the RoCE v2 address of the fabric differs by port and node; extra addresses,"
            " VLANs and"
            " containers shift it.",
        )


def _cuda_requirement(judge: Judge, variable: EnvVar) -> None:
    value = variable.value or ""
    cuda = re.search(r"cuda\s*>=\s*(\d+)", value)
    driver = re.search(r"driver\s*>=\s*(\d+)", value)
    if (cuda and int(cuda.group(1)) < 13) or (driver and int(driver.group(1)) < 580):
        judge.report(
            "vllm.fp8-kv-prereq",
            variable.start,
            f"{variable.name}={value}",
            edits=remove_variable(judge.text, variable),
        )


_BY_NAME: dict[str, Callable[[Judge, EnvVar], None]] = {
    "VLLM_HOST_IP": _host_ip,
    "CUDA_VISIBLE_DEVICES": _visible_devices,
    "VLLM_WORKER_MULTIPROC_METHOD": _spawn,
    "RAY_memory_usage_threshold": _memory_threshold,
    "RAY_heartbeat_timeout_milliseconds": _heartbeat,
    "RAY_num_heartbeats_timeout": _heartbeats,
    "UCX_IB_GID_INDEX": _gid_index,
    "NVSHMEM_IB_GID_INDEX": _gid_index,
    **dict.fromkeys(
        (
            "VLLM_USE_RAY_SPMD_WORKER",
            "VLLM_USE_RAY_COMPILED_DAG",
            "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE",
            "VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM",
            "VLLM_USE_RAY_COMPILED_DAG_NCCL_CHANNEL",
            "VLLM_USE_RAY_V2_EXECUTOR_BACKEND",
            "VLLM_USE_RAY_WRAPPED_PP_COMM",
        ),
        _ray_dag,
    ),
}


# -- PyTorch's allocator


def _allocator(judge: Judge) -> None:
    for variable in judge.reading.env:
        if variable.name not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            continue
        options = _options(variable.raw)
        expandable = options.get("expandable_segments", "").lower() == "true"
        if expandable:
            _expandable(judge, variable)
        if expandable and "max_split_size_mb" in options:
            judge.report(
                "torch.max_split_size_mb",
                variable.start,
                f"{variable.name}={variable.raw}",
                edits=_without(judge, variable, "max_split_size_mb", alone=False),
            )
        for option, value in options.items():
            _option(judge, variable, option, value)
        plain = not judge.context.mentions_vllm and not any(one.name.startswith("VLLM_") for one in judge.reading.env)
        if variable.name == "PYTORCH_CUDA_ALLOC_CONF" and plain and judge.context.options.engine_version is None:
            judge.report(
                "torch.PYTORCH_ALLOC_CONF",
                variable.start,
                f"{variable.name}={variable.raw}",
                reason="PyTorch 2.13 and later call it PYTORCH_ALLOC_CONF; the old name is still read, and is the"
                " one that vLLM 0.33's"
                " guard looks at.",
                replacement="PYTORCH_ALLOC_CONF for plain PyTorch; keep the name for vLLM 0.33 (--engine says that"
                " it is)",
            )


_TORCH_OPTIONS = frozenset({
    "expandable_segments", "max_split_size_mb", "garbage_collection_threshold", "roundup_power2_divisions",
    "backend", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "pinned_num_register_threads",
    "pinned_use_background_threads", "max_non_split_rounding_mb", "pinned_reserve_segment_size_mb",
    "graph_capture_record_stream_reuse", "per_process_memory_fraction", "throw_on_cudamalloc_oom",
    "pinned_max_register_threads", "pinned_max_power2_size_mb",
})  # fmt: skip


def _option(judge: Judge, variable: EnvVar, option: str, value: str) -> None:
    if variable.dynamic or not re.fullmatch(r"[a-z_0-9]+", option):
        return
    if option not in _TORCH_OPTIONS:
        judge.report(
            "torch.unknown-env",
            variable.start,
            f"{variable.name}={variable.raw}",
            reason=f"PyTorch refuses the option {option}.",
        )
    elif option == "expandable_segments" and value not in ("True", "False"):
        judge.report(
            "torch.unknown-env",
            variable.start,
            f"{variable.name}={variable.raw}",
            reason=f"expandable_segments is True or False, in this case; PyTorch refuses {value!r}.",
        )


def _options(raw: str) -> dict[str, str]:
    pairs = re.split(r",(?![^\[]*\])", raw.strip())
    return {name.strip(): value.strip() for name, _, value in (pair.partition(":") for pair in pairs) if name.strip()}


def _expandable(judge: Judge, variable: EnvVar) -> None:
    context = judge.context
    servers = context.servers_of(variable)
    connector = any(
        one.flag("--kv-transfer-config", "--kv-offloading-size") is not None
        or any(f.name.startswith("--kv-transfer-config.") for f in one.flags)
        for one in servers
    )
    safe = servers and all(
        one.flag("--disable-custom-all-reduce") is not None for one in servers if not one.fragment or len(servers) == 1
    )
    single = servers and all(context.degrees(one).tp == 1 for one in servers)
    if (safe or single) and not connector:
        return
    reason = ""
    if connector:
        reason = (
            "A KV connector or KV offloading needs memory that expandable segments cannot register: vLLM 0.33"
            " refuses the old name of"
            " the variable, and the new name only slips past its check."
        )
    judge.report(
        "torch.expandable-segments",
        variable.start,
        f"{variable.name}={variable.raw}",
        reason=reason,
        edits=_without(judge, variable, "expandable_segments", alone=True),
    )


def _without(judge: Judge, variable: EnvVar, option: str, *, alone: bool) -> tuple[Edit, ...]:
    """The variable without one of its options; without the pair that contradict each other when both are there."""
    options = _options(variable.raw)
    left = [name for name in options if name != option and not (alone and name == "max_split_size_mb")]
    if not left:
        return remove_variable(judge.text, variable)
    if variable.word is None or variable.dynamic:
        return ()
    match = re.search(rf"(?:^|,)\s*{option}\s*:[^,]*", variable.word.value)
    if match is None:
        return ()
    end = match.end()
    if match.start() == 0 and variable.word.value[end : end + 1] == ",":
        end += 1
    return replace_part(variable.word, match.start(), end, "")


# -- what reaches Ray's workers


_OF_THE_FABRIC = ("NCCL_IB_", "NCCL_SOCKET_", "NCCL_NET", "NCCL_CROSS_NIC", "NCCL_ALGO", "NCCL_PROTO")


def _propagation(judge: Judge) -> None:
    reading, context = judge.reading, judge.context
    ray = [one for one in reading.servers() if context.uses_ray(one)]
    starts = [one for one in reading.invocations if one.program == "ray start"]
    if ray and not starts and reading.kind == "shell":
        for variable in reading.env:
            exported = variable.owner is None or variable.place == "shell"
            if (
                variable.name.startswith(_OF_THE_FABRIC)
                and exported
                and variable.place == "shell"
                and not variable.dynamic
            ):
                judge.report(
                    "env.ray-propagation",
                    variable.start,
                    f"{variable.name}={variable.raw}",
                    reason="Set in the driver's shell alone. Ray gives it to workers only where they have no value"
                    " of their own, and"
                    " the raylets of other nodes do not have it.",
                )
                return
    for document in reading.documents:
        if document.text("kind") in ("RayCluster", "RayService"):
            _cluster_environment(judge, document.get("spec", "rayClusterConfig") or document.get("spec"))


def _cluster_environment(judge: Judge, spec: object) -> None:
    from roadworthy.lint.yaml_source import Item

    if not isinstance(spec, Item):
        return
    head, workers = spec.get("headGroupSpec"), spec.get("workerGroupSpecs")
    if head is None or workers is None:
        return
    inside = [
        one
        for one in judge.reading.env
        if head.start <= one.start < head.end and one.name.startswith(("NCCL_", "GLOO_"))
    ]
    others = [
        one
        for one in judge.reading.env
        if workers.start <= one.start < workers.end and one.name.startswith(("NCCL_", "GLOO_"))
    ]
    if inside and not others and "envFrom" not in judge.text[workers.start : workers.end]:
        first = inside[0]
        judge.report(
            "env.ray-propagation",
            first.start,
            f"{first.name}={first.raw}",
            reason="Set on the head alone; the pods of the worker groups start without it.",
            replacement="the same variables in every group's template",
        )
