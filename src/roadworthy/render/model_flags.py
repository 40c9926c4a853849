"""Flags that belong to a model and not to its size: parsers, kernels that its recipe was validated with.

From the published recipes, each held against the parsers of vLLM 0.32.0 and 0.33.0. A setting of the document with the
same name goes before these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.emit import flag

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import Layout
    from roadworthy.render.values import Emitted
    from roadworthy.spec.model import ModelSpec

RECIPE_TRUSTS = "DeepSeek-V4-Pro"
"""The V4 model whose recipe runs code of the checkpoint. vLLM has classes of its own and needs none."""
HOPPER = 9
"""First number of the compute capability of H100, H200 and H20."""


def model_flags(model: ModelSpec, layout: Layout, gpu: Gpu) -> tuple[Emitted, ...]:
    """Flags of ``model`` on ``gpu``; none for a family without a recipe of its own."""
    hopper = gpu.compute_capability[0] == HOPPER
    flags: list[Emitted] = []
    if model.family == "deepseek_v4":
        flags += [*(_trusted() if model.id.startswith(RECIPE_TRUSTS) else ()), *_deepseek_v4()]
    elif model.family == "kimi_k3":
        flags += _kimi_k3(hopper=hopper)
    if layout.ep > 1:
        flags.append(
            flag(
                "--enable-ep-weight-filter", None,
                "each rank reads only the tensors of its own experts, which spares the shared storage at start",
                "vllm.enable-ep-weight-filter",
            )
        )  # fmt: skip
    return tuple(flags)


def _deepseek_v4() -> list[Emitted]:
    return [
        flag("--tokenizer-mode", "deepseek_v4", "V4 encodes chats with its own code, not with a chat template",
              "vllm.reasoning-tool-parsers"),
        *_parsers("deepseek_v4"),
        _no_autotune(),
    ]  # fmt: skip


def _kimi_k3(*, hopper: bool) -> list[Emitted]:
    flags = [*_trusted(), *_parsers("kimi_k3"), _no_autotune()]
    if hopper:
        flags += [
            flag("--moe-backend", "marlin", "Hopper has no FP4 tensor cores; the recipe's weight-only kernels",
                  "vllm.moe-backend-hopper"),
            flag("--attention-backend", "FLASHMLA", "the recipe's MLA kernels on Hopper", "vllm.attention-backend-k3"),
            flag("--disable-custom-all-reduce", None, "the recipe of K3 on Hopper leaves all-reduce to NCCL",
                  "vllm.disable-custom-all-reduce"),
        ]  # fmt: skip
    return flags


def _trusted() -> list[Emitted]:
    return [
        flag(
            "--trust-remote-code", None,
            "as the recipe has it; it runs code of the checkpoint, so pin a revision or serve a checked folder",
            "vllm.trust-remote-code",
        )
    ]  # fmt: skip


def _parsers(name: str) -> list[Emitted]:
    source = "vllm.reasoning-tool-parsers"
    return [
        flag("--reasoning-parser", name, "parts the reasoning from the answer in responses", source),
        flag("--tool-call-parser", name, "reads the model's own form of tool calls", source),
        flag("--enable-auto-tool-choice", None, "lets the model decide when to call a tool", source),
    ]


def _no_autotune() -> Emitted:
    return flag(
        "--no-enable-flashinfer-autotune", None, "the recipe's choice: no kernel tuning while the engine starts",
        "vLLM recipes",
    )  # fmt: skip
