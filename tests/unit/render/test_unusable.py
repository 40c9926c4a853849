"""Settings that would fail a start, or do nothing, are left out of the line and told."""

from __future__ import annotations

import pytest

from roadworthy.render.engine_lines import launch
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, V4_ON_32_H100, render_input


def placed(document: str, settings: str, layout: str | None) -> tuple[bool, str]:
    """Whether the first setting stands on the line, and why not."""
    name = "--" + settings.partition(":")[0].replace("_", "-")
    plan = launch(render_input(f"{document}engine: {{settings: {{{settings}}}}}\n", layout))
    spelt = {name, name.replace("--", "--no-", 1)}
    return bool(spelt & set(plan.lines[0].argv)), next((one.why for one in plan.left_out if one.name in spelt), "")


@pytest.mark.parametrize(
    ("document", "layout", "settings", "told"),
    [
        (K3_ON_32_H200, "TP8 DP4 EP32", "enable_eplb: true, enable_expert_parallel: true", "takes no part"),
        (V4_ON_32_H100, "TP8 PP4", "quantization: fp8", "takes the method from its config"),
        (V4_ON_32_H100, "TP8 DP4 EP32", "dbo_decode_token_threshold: 32", "no effect"),
        (V4_ON_32_H100, "TP8 PP4", "moe_backend: deep_gemm_mega_moe", "needs Blackwell"),
        (K3_ON_32_H200, "TP8 PP4", "kda_prefill_backend: flashinfer", "needs SM100"),
        (K3_ON_32_H200, "TP8 PP4", "kda_prefill_backend: fused", "ROCm"),
        (K3_ON_32_H200, "TP8 PP4", "enable_chunked_prefill: false", "needs chunked prefill"),
        (V4_ON_32_H100, "TP8 DP4 EP32", "all2all_backend: pplx", "fall back"),
    ],
)
def test_left_out_with_its_reason(document: str, layout: str, settings: str, told: str) -> None:
    stands, why = placed(document, settings, layout)
    assert not stands
    assert told in why


@pytest.mark.parametrize(
    ("document", "layout", "settings"),
    [
        (V4_ON_32_H100, "TP8 DP4 EP32", "enable_eplb: true, enable_expert_parallel: true"),
        (LLAMA_ON_8_H100, "TP8", "quantization: fp8"),
        (V4_ON_32_H100, "TP8 DP4 EP32", "enable_dbo: true, all2all_backend: deepep_low_latency"),
        (K3_ON_32_H200, "TP8 PP4", "kda_prefill_backend: triton"),
        (LLAMA_ON_8_H100, "TP8", "enable_chunked_prefill: false"),
        (V4_ON_32_H100, "TP8 DP4 EP32", "all2all_backend: deepep_v2"),
    ],
)
def test_kept_where_it_has_its_use(document: str, layout: str, settings: str) -> None:
    assert placed(document, settings, layout) == (True, "")
