"""Manifests held against real schemas, and strictly: a field that the schema does not name is an error."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

KUBERNETES_VERSIONS = ("1.33.0", "1.37.0")
CORE_GROUPS = {"v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1"}


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a file, read as Kubernetes reads them."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def problems_of(manifest: dict[str, Any], crds: Path | None) -> list[str]:
    """What is wrong with one object; empty when it is right. ``crds`` is the folder of custom resources' schemas."""
    if manifest["apiVersion"] in CORE_GROUPS:
        return _core_problems(manifest)
    assert crds is not None, f"no schema for {manifest['apiVersion']}"
    validator = jsonschema.Draft202012Validator(_crd(crds, manifest["apiVersion"], manifest["kind"]))
    return [
        f"{'/'.join(map(str, found.absolute_path))}: {found.message[:300]}" for found in validator.iter_errors(manifest)
    ]


def is_core(manifest: dict[str, Any]) -> bool:
    return manifest["apiVersion"] in CORE_GROUPS


def _core_problems(manifest: dict[str, Any]) -> list[str]:
    found = []
    for version in KUBERNETES_VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version}: {'/'.join(map(str, error.path))}: {error.message[:300]}")
    return found


@lru_cache(maxsize=32)
def _crd(folder: Path, api: str, kind: str) -> dict[str, Any]:
    schema = json.loads((folder / f"{api.replace('/', '_')}_{kind}.json").read_text())
    strict: dict[str, Any] = _strict(schema, top=True)
    return strict


def _strict(schema: Any, *, top: bool = False) -> Any:
    """The schema with every object closed that lists its properties, as the API server prunes or refuses the rest."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: _strict(one) for name, one in value.items()} if key == "properties" else _strict(value)
        for key, value in schema.items()
        if key not in {"enum", "default", "example"}
    }
    closed |= {key: schema[key] for key in ("enum",) if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        if top:
            closed["properties"] = {"apiVersion": {}, "kind": {}, "metadata": {}} | closed["properties"]
            closed["properties"]["metadata"] = _METADATA
        closed["additionalProperties"] = False
    return closed


_METADATA = {
    "type": "object",
    "required": ["name", "namespace"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"},
        "namespace": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
