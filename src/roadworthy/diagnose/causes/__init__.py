"""Every root cause, by group. Adding one is one entry and its test cases."""

from __future__ import annotations

from roadworthy.diagnose.causes import cluster, engine, gpu, host, network

CAUSES = (*network.CAUSES, *host.CAUSES, *gpu.CAUSES, *engine.CAUSES, *cluster.CAUSES)
