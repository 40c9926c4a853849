"""``README.md`` beside the Ray scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.markdown import code, table
from roadworthy.render.scripts_readme import health, left_out, production

if TYPE_CHECKING:
    from roadworthy.render.engine_lines import Launch
    from roadworthy.render.values import RenderInput

_IMAGE = """\
vLLM does not bring Ray, and its image holds none. Every host needs the same vLLM, the same Python and the same Ray, for
example an image built from `vllm/vllm-openai:v{version}` with `ray[default]==2.60.0` added. Without a reason for Ray,
the target `vllm` starts the same engine with fewer parts."""

_STATUS = """\
Before serving, `ray status` on the head must list every host and GPU of the engine. `vllm serve` waits up to half an
hour for them. It runs on a host with GPUs on purpose: from a host without, the engine would take the defaults of a
small GPU and put its queues on the network."""

_CLOSED = """\
Ray's ports allow running code as this user. They belong on a network that only these hosts reach; the dashboard
listens on the loopback address alone. Where the network is not closed enough, Ray's own token keeps others out: `ray
get-auth-token --generate`, then `RAY_AUTH_MODE=token` for every script here. Ports: 6379 (join), 10002 to 19999
(workers), and free ones of Ray's choice."""

_LOST = """\
When a host is lost the engine ends, whatever Ray's own timeouts: stop `serve-*.sh`, let the host join again, start the
script again. `ray stop` ends the Ray of this user on the host; with `--force` it would kill every Ray process of the
machine, other people's too."""

_MEMORY = """\
Ray ends workers when a host's memory is 95 % full. Loading a checkpoint fills the page cache, which counts as free, but
keep 15 % of the memory unused by anything else."""


def readme(inputs: RenderInput, plan: Launch) -> str:
    """The whole page."""
    rows = []
    for line in plan.lines:
        hosts = ", ".join(str(host) for host in line.place.hosts)
        rows.append((str(line.replica), hosts, code(f"./serve-{line.replica}.sh"), str(line.host)))
    heads = sorted({line.place.head for line in plan.lines})
    parts = [
        f"# {inputs.deployment.name}: start with Ray",
        f"{code(inputs.deployment.model.served_name)} as {inputs.chosen.layout.label}, "
        f"vLLM {inputs.deployment.engine.version}.",
        _IMAGE.format(version=inputs.deployment.engine.version),
        "## Start",
        "1. On every host N, `./node-N.sh`. Heads first: host " + ", ".join(str(host) for host in heads) + ".",
        "2. " + _STATUS,
        "3. The engine, on the first of its hosts:",
        table(("engine", "its hosts", "run", "on host"), rows),
        "Scripts ask for `ROADWORTHY_MASTER_ADDR` (the engine's first host) where the document names no hosts, and "
        "find `ROADWORTHY_NODE_ADDR` and `ROADWORTHY_INTERFACE` from the route to it unless they are set.",
        "## See that it works",
        health(plan),
        "## Ports",
        _CLOSED,
        "## When a host is lost",
        _LOST,
        "## Memory",
        _MEMORY,
    ]
    if plan.left_out:
        parts += ["## Left out", left_out(plan)]
    return "\n\n".join([*parts, "## For production", production(inputs)]) + "\n"
