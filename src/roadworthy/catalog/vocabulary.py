"""What the catalog knows of the names in a document: GPUs, models, engine versions and settings.

It is the :class:`~roadworthy.spec.load.Vocabulary` of every command, so that a misspelt GPU stands in the same list
of problems as a misspelt key.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from roadworthy.catalog.engines import SettingFact, engine_line, known_settings, read_engines
from roadworthy.catalog.gpus import gpu_by_name, known_gpus
from roadworthy.catalog.models import known_models
from roadworthy.core.errors import Unsupported
from roadworthy.spec.kinds import WrongValueError, did_you_mean
from roadworthy.spec.values import Scalar, looks_like_a_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class CatalogVocabulary:
    """Names judged by the catalog.

    Args:
        is_checkpoint: whether a ``model.config`` that is no catalog id is a file or folder that can be read; left out,
            anything that looks like a path passes.
    """

    def __init__(self, *, is_checkpoint: Callable[[str], bool] = looks_like_a_path) -> None:
        self._is_checkpoint = is_checkpoint

    def gpu(self, name: str) -> str:
        """The catalog's id of the GPU."""
        try:
            return gpu_by_name(name).id
        except Unsupported as unknown:
            known = ", ".join(gpu.id for gpu in known_gpus())
            raise WrongValueError(f"a GPU of the catalog: {known}", hint=unknown.hint) from unknown

    def model(self, config: str) -> str:
        """``config`` itself: the model is looked up when it is needed."""
        names = {name.lower() for known in known_models() for name in (known.id, known.repository, *known.aliases)}
        if config.lower() in names or self._is_checkpoint(config):
            return config
        if looks_like_a_path(config):
            raise WrongValueError(
                "a checkpoint folder or config.json that exists", hint="paths are relative to the document"
            )
        shown = tuple(sorted({name for known in known_models() for name in (known.id, known.repository)}))
        near = did_you_mean(config, shown)
        raise WrongValueError(
            f"a catalog id ({', '.join(known.id for known in known_models())}) or a path to a checkpoint",
            hint=near
            if near.startswith("did")
            else "`roadworthy models` lists the catalog; a path begins with / or ./",
        )

    def version(self, version: str) -> str:
        """The version in full: a line stands for its newest."""
        try:
            line = engine_line(version)
        except Unsupported as unknown:
            raise WrongValueError("a version whose rules are known: " + _lines(), hint=unknown.hint) from unknown
        return line.latest if version == line.line else version

    def setting(self, version: str, name: str, value: Scalar) -> Scalar:
        """The value in the setting's own type."""
        with suppress(Unsupported):
            version = engine_line(version).latest
        facts = known_settings(version)
        fact = facts.get(name)
        home = read_engines()["elsewhere"].get(name)
        if home is not None:
            raise WrongValueError(f"{home} in the document instead", hint=f"move it to {home}")
        if fact is None:
            raise WrongValueError(f"a setting of vLLM {version}", hint=_instead(name, facts))
        return _typed(fact, value)


def _lines() -> str:
    return ", ".join(line["line"] for line in read_engines()["lines"])


def _instead(name: str, facts: Mapping[str, SettingFact]) -> str:
    spelt = name.lstrip("-").replace("-", "_")
    gone: str | None = read_engines()["gone"].get(spelt)
    if gone is not None:
        return gone
    if spelt in facts:
        return f"write it as {spelt}"
    if spelt.startswith("no_") and spelt[3:] in facts:
        return f"write it as {spelt[3:]}: false"
    near = did_you_mean(spelt, tuple(facts))
    return near or "see `vllm serve --help=all` of your version"


def _typed(fact: SettingFact, value: Scalar) -> Scalar:
    if value is None:
        return None
    if fact.choices:
        if str(value) not in fact.choices:
            shown = ", ".join(fact.choices[:8]) + (", …" if len(fact.choices) > 8 else "")
            raise WrongValueError(f"one of {shown}", hint=did_you_mean(str(value), fact.choices))
        return str(value)
    match fact.kind:
        case "switch":
            if not isinstance(value, bool):
                raise WrongValueError("true or false")
        case "integer":
            if isinstance(value, bool) or not isinstance(value, int):
                raise WrongValueError("a whole number")
        case "number":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise WrongValueError("a number")
        case "json":
            _check_json(fact, value)
        case "list":
            raise WrongValueError(
                "a setting of one value", hint=f"start the engine yourself to give {fact.flag} several"
            )
        case "text":
            if isinstance(value, bool):
                raise WrongValueError("text", hint=f'quote it: "{str(value).lower()}"')
    return _in_range(fact.name, value)


def _check_json(fact: SettingFact, value: Scalar) -> None:
    wanted = "a JSON object as text" if fact.keys else "JSON as text"
    try:
        parsed = json.loads(str(value))
    except (ValueError, RecursionError) as error:
        raise WrongValueError(wanted, hint=f"""such as {fact.name}: '{{"key": 1}}'""") from error
    if not isinstance(parsed, dict if fact.keys else (dict, list)):
        raise WrongValueError(wanted, hint=f"""such as {fact.name}: '{{"key": 1}}'""")
    for key in parsed if fact.keys else ():
        if key not in fact.keys and key.replace("-", "_") not in fact.keys:
            near = did_you_mean(key, fact.keys)
            raise WrongValueError(f"keys of {fact.flag} in it, and {key} is none", hint=near)


_POSITIVE = frozenset({
    "max_num_seqs", "max_num_batched_tokens", "block_size", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "kv_cache_memory_bytes",
})  # fmt: skip


def _in_range(name: str, value: Scalar) -> Scalar:
    if name == "gpu_memory_utilization" and isinstance(value, (int, float)) and not 0 < value <= 1:
        raise WrongValueError(
            "a share above 0 and up to 1, such as 0.92", hint=f"write {value / 100:g}" if 1 < value <= 100 else ""
        )
    if name in _POSITIVE and isinstance(value, int) and not 1 <= value <= 2**63:
        raise WrongValueError("a whole number from 1")
    return value
