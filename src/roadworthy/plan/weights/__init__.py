"""Weight bytes in closed form: what a checkpoint holds (:mod:`checkpoint`) and what one rank loads (:mod:`stage`).

Every form is written from the shape of vLLM's own model class, one file per kind of part (:mod:`attention`,
:mod:`mlp`), and depends on nothing but the :class:`~roadworthy.spec.model.ModelSpec` and the split. Parts are named by
component (``attention``, ``routed_experts``, ``norm``, …) so that a report can say where the bytes are.
"""

from __future__ import annotations

from roadworthy.plan.weights.checkpoint import CheckpointTotals, checkpoint_totals
from roadworthy.plan.weights.formats import Split, split_of
from roadworthy.plan.weights.stage import StageWeights, draft_layer_bytes, stage_weights

__all__ = [
    "CheckpointTotals",
    "Split",
    "StageWeights",
    "checkpoint_totals",
    "draft_layer_bytes",
    "split_of",
    "stage_weights",
]
