"""Target ``host-prep``: what a host needs before an engine starts, and how to take it back.

Two kinds of things, kept apart. Files of this host (limits, a drop-in for Ray, the janitor of shared memory) are placed
by ``apply.sh`` and taken away by ``undo.sh``. What belongs to the network (ECN, PFC, DSCP) must agree with the
switches, so it is text for the people who run them; nothing here changes a NIC, firmware, sysctl or switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.emit import field
from roadworthy.render.host_prep_fabric import fabric_page, topology_page
from roadworthy.render.host_prep_janitor import JANITOR, JANITOR_SERVICE, JANITOR_TIMER
from roadworthy.render.host_prep_readme import readme
from roadworthy.render.host_prep_scripts import APPLY, UNDO
from roadworthy.render.ray_scripts import HEALTH
from roadworthy.render.shell import comment
from roadworthy.render.values import Artifact, Emitted

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

RAY_OOM_SCORE = -500

LIMITS = (
    Emitted(
        kind="limit", name="memlock", value="unlimited", source="host.memlock",
        why="RDMA and pinned buffers register memory; under a limit NCCL fails or falls back to TCP",
    ),
    Emitted(
        kind="limit", name="nofile", value=1_048_576,
        why="sockets of ranks and clients, and shards of the checkpoint, count together",
    ),
)  # fmt: skip

RAY_UNIT = (
    field(
        "OOMScoreAdjust", RAY_OOM_SCORE,
        "keeps raylet and GCS; Ray gives its workers +1000 itself, so the memory hogs still go first",
        "ray.oom_score_adj",
    ),
    field("LimitMEMLOCK", "infinity", "workers are its children and register memory for RDMA", "host.memlock"),
)  # fmt: skip


def host_prep_target(inputs: RenderInput) -> tuple[Artifact, ...]:
    """The files of ``host-prep``: the same on every host."""
    return (
        Artifact(path="limits.conf", text=_limits(), settings=LIMITS),
        Artifact(path="ray-unit.conf", text=_ray_unit(), settings=(*RAY_UNIT, *HEALTH)),
        Artifact(path="shm-janitor.sh", text=JANITOR, mode=0o755),
        Artifact(path="shm-janitor.service", text=JANITOR_SERVICE),
        Artifact(path="shm-janitor.timer", text=JANITOR_TIMER),
        Artifact(path="apply.sh", text=APPLY, mode=0o755),
        Artifact(path="undo.sh", text=UNDO, mode=0o755),
        Artifact(path="fabric.md", text=fabric_page(inputs)),
        *((Artifact(path="topology.md", text=topology_page(inputs, inputs.topology)),) if inputs.topology else ()),
        Artifact(path="README.md", text=readme(inputs)),
    )


def _limits() -> str:
    lines = [
        comment("Limits of the engines' account, for scripts started from a login (PAM). Units have their own."),
        comment("apply.sh puts the account's name in place of @USER@."),
    ]
    for setting in LIMITS:
        lines.append(comment(setting.why))
        lines += [f"@USER@ {kind} {setting.name} {setting.value}" for kind in ("soft", "hard")]
    return "\n".join(lines) + "\n"


def _ray_unit() -> str:
    lines = [comment("Drop-in for the unit that runs `ray start --block`."), "[Service]"]
    for setting in RAY_UNIT:
        lines += [comment(setting.why), f"{setting.name}={setting.value}"]
    for setting in HEALTH:
        lines += [comment(f"{setting.why}. Read by the head alone"), f"Environment={setting.name}={setting.value}"]
    return "\n".join(lines) + "\n"
