"""The catalog's own YAML files, read from the installed package: the only files that a pure layer opens."""

from __future__ import annotations

import pkgutil
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml is some ten times faster, and a plan has to answer within a second of a cold start."""


def catalog_text(name: str) -> str:
    """What is in ``catalog/NAME``. `importlib.resources` would do the same, and take 25 ms to be imported."""
    data = pkgutil.get_data("roadworthy.catalog", name)
    assert data is not None, f"{name}: the package's loader gives no data"
    return data.decode("utf-8")


def read_catalog(name: str) -> dict[str, Any]:
    """The mapping in ``catalog/NAME.yaml``."""
    document: dict[str, Any] = yaml.load(catalog_text(f"{name}.yaml"), Loader=_LOADER)
    return document
