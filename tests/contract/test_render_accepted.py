"""What is rendered, held against the real engine: its parser takes every line, its validators build a configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roadworthy.render.at_start import AtStart
from roadworthy.render.engine_lines import Backend, ServeLine, launch
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, TINY, V4_ON_32_H100, render_input

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.32.0"
V4_ON_16_H200 = V4_ON_32_H100.replace("nodes: 4", "nodes: 2").replace("H100-80GB", "H200-141GB")
SOCKETS = "gpu_numa_nodes: [0, 0, 0, 0, 1, 1, 1, 1], nics:"

CASES: tuple[tuple[str, str, str | None], ...] = (
    (V4_ON_32_H100, "", "TP8 PP4"),
    (V4_ON_32_H100, "", "TP8 DP4 EP32"),
    (V4_ON_32_H100, "", "TP8 PP2 DP2 EP16"),
    (V4_ON_32_H100.replace("nics:", SOCKETS), "", "TP8 DP4 EP32"),
    (V4_ON_32_H100, "data_parallel_external_lb: true", "TP8 DP4 EP32"),
    (V4_ON_16_H200, "data_parallel_hybrid_lb: true", "TP4 DP4 EP16"),
    (V4_ON_16_H200, "tensor_parallel_size: 16", "TP16 EP16"),
    (
        V4_ON_32_H100,
        "enable_expert_parallel: true, enable_eplb: true, eplb_config: '{\"num_redundant_experts\": 32}'",
        "TP8 DP4 EP32",
    ),
    (K3_ON_32_H200, "", "TP8 DP4 EP32"),
    (K3_ON_32_H200, "", "TP8 PP4"),
    (LLAMA_ON_8_H100, "", "4 x TP2"),
    (TINY.replace("engine: {version: 0.32.0}\n", ""), "", None),
)


def lines(document: str, settings: str, layout: str | None, backend: Backend = "mp") -> tuple[ServeLine, ...]:
    engine = f"engine: {{version: {VERSION}, settings: {{{settings}}}}}\n"
    return launch(render_input(document + engine, layout), backend=backend).lines


def filled(line: ServeLine) -> list[str]:
    """The words of the line as a host starts it."""
    at_start = {AtStart.MASTER_ADDRESS: "10.0.0.1", AtStart.MODEL: "/models/m"}
    return [at_start[word] if isinstance(word, AtStart) else word for word in line.argv]


PARSE = """\
import json, sys
sys.path.insert(0, "scripts/vllm_probe")
import serve_parser
whole, _, command = serve_parser.build()
answers = []
for line in json.load(sys.stdin):
    try:
        args, left = whole.parse_known_args(line)
        command.validate(args)
        answers.append(f"left over: {left}" if left else "")
    except (SystemExit, Exception) as error:
        answers.append(f"{type(error).__name__}: {error}")
print("ANSWERS" + json.dumps(answers))
"""


def test_the_parser_takes_every_line_of_every_backend() -> None:
    asked = [
        filled(line)
        for document, settings, layout in CASES
        for backend in ("mp", "ray")
        for line in lines(document, settings, layout, backend)  # type: ignore[arg-type]
    ]
    done = subprocess.run(
        [sys.executable, "-c", PARSE], input=json.dumps(asked), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout.rpartition("ANSWERS")[2])
    assert len(answers) == len(asked) > 40
    assert not [(" ".join(line), answer) for line, answer in zip(asked, answers, strict=True) if answer]


def test_the_validators_build_a_configuration_on_first_and_last_host(test_data: Path) -> None:
    config = test_data / "facts/configs/deepseek-ai--DeepSeek-V4-Pro_config.json"
    asked = []
    for document, settings, layout in CASES:
        if "DeepSeek-V4-Pro" not in document:
            continue
        found = lines(document, settings, layout)
        for line in (found[0], found[-1]):
            words = filled(line)
            at = words.index("--reasoning-parser")  # it wants the model's own tokenizer, which is not here
            asked.append({"arguments": words[:at] + words[at + 2 :], "config": str(config), "gpus": 8})
    done = subprocess.run(
        [sys.executable, "scripts/vllm_probe/accept.py"],
        input=json.dumps(asked), capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    told = [(" ".join(line["arguments"]), answer["message"]) for line, answer in zip(asked, answers, strict=True)]
    assert not [one for one in told if one[1]]
