"""The keys of ``cluster`` that only start files need: which hosts, which NICs, which sockets."""

from __future__ import annotations

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, ListOf, Section
from roadworthy.spec.values import Host

_INTERFACE = kinds.text("the name of a network interface", r"[A-Za-z0-9_.@-]{1,15}", example="ens3f0")
_HCA = kinds.text(
    "an RDMA device, with a port where it has several",
    r"[A-Za-z0-9_-]{1,63}(?::[0-9]{1,2})?",
    example="mlx5_0",
    hint="`ls /sys/class/infiniband` on the host lists them",
)

HOST = Section(
    cls=Host,
    doc="One node, in order of its rank.",
    fields=(
        Field(
            key="address",
            attribute="address",
            doc="Its address on the network that the nodes share, the one engines call each other by.",
            value=kinds.text(
                "a host name or address, without port",
                r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*",
                example="10.0.0.11",
            ),
        ),
        Field(
            key="interface",
            attribute="interface",
            value=_INTERFACE,
            doc="Interface that has the address, where it differs from `cluster.interface`.",
        ),
        Field(
            key="hcas",
            attribute="hcas",
            value=ListOf(item=_HCA, most=64),
            doc="Its compute NICs, where they differ from `cluster.hcas`.",
        ),
    ),
)

HOST_FIELDS = (
    Field(
        key="hosts",
        attribute="hosts",
        value=ListOf(item=HOST, most=4096),
        doc="The nodes by name; left out, start files ask for addresses when they run.",
    ),
    Field(
        key="interface",
        attribute="interface",
        value=_INTERFACE,
        doc="Management interface of the nodes; left out, it is found from the node's address.",
    ),
    Field(
        key="hcas",
        attribute="hcas",
        value=ListOf(item=_HCA, most=64),
        doc="Compute NICs of every node as RDMA names them (`mlx5_0`), storage and management NICs left out.",
    ),
    Field(
        key="fabric",
        attribute="fabric",
        value=kinds.choice("infiniband", "ethernet"),
        doc="Link layer of the compute NICs: what congestion control there is follows it.",
    ),
    Field(
        key="gpu_numa_nodes",
        attribute="gpu_numa_nodes",
        value=ListOf(item=kinds.whole_number(least=0, most=255, example="0", what="a NUMA node"), most=256),
        doc="NUMA node of each GPU of a node, in the order of the GPUs, as `nvidia-smi topo -m` prints them.",
    ),
    Field(
        key="roce_dscp",
        attribute="roce_dscp",
        value=kinds.whole_number(least=0, most=63, example="26", what="a DSCP value"),
        doc="DSCP that the switches keep lossless for RDMA over Ethernet.",
    ),
)
