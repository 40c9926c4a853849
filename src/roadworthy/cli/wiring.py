"""The composition root: joins real files, the catalog and the pure layers. Nothing else builds adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.documents import load_document
from roadworthy.adapters.model_files import resolve_model
from roadworthy.catalog.gpus import Gpu, gpu_by_name
from roadworthy.core.errors import Infeasible
from roadworthy.plan.search import make_plan

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A document and everything derived from it."""

    deployment: Deployment
    model: ModelSpec
    gpu: Gpu
    plan: Plan

    def best(self) -> LayoutPlan:
        """The layout to run. Raises Infeasible, with the first reason, when none fits."""
        best = self.plan.best
        if best is None:
            first = (
                self.plan.layouts[0].reasons[0] if self.plan.layouts and self.plan.layouts[0].reasons else "no layout"
            )
            raise Infeasible(
                f"{self.deployment.name}: no layout fits {self.deployment.cluster.gpus} x {self.gpu.id}: {first}",
                hint="`roadworthy plan` lists every layout and what it lacks",
            )
        return best


def load_planned(spec: str) -> Planned:
    """Read, check and plan the document at ``spec`` (a path, or ``-`` for standard input)."""
    deployment = load_document(spec)
    model = resolve_model(deployment.model, base=Path(spec).parent if spec != "-" else Path.cwd())
    gpu = gpu_by_name(deployment.cluster.gpu)
    return Planned(deployment=deployment, model=model, gpu=gpu, plan=make_plan(deployment, model, gpu))
