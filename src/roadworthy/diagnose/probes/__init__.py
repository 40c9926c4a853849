"""Readers of small documents: the output of probes, tables, manifests. A reader gives nothing for what is not its kind."""

from __future__ import annotations

from roadworthy.diagnose.probes import capture, cluster, gpu, host, rdma, rows

PROBES = (*rdma.PROBES, *host.PROBES, *gpu.PROBES, *cluster.PROBES, *rows.PROBES, *capture.PROBES)
