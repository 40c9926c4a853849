"""The composition root: joins real files, the catalog and the pure layers. Nothing else builds adapters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.adapters.documents import document_folder, load_document, parse_document
from roadworthy.adapters.model_files import resolve_model
from roadworthy.catalog.gpus import Gpu, gpu_by_name
from roadworthy.core.errors import Infeasible
from roadworthy.plan.search import make_plan

if TYPE_CHECKING:
    from roadworthy.advise.queueing import Queueing
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.simulate.rank import Progress
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A document and everything derived from it. ``queueing`` is what simulation told, None when none was asked."""

    deployment: Deployment
    model: ModelSpec
    gpu: Gpu
    plan: Plan
    queueing: Queueing | None = None

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


def load_planned(spec: str, *, text: str | None = None) -> Planned:
    """Read, check and plan the document at ``spec`` (a path, or ``-`` for standard input), without simulation.

    ``text`` is taken instead of what is there, when somebody has read it, and perhaps changed it, before.
    """
    deployment = load_document(spec) if text is None else parse_document(text, spec)
    model = resolve_model(deployment.model, base=document_folder(spec))
    gpu = gpu_by_name(deployment.cluster.gpu)
    return Planned(deployment=deployment, model=model, gpu=gpu, plan=make_plan(deployment, model, gpu))


def with_queueing(planned: Planned, *, progress: Progress | None = None) -> Planned:
    """``planned`` with its best layouts simulated, and ordered by what that told. Same document, same order."""
    from roadworthy.advise.ranking import reranked
    from roadworthy.simulate.rank import simulate_best

    queueing = simulate_best(planned.deployment, planned.plan, progress=progress)
    return replace(planned, queueing=queueing, plan=reranked(planned.plan, queueing, planned.deployment.sla))


def load_best(spec: str, *, progress: Progress | None = None, text: str | None = None) -> Planned:
    """The document planned as `plan` does by default, so that every command runs the layout that `plan` puts first.

    Nothing is simulated where there is one layout to choose from.
    """
    from roadworthy.advise.ranking import distinct

    planned = load_planned(spec, text=text)
    fitting = [judged for judged in planned.plan.layouts if judged.feasible is not False]
    return with_queueing(planned, progress=progress) if len(distinct(fitting)) > 1 else planned
