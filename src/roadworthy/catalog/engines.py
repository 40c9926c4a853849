"""Engine lines: which versions are known, what the engine does by default, and which settings it has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.catalog.data import read_catalog
from roadworthy.catalog.flags import FLAG_VERSIONS, flag_catalog
from roadworthy.core.errors import Unsupported
from roadworthy.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.catalog.gpus import Gpu

SettingKind = Literal["integer", "number", "switch", "text", "json", "list"]

ARGUMENTS_ONLY = frozenset({"config", "grpc", "headless"})
"""Flags that say how one process is started; no document holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLine:
    """One minor line of vLLM, such as 0.33.

    Args:
        latest: newest version of the line that these facts were checked on.
        gpu_memory_utilization: share of the device that the engine budgets when nothing is said.
    """

    line: str
    latest: str
    gpu_memory_utilization: float
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefaults:
    """Scheduler limits of `vllm serve` when nothing is said."""

    max_num_batched_tokens: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFact:
    """One setting.

    Args:
        choices: empty where any value of the kind goes.
        keys: allowed keys of a JSON object; empty where any key goes, or a JSON list.
    """

    name: str
    kind: SettingKind
    choices: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@lru_cache(maxsize=1)
def known_lines() -> tuple[EngineLine, ...]:
    """The lines whose memory rules are known, newest first."""
    return tuple(
        EngineLine(
            line=entry["line"], latest=entry["latest"], gpu_memory_utilization=entry["gpu_memory_utilization"],
            sources=MappingProxyType(entry["sources"]),
        )
        for entry in read_engines()["lines"]
    )  # fmt: skip


def engine_line(version: str) -> EngineLine:
    """The line of ``version`` (``0.33`` and ``0.33.1`` are both of 0.33). Raises Unsupported with the lines known."""
    wanted = ".".join(version.split(".")[:2])
    for line in known_lines():
        if line.line == wanted:
            return line
    known = ", ".join(line.line for line in known_lines())
    raise Unsupported(
        f"vLLM {version} is not in the catalog; lines known: {known}",
        hint=f"plan with {known_lines()[0].latest} and check the flags, if yours is near it",
    )


def batch_defaults(gpu: Gpu, *, tp: int = 1, pp: int = 1) -> BatchDefaults:
    """What `vllm serve` takes for the scheduler's limits on ``gpu``: by device memory, on the CPU by world size."""
    document = read_engines()
    if gpu.id == "cpu":
        rule = document["cpu_batch_defaults"]
        return BatchDefaults(
            max_num_batched_tokens=rule["max_num_batched_tokens"] * tp * pp, max_num_seqs=rule["max_num_seqs"] * tp * pp
        )
    for rule in document["batch_defaults"]:
        named = rule.get("except")
        if gpu.device_bytes >= rule["at_least_gib"] * GIB and not (named and named in gpu.id.lower()):
            return BatchDefaults(
                max_num_batched_tokens=rule["max_num_batched_tokens"], max_num_seqs=rule["max_num_seqs"]
            )
    raise ValueError("engines.yaml: the last rule of batch_defaults must take every device")


@lru_cache(maxsize=1)
def sequences_ceiling() -> int:
    """The largest ``max_num_seqs`` that `vllm serve` takes of itself, whatever the device."""
    return max(int(rule["max_num_seqs"]) for rule in read_engines()["batch_defaults"])


@lru_cache(maxsize=4)
def known_settings(version: str = FLAG_VERSIONS[0]) -> Mapping[str, SettingFact]:
    """Every setting of `vllm serve` in that version, by its Python spelling; the oldest list for an older engine."""
    try:
        catalog = flag_catalog(version)
    except Unsupported:
        catalog = flag_catalog(FLAG_VERSIONS[-1])
    facts = {}
    for flag in catalog.flags.values():
        if flag.setting not in ARGUMENTS_ONLY and flag.kind != "any":
            facts[flag.setting] = SettingFact(
                name=flag.setting,
                kind="list" if flag.repeated else flag.kind,
                choices=() if flag.kind == "list" else flag.choices,  # a document may not pass on a misspelling
                keys=() if flag.open_keys else tuple(flag.keys),
            )
    return MappingProxyType(facts)


@lru_cache(maxsize=1)
def read_engines() -> dict[str, Any]:
    """The engine file as it is; ``elsewhere`` and ``gone`` are for the vocabulary."""
    return read_catalog("engines")
