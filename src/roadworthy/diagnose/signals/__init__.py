"""Every message that means something, by who prints it. Add one here, and name it in a cause."""

from __future__ import annotations

from functools import lru_cache

from roadworthy.diagnose.scan import SignalIndex
from roadworthy.diagnose.signals import cluster, engine, nccl, probes

SIGNALS = (*nccl.SIGNALS, *engine.SIGNALS, *cluster.SIGNALS, *probes.SIGNALS)


@lru_cache(maxsize=1)
def signal_index() -> SignalIndex:
    """All signals by literal."""
    return SignalIndex(SIGNALS)
