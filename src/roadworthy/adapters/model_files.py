"""From the document's ``model`` section to a shape: a catalog id, or a checkpoint folder or config.json here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.files import read_text
from roadworthy.catalog.models import model_by_id, model_from_config
from roadworthy.core.errors import Problem, SpecError, Unsupported

if TYPE_CHECKING:
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import ModelRef

CONFIG_BYTES_MAX = 4 * 2**20
"""A config.json is a few kilobytes; anything near this is another file."""


def resolve_model(ref: ModelRef, *, base: Path) -> ModelSpec:
    """The model that ``ref`` names.

    A name without a slash is a catalog id first, so that a folder of the same name cannot shadow it; anything else is
    a path relative to ``base`` (the document's folder) if it exists there, then a repository name of the catalog.

    Raises:
        SpecError: no such file, not JSON, or fields that cannot be right.
        Unsupported: an id, architecture or quantisation that is not known here.
        ProbeError: the file is there and cannot be read.
    """
    place = (base / Path(ref.config).expanduser()) if ref.config else base
    looks_like_path = "/" in ref.config or ref.config.endswith(".json")
    if not looks_like_path or not place.exists():
        try:
            return model_by_id(ref.config, weights=ref.weights)
        except Unsupported:
            if not place.exists():
                if looks_like_path:
                    raise _missing(ref, place) from None
                raise
    return _from_files(ref, place)


class _TwiceError(Exception):
    """A key that an object of the file has twice; JSON readers would silently take the last."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read: dict[str, object] = {}
    for key, value in pairs:
        if key in read and read[key] != value:
            raise _TwiceError(key)
        read[key] = value
    return read


def _missing(ref: ModelRef, place: Path) -> SpecError:
    return SpecError(
        f"model.config: there is no {place}",
        problems=(
            Problem(
                path="model.config",
                seen=ref.config,
                wanted="a checkpoint folder, a config.json or a catalog id",
                hint="paths are relative to the document; `roadworthy models` lists the ids",
            ),
        ),
    )


def _from_files(ref: ModelRef, place: Path) -> ModelSpec:
    file = place / "config.json" if place.is_dir() else place
    text = read_text(file, what="a model's config.json", limit_bytes=CONFIG_BYTES_MAX)
    try:
        config = json.loads(text, object_pairs_hook=_once)
    except _TwiceError as error:
        raise SpecError(
            f"{file}: a field is there twice",
            problems=(
                Problem(
                    path=str(error), seen="twice, with different values", wanted="each field once",
                    hint="keep the value of the config.json published beside the weights",
                ),
            ),
        ) from None  # fmt: skip
    except (ValueError, RecursionError) as error:  # ValueError also of a number with thousands of digits
        where = f" line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise SpecError(
            f"{file}:{where} not JSON: {getattr(error, 'msg', None) or error}",
            hint="was the file cut off while it was copied?",
        ) from error
    if not isinstance(config, dict):
        raise SpecError(f"{file}: a {type(config).__name__}, wanted a JSON object with the model's fields")
    folder = file.resolve().parent
    name = folder.name if file.name == "config.json" and folder.name else file.stem
    return model_from_config(config, model_id=name, weights=ref.weights, source=str(file))
