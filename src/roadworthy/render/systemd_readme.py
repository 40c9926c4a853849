"""``README.md`` beside the units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.markdown import code, table
from roadworthy.render.names import object_name
from roadworthy.render.scripts_readme import health, left_out, production

if TYPE_CHECKING:
    from roadworthy.render.engine_lines import Launch
    from roadworthy.render.values import RenderInput

_INSTALL = """\
1. Copy `node-N/` to host N and run `sudo ./install.sh` there. It places scripts, units and the account, and starts
   nothing.
2. Fill in `{folder}/engine.env`: the one place for the key and for addresses, which root alone can read.
3. Enable and start the units of each host, as `install.sh` says at its end:

{units}

`journalctl -fu UNIT` follows the load. On the host that answers HTTP the unit is `active` once the engine is; until
then it is `activating`."""

_WHY = """\
An engine that fails is started again after a pause, up to four times in two hours; then its unit stays down and says
so. Wrong arguments, a missing address or program are not tried again.{several}

The hardening of the units leaves GPUs, RDMA devices and compiling kernels alone, on purpose: `PrivateDevices=`,
`ProtectClock=`, `DeviceAllow=` and `MemoryDenyWriteExecute=` each keep an engine from starting. Checkpoints may be
anywhere that the account `roadworthy` can read."""

_SEVERAL = """ An engine over several hosts is lost as a whole: the hosts that are left may wait for the lost one
instead of ending, so restart the unit on all hosts of that engine."""


def readme(inputs: RenderInput, plan: Launch) -> str:
    """The whole page."""
    name = object_name(inputs.deployment.name)
    rows = [
        (str(line.host), code(f"systemctl enable --now roadworthy-{name}-engine-{line.replica}.service"))
        for line in sorted(plan.lines, key=lambda line: (line.host, line.replica))
    ]
    install = _INSTALL.format(folder=f"/etc/roadworthy/{name}", units=table(("host", "run as root"), rows))
    parts = [
        f"# {inputs.deployment.name}: units for systemd",
        f"{code(inputs.deployment.model.served_name)} as {inputs.chosen.layout.label}, "
        f"vLLM {inputs.deployment.engine.version}. One unit for each engine on each host.",
        "## Install",
        install,
        "## See that it works",
        health(plan),
        "## What the units do",
        _WHY.format(several=_SEVERAL if any(line.nodes > 1 for line in plan.lines) else ""),
    ]
    if plan.left_out:
        parts += ["## Left out", left_out(plan)]
    return "\n\n".join([*parts, "## For production", production(inputs)]) + "\n"
