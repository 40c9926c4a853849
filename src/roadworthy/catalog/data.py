"""The catalog's own YAML files, read from the installed package: the only files that a pure layer opens."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml is some ten times faster, and a plan has to answer within a second of a cold start."""


def read_catalog(name: str) -> dict[str, Any]:
    """The mapping in ``catalog/NAME.yaml``."""
    text = (files("roadworthy.catalog") / f"{name}.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(text, Loader=_LOADER)
    return document
