"""Ray: how a cluster is started, stopped and pinned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB
from roadworthy.lint.edits import remove_flag
from roadworthy.lint.values import Edit

if TYPE_CHECKING:
    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.values import Flag, Invocation

OBJECT_STORE_LIMIT_BYTES = 4 * GIB
_FIRST_ADDRESS = re.compile(r"hostname\s+-[iI]\b")
_SYSTEM_CONFIG = {
    "num_heartbeats_timeout": "ray.num_heartbeats_timeout",
    "heartbeat_timeout_milliseconds": "ray.heartbeat_timeout",
    "raylet_heartbeat_period_milliseconds": "ray.heartbeat_timeout",
}


def check_ray(judge: Judge) -> None:
    for invocation in judge.reading.invocations:
        if invocation.program == "ray start":
            _start(judge, invocation)
        elif invocation.program == "ray stop":
            _stop(judge, invocation)
    _params(judge)
    _install(judge)
    _system_config(judge)


def _start(judge: Judge, invocation: Invocation) -> None:
    for flag in invocation.flags:
        if flag.name == "--object-store-memory" and not flag.dynamic:
            _object_store(judge, flag)
        elif flag.name == "--dashboard-host" and flag.value in ("0.0.0.0", "::") and invocation.place == "shell":
            judge.report(
                "ray.start-head",
                flag.word.start,
                flag.text,
                reason="The dashboard runs code for whoever reaches it; keep it off the network.",
                replacement="--dashboard-host 127.0.0.1",
                edits=_loopback(flag),
            )
        elif flag.name == "--node-ip-address":
            _address(judge, flag)
    if invocation.flag("--head") is not None and (gpus := invocation.value("--num-gpus")) == "0":
        servers = [one for one in judge.reading.servers() if judge.context.uses_ray(one)]
        if servers:
            given = invocation.flag("--num-gpus")
            judge.report(
                "ray.driver-node",
                given.word.start if given is not None else invocation.start,
                f"--num-gpus {gpus}",
                reason="vLLM is started on this node, which has no GPU for Ray: rank 0 lands elsewhere and defaults"
                " are those of small GPUs.",
            )


def _loopback(flag: Flag) -> tuple[Edit, ...]:
    from roadworthy.lint.edits import replace_value

    return replace_value(flag.value_words[0], "127.0.0.1")


def _object_store(judge: Judge, flag: Flag) -> None:
    value = (flag.value or "").replace("_", "")
    if not value.isdecimal() or int(value[:20]) <= OBJECT_STORE_LIMIT_BYTES:
        return
    judge.report(
        "ray.start-head",
        flag.word.start,
        flag.text,
        reason=f"{int(value[:20]) / GIB:.0f} GiB of shared memory for objects that vLLM does not use: its tensors"
        f" go through NCCL and its own"
        " queues.",
        replacement="leave it out, or 2 to 4 GiB",
        edits=remove_flag(judge.text, flag),
    )


def _address(judge: Judge, flag: Flag) -> None:
    raw = " ".join(word.value for word in flag.value_words)
    written = judge.text[flag.word.start : max([word.end for word in flag.values], default=flag.word.end)]
    name = re.search(r"\$\{?(\w+)\}?", written)
    given = next((one for one in judge.reading.env if name and one.name == name.group(1)), None)
    if not _FIRST_ADDRESS.search(raw) and not (given is not None and _FIRST_ADDRESS.search(given.raw)):
        return
    edits: tuple[Edit, ...] = ()
    own = next(
        (one for one in judge.reading.env if one.name == "VLLM_HOST_IP" and not _FIRST_ADDRESS.search(one.raw)), None
    )
    if own is not None and own.start < flag.word.start and own.place == "shell" and given is None and flag.value_words:
        word = flag.value_words[0]
        begin = word.start if flag.inline is None else word.piece.at(0)
        end = word.end
        if judge.text[begin:end].startswith('"') or not judge.text[begin:end].endswith('"'):
            edits = (Edit(start=begin, end=end, text='"$VLLM_HOST_IP"'),)
    judge.report(
        "ray.start-worker-ip",
        flag.word.start,
        f"{flag.name} {raw}",
        edits=edits,
    )


def _stop(judge: Judge, invocation: Invocation) -> None:
    flag = invocation.flag("--force", "-f")
    if flag is None:
        return
    inside = invocation.place in ("pod", "compose", "unit", "dockerfile") or any(
        one.program.split(" ")[0] in ("docker", "podman", "nerdctl", "kubectl", "oc") for one in invocation.wrappers
    )
    if not inside:
        judge.report("ray.stop-force", flag.word.start, "ray stop --force", edits=remove_flag(judge.text, flag))


def _params(judge: Judge) -> None:
    for key in judge.reading.keys:
        if key.family != "rayStartParams":
            continue
        if key.section not in ("str", "bool", "null") or (key.section == "bool" and key.word is not None):
            word = key.word
            edits: tuple[Edit, ...] = ()
            if word is not None and word.value:
                edits = (Edit(start=word.start, end=word.end, text=f"'{word.value}'"),)
            judge.report(
                "k8s.head-8-gpu",
                key.start,
                f"rayStartParams.{key.key}: {key.value}",
                reason="Values of rayStartParams are strings; the operator refuses a bare number or boolean.",
                replacement=f"{key.key}: '{key.value}'",
                edits=edits,
            )
        value = key.value.replace("_", "")
        if key.key == "object-store-memory" and value.isdecimal() and int(value[:20]) > OBJECT_STORE_LIMIT_BYTES:
            from roadworthy.lint.edits import _remove_block

            judge.report(
                "ray.start-head",
                key.start,
                f"rayStartParams.object-store-memory: {key.value}",
                reason=f"{int(value[:20]) / GIB:.0f} GiB of shared memory for objects that vLLM does not use.",
                replacement="leave it out, or 2 to 4 GiB",
                edits=_remove_block(judge.text, key.start, key.end)
                if key.word is not None and key.word.layout == "yaml-block"
                else (),
            )


_PIP_RAY = re.compile(
    r"pip\S*\s+install\b[^\n;&|]*?(?<![\w.-])[\"']?(ray(?:\[[\w,\s-]+\])?)([=<>~!]{1,2}[^\s\"';&|]*)?[\"']?(?=[\s;&"
    r"|\\]|$)",
    re.MULTILINE,
)


def _install(judge: Judge) -> None:
    for match in judge.found(_PIP_RAY):
        if match.group(2) and re.fullmatch(r"===?\d+\.\d+\.\d+", match.group(2)):
            continue
        judge.report(
            "ray.version",
            match.start(1),
            f"pip install {match.group(1)}{match.group(2) or ''}",
            reason="Ray (and Python) must be the same on every node to the last digit; this takes whichever is"
            " newest on the day.",
            replacement=f"{match.group(1)}==2.60.0, in one image for every node",
            edits=(Edit(start=match.end(1), end=match.end(1), text="==2.60.0"),) if not match.group(2) else (),
        )


def _system_config(judge: Judge) -> None:
    for match in judge.found(re.compile(rf"[\"'\\]*\b({'|'.join(_SYSTEM_CONFIG)})\b[\"'\\]*\s*:\s*\d+")):
        judge.report(_SYSTEM_CONFIG[match.group(1)], match.start(1), match.group().strip("\"'\\ "))
