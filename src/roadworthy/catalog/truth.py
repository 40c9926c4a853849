"""The truth table: what guides tell people to set, what became of it, and what to write instead.

170 checked statements about vLLM flags, environment variables, fabric, hosts, Ray, Kubernetes, metrics and procedures.
A row's id is what `lint` prints as the rule and what rendered settings cite, so an id is never renamed. The rows are
words; whether a name exists in one engine version is the flag catalog's answer (:mod:`roadworthy.catalog.flags`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from roadworthy.catalog.data import catalog_text

if TYPE_CHECKING:
    from collections.abc import Mapping

Status = Literal["real", "renamed", "removed", "never_existed", "dangerous", "context_dependent"]
"""real: works as named. renamed: exists under another name. removed: existed, is gone. never_existed: the name, or the
effect claimed for it, has no basis. dangerous: works or half works, and does harm. context_dependent: right only under
conditions that the row states."""

STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthRow:
    """One checked statement.

    Args:
        kind: what it is about, such as ``vllm_flag``, ``nccl_env``, ``k8s_field``, ``procedure``.
        claimed: the setting or statement as guides give it; empty where none speaks of it.
        emit: what to write instead, in words.
        why: what is true, and how it shows.
        source: where that was seen: a run of the parser, a file of the engine, a vendor's guide.
    """

    id: str
    kind: str
    claimed: str
    status: Status
    emit: str
    why: str
    source: str

    @property
    def instead(self) -> str:
        """``emit`` as advice to a person who has the setting in a file."""
        return self.emit.replace("Emit nothing", "Leave it out").replace("Drop them", "Leave it out")


@lru_cache(maxsize=1)
def truth_rows() -> Mapping[str, TruthRow]:
    """Every row by its id, in the order of the table."""
    text = catalog_text("deployment_truth.json")
    rows = [TruthRow(**row) for row in json.loads(text)]
    return MappingProxyType({row.id: row for row in rows})


def truth_row(row_id: str) -> TruthRow:
    """The row with that id. Raises KeyError: an id that is not in the table is a mistake of ours."""
    return truth_rows()[row_id]
