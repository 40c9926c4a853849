"""``fabric.md``: what to check on NICs and switches, by link layer; commands to be read by a person before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.engine_environment import ECN_CAPABLE
from roadworthy.render.markdown import code, table

if TYPE_CHECKING:
    from roadworthy.render.topology import Topology
    from roadworthy.render.values import RenderInput

USUAL_DSCP = 26

_HEAD = """\
# The fabric of {name}

Nothing here runs by itself, and `apply.sh` touches none of it. Each setting must match the switches, so take this page
to the people who run them. Settings of a NIC made with `mlnx_qos` are gone after a reboot unless the driver's own
configuration keeps them.

## Which devices

RDMA names (`mlx5_0`) are not network interface names. The two are joined in `/sys/class/infiniband`:

```sh
{devices}
```

`nvidia-smi topo -m` shows which NIC is closest to each GPU: PIX or PXB. Numbers of GPUs and NICs do not run in step.
Name the compute NICs in `cluster.hcas`, and the sockets of the GPUs in `cluster.gpu_numa_nodes`."""

_LOOP = """\
for device in {devices}; do
  echo "$device: $(cat /sys/class/infiniband/"$device"/ports/1/link_layer)" \\
    "$(cat /sys/class/infiniband/"$device"/ports/1/rate)" \\
    "interface $(ls /sys/class/infiniband/"$device"/device/net 2>/dev/null)" \\
    "socket $(cat /sys/class/infiniband/"$device"/device/numa_node)"
done"""

_ETHERNET = """\
## Ethernet (RoCE)

For each compute NIC, look first:

```sh
for device in {devices}; do
  IF="$(ls /sys/class/infiniband/"$device"/device/net)"
  ethtool "$IF" | grep Speed
  ip -d link show "$IF"                # MTU 9000 on host and switch, or RDMA falls to 1024 bytes
  mlnx_qos -i "$IF"                    # trust state, PFC, buffers as they are
  cat /sys/class/net/"$IF"/ecn/roce_np/enable/{priority}   # 1: answers marks with congestion notifications
  cat /sys/class/net/"$IF"/ecn/roce_rp/enable/{priority}   # 1: slows down when it gets one
  cat /sys/class/net/"$IF"/ecn/roce_np/cnp_dscp    # DSCP of the notifications; the switches must put it first
done
```

The `ecn` paths come with NVIDIA's driver package; the kernel's own driver does not have them. Then, agreed with the
switches for DSCP {dscp} (priority {priority}):

```sh
for device in {compute}; do   # the compute NICs and no others
  IF="$(ls /sys/class/infiniband/"$device"/device/net)"
  mlnx_qos -i "$IF" --trust dscp            # priority follows DSCP, not a VLAN tag
  mlnx_qos -i "$IF" --pfc {pfc}   # pause for priority {priority} alone
  echo 1 > /sys/class/net/"$IF"/ecn/roce_np/enable/{priority}
  echo 1 > /sys/class/net/"$IF"/ecn/roce_rp/enable/{priority}
done
```

To take it back: `mlnx_qos -i "$IF" --trust pcp`, `mlnx_qos -i "$IF" --pfc 0,0,0,0,0,0,0,0`, and the values of `ecn`
that you saw before.

{traffic}

`cma_roce_tos` sets the class of connections made through RDMA-CM. NCCL does not make its own that way, so it changes
nothing here. `net.ipv4.tcp_ecn` is about TCP and changes nothing either.

A receiver that stalls and pauses its neighbours for ever is the NIC's own business to prevent: `ethtool --set-tunable
"$IF" pfc-prevention-tout 100` (milliseconds, 80 to 8000; 65535 is automatic), watched by `tx_pause_storm_error_events`
in `ethtool -S "$IF"`. Loops of pauses between switches are broken by the PFC watchdog of the switches.

Counters to keep an eye on, in `/sys/class/infiniband/DEVICE/ports/1/hw_counters`: `np_cnp_sent`, `rp_cnp_handled`,
`np_ecn_marked_roce_packets`, `out_of_sequence`. No fixed GID index is set anywhere: NCCL finds the RoCE v2 entry of the
fabric address itself, so each port needs one (`ports/1/gid_attrs/types/*`)."""

_INFINIBAND = """\
## InfiniBand

Links are lossless by credits: there is no PFC, ECN by DSCP or `mlnx_qos` to set. Look at:

```sh
ibstat                                 # Active, LinkUp, the full rate on every compute port
ibv_devinfo | grep -E 'hca_id|active_mtu'   # 4096 (5)
perfquery -x                           # no symbol errors, no link downs that grow
```

A service level is worth setting (`NCCL_IB_SL`) only where the subnet manager maps it to a lane of its own; adaptive
routing is the subnet manager's as well. Ask before setting either."""

_MEASURE = """\
## Measure before serving

```sh
ib_write_bw -d DEVICE --use_cuda=0 --use_cuda_dmabuf -a     # each pair of compute NICs, both ways
all_reduce_perf -b 8 -e 4G -f 2 -g 1                        # then all_gather, reduce_scatter, alltoall, sendrecv
```

With `NCCL_DEBUG=INFO` the log must say `via NET/IB` with `GDRDMA`; `NET/Socket` is TCP. GPUDirect needs DMA-BUF (open
kernel driver) or the module `nvidia_peermem`; on bare metal, PCIe ACS on the switches between GPU and NIC sends the
traffic through the CPU. Report that, and leave changing it to the owner of the host."""


def fabric_page(inputs: RenderInput) -> str:
    """The whole page: both link layers, unless the document says which."""
    cluster = inputs.deployment.cluster
    named = sorted({hca.partition(":")[0] for host in cluster.hosts for hca in host.hcas} | _base(cluster.hcas))
    devices = " ".join(named) if named else "$(ls /sys/class/infiniband)"
    parts = [_HEAD.format(name=inputs.deployment.name, devices=_LOOP.format(devices=devices))]
    if cluster.fabric != "infiniband":
        parts.append(_ethernet(cluster.roce_dscp, devices, " ".join(named) or "DEVICE ..."))
    if cluster.fabric != "ethernet":
        parts.append(_INFINIBAND)
    return "\n\n".join([*parts, _MEASURE]) + "\n"


_TOPOLOGY = """\
# GPUs, NICs and cores of a host of {name}

From `nvidia-smi topo -m` on one host; the others must be wired alike. A NIC is a GPU's own when both sit below one PCIe
switch (PIX, PXB).

{table}

{others}"""


def topology_page(inputs: RenderInput, topology: Topology) -> str:
    """``topology.md``: what belongs together, and which NICs serve something else."""
    rows = [
        (
            str(place.gpu),
            "unknown" if place.numa_node is None else str(place.numa_node),
            place.cores or "unknown",
            ", ".join(code(nic) for nic in place.nics) or "none near",
        )
        for place in topology.gpus
    ]
    others = ", ".join(code(nic) for nic in topology.other_nics)
    return _TOPOLOGY.format(
        name=inputs.deployment.name,
        table=table(("GPU", "socket (NUMA node)", "cores", "NICs of its own"), rows),
        others=f"Near no GPU, so for storage or management: {others}.\n" if others else "Every NIC is near a GPU.\n",
    )


def _base(hcas: tuple[str, ...]) -> set[str]:
    return {hca.partition(":")[0] for hca in hcas}


def _ethernet(dscp: int | None, devices: str, compute: str) -> str:
    used = USUAL_DSCP if dscp is None else dscp
    priority = used >> 3
    traffic_class = used << 2 | ECN_CAPABLE
    traffic = (
        f"Engines are started with `NCCL_IB_TC={traffic_class}`, which is DSCP {used} with ECN."
        if dscp is not None
        else f"The document states no `cluster.roce_dscp`, so engines send in the default class. With "
        f"`roce_dscp: {used}` they are started with `NCCL_IB_TC={traffic_class}`."
    )
    pfc = ",".join("1" if index == priority else "0" for index in range(8))
    return _ETHERNET.format(devices=devices, compute=compute, dscp=used, priority=priority, pfc=pfc, traffic=traffic)
