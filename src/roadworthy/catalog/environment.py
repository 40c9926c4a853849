"""Environment variables of an engine host: whose they are, whether anybody reads them, what to set instead.

vLLM's come from its own list (``scripts/extract_flags.py``), those of NCCL, Ray and PyTorch from the names in their
binaries (``scripts/extract_environment.py``) and from guides. A name that vLLM, NCCL or Ray do not hold is read by
nobody. The lists of the others are known in part (PyTorch's without its CUDA library): a name that is not there is
*unknown*, never wrong.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from roadworthy.catalog.data import catalog_text, read_catalog
from roadworthy.catalog.flags import FLAG_VERSIONS, flag_catalog, read_flags
from roadworthy.catalog.setting_notes import environment_notes
from roadworthy.catalog.truth import Status, truth_rows
from roadworthy.spec.kinds import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

Owner = Literal["vllm", "nccl", "ray", "torch", "cuda", "gloo", "ucx", "nvshmem", "huggingface"]
OWNERS: tuple[Owner, ...] = get_args(Owner)

COMPLETE: frozenset[Owner] = frozenset({"vllm", "nccl", "ray"})
"""Owners whose every variable is in the list."""

_OWNERS: Mapping[str, Owner] = MappingProxyType({
    "VLLM": "vllm", "TORCH": "torch", "TORCHINDUCTOR": "torch", "TORCHDYNAMO": "torch", "PYTORCH": "torch",
    "NCCL": "nccl", "RAY": "ray", "CUDA": "cuda", "GLOO": "gloo", "UCX": "ucx", "NVSHMEM": "nvshmem",
    "HF": "huggingface", "TRANSFORMERS": "huggingface",
})  # fmt: skip
"""By what stands before a name's first underscore."""
_SHOWN: Mapping[Owner, str] = MappingProxyType({
    "vllm": "vLLM", "nccl": "NCCL", "ray": "Ray", "torch": "PyTorch", "cuda": "CUDA", "gloo": "Gloo", "ucx": "UCX",
    "nvshmem": "NVSHMEM", "huggingface": "Hugging Face",
})  # fmt: skip

_NOT_THE_OWNERS = re.compile(
    r"NCCL_(GPUDIRECTTCPX|FASTRAK|SHIMNET|UCX|INSPECTOR|PROFILE|SHARP|TUNER_CONFIG|PLUGIN|IBEXT|TESTS)_.*"
    r"|NCCL_(PLUGIN_P2P|IBEXT_DISABLE)|VLLM_(ASCEND|OMNI|SPYRE|GAUDI|HPU|TPU|NEURON)_.*"
    r"|.*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT(_[0-9]+_(TCP|UDP)(_.*)?)"
)
"""Names with an owner's prefix that plug-ins read, or that Kubernetes injects for a Service of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFact:
    """One variable that somebody reads.

    Args:
        values: what it takes, in a few words; empty where that is not known here.
        choices: allowed values, empty where any of the kind goes.
        default: as text; empty where unset means "decided by the library".
        since: first version of its owner that reads it; empty where that is not known here.
        listed: False for a vLLM variable that its own check of the environment calls unknown.
    """

    name: str
    owner: Owner
    values: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    since: str = ""
    listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableAnswer:
    """What to think of a name; fields as in :class:`~roadworthy.catalog.flags.FlagAnswer`.

    Args:
        status: a word of the truth table, or ``unknown`` where the list of its owner is not complete.
        owner: whose it is by its prefix, None for a name of nobody here.
        accepted: whether somebody reads it.
    """

    name: str
    status: Status | Literal["unknown"]
    owner: Owner | None
    accepted: bool
    reason: str
    replacement: str = ""
    renamed_to: str | None = None
    source: str = ""
    row_id: str = ""


class EnvironmentCatalog:
    """The variables around one engine version. Get it from :func:`environment_catalog`."""

    def __init__(self, *, version: str, variables: Mapping[str, VariableFact], read_from: Mapping[Owner, str]) -> None:
        self.version, self.variables, self.read_from = version, variables, read_from

    def find(self, name: str) -> VariableFact | None:
        """The variable of exactly that name, or None: names of variables have one spelling."""
        return self.variables.get(name)

    def complete(self, owner: Owner) -> bool:
        """Whether the list of that owner holds every name it reads."""
        return owner in COMPLETE

    def explain(self, name: str) -> VariableAnswer:
        """Whether anybody reads ``name``, and if not, what became of it and what to set instead."""
        fact = self.find(name)
        owner = fact.owner if fact else owner_of(name)
        note = environment_notes().get(name)
        if note is not None and (fact is not None or note.gone):
            row = truth_rows()[note.row_id] if note.row_id else None
            return VariableAnswer(
                name=name,
                status=note.status,
                owner=owner,
                accepted=fact is not None,
                reason=note.reason or (row.why if row else ""),
                replacement=note.replacement or (row.instead if row and note.status != "real" else ""),
                renamed_to=note.renamed_to,
                source=note.source or (row.source if row else ""),
                row_id=note.row_id,
            )
        if fact is not None:
            return self._read(fact)
        return self._unread(name, owner)

    def _read(self, fact: VariableFact) -> VariableAnswer:
        shown = self.read_from.get(fact.owner, _SHOWN[fact.owner])
        verb = "read" if " and " in shown else "reads"
        unlisted = "" if fact.listed else "; it is not on vLLM's own list, so --fail-on-environ-validation refuses it"
        return VariableAnswer(
            name=fact.name, status="real", owner=fact.owner, accepted=True, reason=f"{shown} {verb} it{unlisted}",
            source=f"names read by {shown}",
        )  # fmt: skip

    def _unread(self, name: str, owner: Owner | None) -> VariableAnswer:
        if owner is None:
            return VariableAnswer(
                name=name, status="unknown", owner=None, accepted=False, reason="no variable of an owner known here",
                replacement=self._near(name),
            )  # fmt: skip
        if _NOT_THE_OWNERS.fullmatch(name):
            return VariableAnswer(
                name=name, status="unknown", owner=owner, accepted=False,
                reason=f"not read by {_SHOWN[owner]} itself: a plug-in's variable, or one of a Kubernetes Service",
            )  # fmt: skip
        if not self.complete(owner):
            return VariableAnswer(
                name=name, status="unknown", owner=owner, accepted=False,
                reason=f"not among the variables of {_SHOWN[owner]} known here, and the list is not complete",
                replacement=self._near(name),
            )  # fmt: skip
        elsewhere = [one for one in FLAG_VERSIONS if owner == "vllm" and name in read_flags(one)["environment"]]
        if elsewhere:
            return VariableAnswer(
                name=name,
                status="context_dependent" if elsewhere[0] > self.version else "removed",
                owner=owner,
                accepted=False,
                reason=f"vLLM {', '.join(elsewhere)} reads it, {self.version} does not",
                replacement="leave it out",
                source="vllm/envs.py of both versions",
            )
        return VariableAnswer(
            name=name,
            status="never_existed",
            owner=owner,
            accepted=False,
            reason=f"no variable of {self.read_from[owner]}: nobody reads it",
            replacement=self._near(name) or "leave it out",
            source=f"names read by {self.read_from[owner]}",
        )

    def _near(self, name: str) -> str:
        """Names of the same owner that are near; an upper-case slip (``RAY_HEALTH_…``) counts as near."""
        owner = owner_of(name)
        for known in self.variables:
            if known.lower() == name.lower():
                return f"did you mean {known}?"
        near = did_you_mean(name, tuple(one for one, fact in self.variables.items() if fact.owner == owner))
        return near if near.startswith("did") else ""


def owner_of(name: str) -> Owner | None:
    """Whose variable that is, by its prefix; None for any other."""
    prefix, underscore, _ = name.partition("_")
    return _OWNERS.get(prefix) if underscore else None


@lru_cache(maxsize=4)
def environment_catalog(version: str) -> EnvironmentCatalog:
    """The variables around that version of vLLM. Raises Unsupported as :func:`flag_catalog` does."""
    known = flag_catalog(version).version
    document = _read()
    read_from: dict[Owner, str] = {"vllm": f"vLLM {known}"}
    variables: dict[str, VariableFact] = {}
    files_of: tuple[Owner, ...] = ("nccl", "ray", "torch")
    for owner in files_of:
        entry = document[owner]
        read_from[owner] = " and ".join(entry["read_from"])
        variables |= {name: VariableFact(name=name, owner=owner_of(name) or owner) for name in entry["names"]}
    for name, entry in read_flags(known)["environment"].items():
        variables[name] = _vllm_fact(name, entry)
    for name, entry in read_catalog("environment_values")["variables"].items():
        whose = variables[name].owner if name in variables else owner_of(name)
        if whose is not None:
            variables[name] = VariableFact(
                name=name, owner=whose, values=entry.get("values", ""), choices=tuple(entry.get("choices", ())),
                default=str(entry.get("default", "")), since=str(entry.get("since", "")),
            )  # fmt: skip
    return EnvironmentCatalog(
        version=known,
        variables=MappingProxyType(dict(sorted(variables.items()))),
        read_from=MappingProxyType(read_from),
    )


def _vllm_fact(name: str, entry: Mapping[str, Any]) -> VariableFact:
    default = entry.get("default")
    return VariableFact(
        name=name,
        owner=owner_of(name) or "vllm",
        values=entry["type"],
        choices=tuple(entry.get("choices", ())),
        default="" if default is None else str(default),
        listed=not entry.get("unlisted", False),
    )


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    text = catalog_text("environment.json")
    document: dict[str, Any] = json.loads(text)
    return document
