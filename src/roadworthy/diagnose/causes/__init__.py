"""Every root cause, by group. Adding one is one entry and its test cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose.causes import cluster, engine, gpu, host, network

if TYPE_CHECKING:
    from roadworthy.diagnose.cause import Cause

CAUSES = (*network.CAUSES, *host.CAUSES, *gpu.CAUSES, *engine.CAUSES, *cluster.CAUSES)


def cause_of(code: str) -> Cause | None:
    """The cause with its ways to confirm, its risk and what to capture."""
    return next((one for one in CAUSES if one.code == code), None)
