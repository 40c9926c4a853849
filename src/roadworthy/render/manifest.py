"""``manifest.json``: which files a rendering wrote, so that the next one can tell its own from foreign ones."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.render.values import Artifact

NAME = "manifest.json"


def manifest(artifacts: Sequence[Artifact]) -> str:
    """``[{path, sha256, node}]`` in order of path; ``node`` is null for what belongs to no single host.

    Raises ValueError when two artifacts claim one path, or one claims the manifest's own.
    """
    return json.dumps(entries(artifacts), indent=2) + "\n"


def entries(artifacts: Sequence[Artifact]) -> list[dict[str, str | int | None]]:
    """The manifest's entries as plain data."""
    paths = [artifact.path for artifact in artifacts]
    if len(set(paths)) != len(paths) or NAME in paths:
        raise ValueError(f"artifacts with one path: {sorted(paths)}")
    return [
        {"path": artifact.path, "sha256": hashlib.sha256(artifact.text.encode()).hexdigest(), "node": artifact.node}
        for artifact in sorted(artifacts, key=lambda artifact: artifact.path)
    ]
