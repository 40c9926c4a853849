"""``README.md`` of host-prep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.markdown import table

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

_TEXT = """\
# Preparing the hosts of {name}

The same on every host. `./apply.sh --dry-run` shows what would be placed, `./apply.sh` places it, `./undo.sh` takes it
back and restores what was replaced. Firmware, sysctls, NICs and switches are not touched.

{files}

## Shared memory

Engines keep POSIX segments in `/dev/shm`; one that is killed leaves them. `shm-janitor.sh` lists the orphans and with
`--remove` removes them: only names that engines make, only files of the engines' account, none that changed within
ten minutes, none that any process of the host has open or mapped, and nothing at all while an engine runs. System V
tools (`ipcs`, `ipcrm`) see none of these segments, and would take other programs'. In containers, give each pod a
`/dev/shm` of its own: then a restart cleans up.

## Huge pages

Reserve none (`HugePages_Total: 0` in `/proc/meminfo`): neither vLLM nor NCCL nor Ray allocates from that pool, so what
is reserved is lost to the page cache that loading needs. Transparent huge pages may stay as the distribution sets them.

## Sockets

{numa}

## Host memory

`/dev/shm` needs 16 to 32 GiB for an engine's own queues. On a dedicated host leave 15 % of the memory unused by
anything but the page cache.

## Drivers

On NVSwitch hosts `nvidia-fabricmanager` must run in exactly the driver's version, or CUDA does not start. The wheels
and images of vLLM {version} are built for CUDA 13: driver branch r580 or newer. All hosts of an engine need the same
driver, vLLM and NCCL; the NCCL that counts is the one that PyTorch brings, named in the log.

## The fabric

`fabric.md` holds the checks of NICs and switches, and the commands to agree on with the network's owners."""

_BOUND = """\
Workers are bound to the socket of their GPU by vLLM itself: `--numa-bind`, with the sockets of
`cluster.gpu_numa_nodes`. That needs `numactl` on the host, or in the image together with the capability SYS_NICE. Do
not wrap the server in `numactl`: every worker would land on one socket, and vLLM's own binding would be wrong."""
_UNBOUND = """\
Workers are not bound to sockets: the document does not say which GPU is on which, or all are on one. With
`cluster.gpu_numa_nodes` (one number for each GPU, from `nvidia-smi topo -m`) the start files say `--numa-bind`. Do not
wrap the server in `numactl`: every worker would land on one socket."""


def readme(inputs: RenderInput) -> str:
    """The whole page."""
    rows = (
        ("`limits.conf`", "`/etc/security/limits.d/90-roadworthy.conf`", "always; for scripts started from a login"),
        ("`shm-janitor.sh`", "`/usr/local/lib/roadworthy/`", "always; runs when you run it"),
        ("`shm-janitor.service`, `.timer`", "`/etc/systemd/system/`", "with `--janitor`: every half hour"),
        ("`ray-unit.conf`", "drop-in of the unit", "with `--ray-unit UNIT.service`, the unit that runs `ray start`"),
    )
    bound = len(set(inputs.deployment.cluster.gpu_numa_nodes)) > 1 and inputs.gpu.id != "cpu"
    text = _TEXT.format(
        name=inputs.deployment.name,
        files=table(("file", "goes to", "when"), rows),
        numa=_BOUND if bound else _UNBOUND,
        version=inputs.deployment.engine.version,
    )
    return text + "\n"
