"""The arguments of ``vllm serve`` for one engine of a plan: full-length flags only, in a stable order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Setting


def serve_arguments(
    chosen: LayoutPlan, *, model: str, served_name: str, host: str, port: int, data_parallel: bool
) -> tuple[str, ...]:
    """Arguments after ``vllm``: ``serve MODEL --flag value …``.

    Args:
        model: checkpoint folder or hub id.
        data_parallel: False when each data-parallel rank is an engine of its own behind the gateway.
    """
    arguments = ["serve", model, "--served-model-name", served_name, "--host", host, "--port", str(port)]
    layout = chosen.layout
    degrees = {"tensor-parallel-size": layout.tp, "pipeline-parallel-size": layout.pp}
    if data_parallel:
        degrees["data-parallel-size"] = layout.dp
    for flag, degree in degrees.items():
        if degree > 1:
            arguments += [f"--{flag}", str(degree)]
    if layout.ep > 1:
        arguments.append("--enable-expert-parallel")
    return (*arguments, *setting_arguments(chosen.settings))


def setting_arguments(settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """``max_num_seqs`` -> ``--max-num-seqs 64``; booleans become ``--x`` or ``--no-x``; None is left out."""
    arguments: list[str] = []
    for name in sorted(settings):
        value = settings[name].value
        if value is None:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            arguments += [f"--{flag}", str(value)]
    return tuple(arguments)
