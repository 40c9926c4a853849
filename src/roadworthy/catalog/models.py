"""Models by name: shapes that memory and time need, in our own YAML, one file a model, each with its source.

A model asked for by id costs one small file; the index holds ids and aliases only. Any other model comes from its own
``config.json`` through :func:`model_from_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from roadworthy.catalog.architectures import ARCHITECTURES, model_from_config
from roadworthy.catalog.data import read_catalog
from roadworthy.catalog.quantisation import requantised
from roadworthy.core.errors import Unsupported
from roadworthy.spec.model import (
    DenseMlp,
    GqaAttention,
    KdaAttention,
    Layer,
    MlaAttention,
    ModelSpec,
    MoeMlp,
    V4Attention,
    VisionTower,
)

if TYPE_CHECKING:
    from roadworthy.spec.values import Weights

__all__ = ["ARCHITECTURES", "KnownModel", "known_models", "model_by_id", "model_from_config"]

_ATTENTION = {"gqa": GqaAttention, "mla": MlaAttention, "kda": KdaAttention, "v4": V4Attention}
_MLP = {"dense": DenseMlp, "moe": MoeMlp}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One line of the index. ``file`` is the catalog file's stem; ``repository`` the checkpoint it describes."""

    id: str
    file: str
    repository: str
    aliases: tuple[str, ...]


@lru_cache(maxsize=1)
def known_models() -> tuple[KnownModel, ...]:
    """Every model in the catalog, without reading their files."""
    return tuple(
        KnownModel(id=entry["id"], file=entry["file"], repository=entry["repository"], aliases=tuple(entry["aliases"]))
        for entry in read_catalog("models/index")["models"]
    )


def model_by_id(name: str, *, weights: Weights = "native") -> ModelSpec:
    """The catalog model called ``name``: its id, an alias or its repository, in any case.

    Raises Unsupported, with what is near and what is known.
    """
    wanted = name.lower()
    for known in known_models():
        if wanted in _names(known):
            return requantised(_build(read_catalog(f"models/{known.file}"), known), weights)
    names = sorted(name for known in known_models() for name in _names(known))
    close = get_close_matches(wanted, names, n=1, cutoff=0.6)
    known_ids = ", ".join(known.id for known in known_models())
    hint = f"did you mean {close[0]}?" if close else "or give the path of a checkpoint folder or config.json"
    raise Unsupported(f"model {name!r} is not in the catalog; known: {known_ids}", hint=hint)


def _names(known: KnownModel) -> set[str]:
    return {known.id.lower(), known.repository.lower(), *(alias.lower() for alias in known.aliases)}


def _build(document: Mapping[str, Any], known: KnownModel) -> ModelSpec:
    attention = {name: _part(_ATTENTION, fields) for name, fields in document["attention"].items()}
    mlps = {name: _part(_MLP, fields) for name, fields in document["mlp"].items()}
    layers: list[Layer] = []
    for run in document["layers"]:
        pattern = [Layer(attention=attention[first], mlp=mlps[second]) for first, second in run["of"]]
        layers += pattern * run["repeat"]
    vision = document.get("vision")
    return ModelSpec(
        id=known.id,
        layers=tuple(layers),
        vision=VisionTower(**vision) if vision else None,
        source=document["source"],
        **document["model"],
    )


def _part(kinds: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    return kinds[fields["kind"]](**{name: value for name, value in fields.items() if name != "kind"})
