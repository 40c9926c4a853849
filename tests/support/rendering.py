"""What targets are made from, for tests: an example document or one written in the test, planned."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.search import make_plan
from roadworthy.render.values import RenderInput
from roadworthy.spec.load import load_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@lru_cache(maxsize=16)
def example_inputs(name: str) -> RenderInput:
    """The inputs of ``examples/NAME.yaml`` with the layout that the plan puts first."""
    return inputs_of((EXAMPLES / f"{name}.yaml").read_text(), source=f"{name}.yaml")


def inputs_of(text: str, *, source: str = "test.yaml") -> RenderInput:
    """The same for a document given as text."""
    deployment = load_text(text, source=source)
    gpu, model = gpu_by_name(deployment.cluster.gpu), model_by_id(deployment.model.config)
    best = make_plan(deployment, model, gpu).best
    assert best is not None, "the document of this test does not fit"
    return RenderInput(deployment=deployment, model=model, gpu=gpu, chosen=best)
