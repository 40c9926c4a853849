"""What rendering makes: files, and the settings in them with the reason for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.render.topology import Topology
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment, Scalar

SettingKind = Literal["flag", "variable", "sysctl", "limit", "field", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """One setting that a file carries.

    Args:
        name: as the file spells it: ``--max-num-seqs``, ``NCCL_IB_HCA``, ``spec.template.spec.hostNetwork``.
        value: None for a switch without a value.
        why: one short sentence, ends without a full stop; becomes the comment beside the setting.
        source: id of a row of the truth table, or a short citation; empty where the plan itself is the source.
    """

    kind: SettingKind
    name: str
    value: Scalar | None
    why: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file. No clock, host name or random value inside, so the same document gives the same bytes.

    Args:
        path: relative to ``DIR/TARGET/``, with forward slashes, never absolute, never upwards.
        mode: permission bits; 0o755 for what is run.
        node: rank of the host that the file is for; None when it is for all, or for the cluster.
        settings: what the text carries, for ``render --explain``.
    """

    path: str
    text: str
    mode: int = 0o644
    node: int | None = None
    settings: tuple[Emitted, ...] = ()

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if not self.path or self.path.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"artifact path {self.path!r} does not stay inside its folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInput:
    """What every target is made from: the document, and the layout that `plan` puts first (or that was asked for).

    ``topology`` is the matrix of one of the hosts where one was given; what it adds to ``cluster`` is there already.
    ``check_script`` is what `roadworthy check --script` prints, for the target that runs it on every node.
    """

    deployment: Deployment
    model: ModelSpec
    gpu: Gpu
    chosen: LayoutPlan
    topology: Topology | None = None
    check_script: str = ""
