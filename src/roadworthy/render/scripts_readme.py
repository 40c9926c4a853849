"""``README.md`` beside the start scripts: which one runs where, what to set, how to see that it works, how to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.markdown import code, table

if TYPE_CHECKING:
    from roadworthy.render.engine_lines import Launch, ServeLine
    from roadworthy.render.values import RenderInput


def readme(inputs: RenderInput, plan: Launch) -> str:
    """The whole page."""
    layout = inputs.chosen.layout
    hosts = sorted({line.host for line in plan.lines})
    parts = [
        f"# {inputs.deployment.name}: start with `vllm serve`",
        f"{code(inputs.deployment.model.served_name)} as {layout.label} on {_count(len(hosts), 'host')}, "
        f"vLLM {inputs.deployment.engine.version}. "
        + _shape(plan),
        "## Start",
        _start(plan, hosts),
        "## What to set",
        _variables(inputs, plan),
        "## Ports",
        _ports(plan),
        "## See that it works",
        health(plan),
        "## Stop",
        "Send SIGTERM to the script on every host (Ctrl-C in its terminal, `kill`, `systemctl stop`). Requests in "
        "progress may end; new ones are refused. An engine over several hosts lives as a whole: when one of its hosts "
        "is lost, stop the others and start all of them again.",
    ]  # fmt: skip
    if plan.left_out:
        parts += ["## Left out", left_out(plan)]
    parts += ["## For production", production(inputs)]
    return "\n\n".join(parts) + "\n"


def _shape(plan: Launch) -> str:
    engines = {line.replica for line in plan.lines}
    nodes = max(line.nodes for line in plan.lines)
    if nodes > 1:
        return f"{_count(len(engines), 'engine')}, each over {nodes} hosts with vLLM's own multi-node start."
    return f"{_count(len(engines), 'engine')}, each within one host."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number > 1 else "")


def _start(plan: Launch, hosts: list[int]) -> str:
    rows = []
    for host in hosts:
        lines = plan.on_host(host)
        roles = "; ".join(
            f"engine {line.replica}, " + (f"node {line.node_rank} of {line.nodes}" if line.nodes > 1 else "whole")
            for line in lines
        )
        rows.append((str(host), code(f"./node-{host}.sh"), roles))
    text = table(("host", "run", "what it is"), rows)
    if any(line.nodes > 1 for line in plan.lines):
        text += (
            "\n\nThe hosts of one engine may start in any order, within a few minutes of each other: each waits for "
            "the first. Every host needs the same vLLM, NCCL and driver, and the checkpoint at the same path."
        )
    return text


def _variables(inputs: RenderInput, plan: Launch) -> str:
    values = {
        value
        for line in plan.lines
        for value in (line.model, *(setting.value for setting in (*line.arguments, *line.variables)))
        if isinstance(value, AtStart)
    }
    model = "the checkpoint folder" if AtStart.MODEL in values else code(plan.lines[0].model)
    rows = [
        ("`ROADWORTHY_MODEL`", "needed" if AtStart.MODEL in values else model, "hub id or folder of the checkpoint"),
        ("`ROADWORTHY_API_KEY_FILE`", "none", "file with the key that requests must carry; or set `VLLM_API_KEY`"),
        ("`ROADWORTHY_BIN`", "none", "folder of `vllm`, when it is not on the path"),
    ]
    if AtStart.MASTER_ADDRESS in values:
        known = all(AtStart.MASTER_ADDRESS in line.known for line in plan.lines)
        given = "from the document" if known else "needed"
        rows.append(("`ROADWORTHY_MASTER_ADDR`", given, "the engine's first host; the same on all its hosts"))
    if AtStart.OWN_ADDRESS in values:
        rows += [
            ("`ROADWORTHY_NODE_ADDR`", _own(plan), "this host's own address"),
            ("`ROADWORTHY_INTERFACE`", _interface(plan), "the interface of that address"),
        ]
    text = table(("variable", "default", "what it is"), rows)
    if AtStart.MASTER_ADDRESS in values and not inputs.deployment.cluster.hcas and inputs.gpu.id != "cpu":
        text += "\n\n" + HCA_REMARK
    return text


HCA_REMARK = (
    "NCCL chooses the NICs itself, by PCIe distance. Where storage or management NICs are RDMA devices too, name the "
    "compute NICs in `cluster.hcas`: `nvidia-smi topo -m` shows which NIC is PIX or PXB to each GPU, "
    "`ls /sys/class/infiniband` their names. The scripts then set `NCCL_IB_HCA` in its exact form."
)


def _own(plan: Launch) -> str:
    known = all(AtStart.OWN_ADDRESS in line.known for line in plan.lines)
    return "from the document" if known else "source address of the route to the first host"


def _interface(plan: Launch) -> str:
    known = all(AtStart.INTERFACE in line.known for line in plan.lines)
    return "from the document" if known else "the one that has the address"


def _ports(plan: Launch) -> str:
    rows = [
        (str(line.host), str(line.place.port), f"HTTP of engine {line.replica}: `/v1`, `/health`, `/metrics`")
        for line in plan.endpoints
    ]
    several = [line for line in plan.lines if line.nodes > 1]
    rows += [(str(line.host), str(line.place.master_port), "where the ranks meet") for line in several if line.head]
    text = table(("host", "port", "what"), rows)
    if several:
        text += (
            "\n\nThe ranks also use free ports of the system's choice. Open the network between the hosts of an engine "
            "as a whole and close it to everything else: none of it is authenticated."
        )
    return text


def health(plan: Launch) -> str:
    """How to see that every engine answers."""
    first = plan.endpoints[0]
    rows = "\n".join(f"curl --fail http://{_address(line)}:{line.place.port}/health" for line in plan.endpoints)
    return (
        f"```sh\n{rows}\n```\n\nA checkpoint of hundreds of gigabytes takes tens of minutes to load; until then "
        f"nothing listens on port {first.place.port}. For an engine over several hosts the log must name the fast "
        "network (`NET/IB`) at `NCCL_DEBUG=INFO`; `NET/Socket` means that RDMA was not found."
    )


def _address(line: ServeLine) -> str:
    if line.known.get(AtStart.OWN_ADDRESS):
        address = line.known[AtStart.OWN_ADDRESS]
        return f"[{address}]" if ":" in address else address
    return "127.0.0.1" if line.nodes == 1 and line.host == 0 else f"HOST-{line.host}"


def left_out(plan: Launch) -> str:
    """Settings that no line carries, with the reason."""
    rows = [
        (code(setting.name + ("" if setting.value is None else f" {setting.value}")), setting.why)
        for setting in plan.left_out
    ]
    return table(("setting", "why"), rows)


PADDED_TP, K3_EXPERT_WIDTH = 16, 3072
"""K3 pads an expert's share below 256 columns, which 3072 over 16 ranks is (`vllm/models/kimi_k3/nvidia/model.py`)."""


def production(inputs: RenderInput) -> str:
    """What a generator cannot decide."""
    model = inputs.deployment.model.config
    lines = [
        "- Serve a folder on local disks or a parallel file system instead of a hub id, checked against known digests: "
        "set `ROADWORTHY_MODEL`."
        if not model.startswith("/")
        else "- The checkpoint must be at the same path on every host; check it against known digests.",
        "- Allocator variables (`PYTORCH_CUDA_ALLOC_CONF`), `NCCL_ALGO`, `NCCL_PROTO`, `NCCL_NET_GDR_LEVEL` and a "
        "fixed GID index are left to their defaults on purpose: each of them is known to break or slow such an engine.",
    ]
    layout = inputs.chosen.layout
    if inputs.model.family == "deepseek_v4" and layout.pp > 1:
        lines.append(
            f"- The engine accepts {layout.label}, but no published recipe of this model uses stages (they use "
            "TP, or TP with DP and expert parallelism): try it with your own traffic first, or render another layout."
        )
    if inputs.model.family == "kimi_k3" and layout.ep == 1 and layout.tp >= PADDED_TP:
        lines.append(
            f"- Without expert parallelism at TP{layout.tp}, expert weights are padded to 256 columns a rank and take "
            f"{256 * layout.tp / K3_EXPERT_WIDTH:.2f} times their memory: set `enable_expert_parallel: true`."
        )
    if inputs.deployment.cluster.nodes > 1 and inputs.gpu.id != "cpu":
        lines.append(
            "- `roadworthy render --target host-prep` writes what the hosts need: locked memory, checks of the NICs."
        )
    return "\n".join(lines)
