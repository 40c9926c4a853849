"""Real vLLM takes the keywords that rayservice.yaml passes through Ray Serve LLM.

Ray itself is not installed for the tests (its Serve LLM pulls in 700 MB); its own models took these files when they
were written: Ray 2.60.0, `ServeDeploySchema` and `LLMConfig`.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from support.programs import ask
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered

CASES = {
    "pipeline": (V4_ON_32_H100, "2 x TP8 PP2"),
    "data parallel": (V4_ON_32_H100, "TP8 DP4 EP32"),
    "eplb": (
        V4_ON_32_H100 + "engine: {settings: {enable_eplb: true, eplb_config: '{\"num_redundant_experts\": 32}'}}\n",
        "TP8 DP4 EP32",
    ),
    "k3": (K3_ON_32_H200, None),
    "one gpu": (LLAMA_ON_8_H100, "8 x TP1"),
}


def keywords(document: str, layout: str | None) -> dict[str, Any]:
    service = yaml.safe_load(rendered("kuberay", render_input(document, layout))["rayservice.yaml"].text)
    arguments = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]["args"]
    (config,) = arguments.get("llm_configs") or [arguments["llm_config"]]
    found: dict[str, Any] = config["engine_kwargs"]
    return found


@pytest.mark.engine
def test_vllm_takes_every_keyword() -> None:
    asked = {name: keywords(*case) for name, case in CASES.items()}
    cases = asked | {"misspelt": {"tensor_paralel_size": 8}}
    answers = dict(zip(cases, ask("vllm_keywords", list(cases.values())), strict=True))
    assert answers.pop("misspelt") == ["unknown: tensor_paralel_size"], "the check sees nothing"
    assert answers == {name: [] for name in asked}
