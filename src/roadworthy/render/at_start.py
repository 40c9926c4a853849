"""Values that no document can hold, because they differ from host to host or are secret: filled in at start.

A setting carries one of these as its value; each target spells it its own way: a shell variable, a field reference of
Kubernetes, a variable of systemd.
"""

from __future__ import annotations

from enum import StrEnum


class AtStart(StrEnum):
    """What is filled in. The text is what a person reads in ``render --explain``."""

    MASTER_ADDRESS = "<address of the engine's first host>"
    OWN_ADDRESS = "<this host's own cluster address>"
    INTERFACE = "<this host's management interface>"
    EXACT_INTERFACE = "=<this host's management interface>"
    RAY_ADDRESS = "<address of the engine's first host>:6379"
    MODEL = "<checkpoint folder on this host>"
