"""Documents rendered in tests, and their scripts run for real, with a fake `vllm` that tells its arguments."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.catalog.vocabulary import CatalogVocabulary
from roadworthy.cli.plan import only
from roadworthy.cli.render import check_script
from roadworthy.plan.search import make_plan
from roadworthy.render.targets import target
from roadworthy.render.values import Artifact, RenderInput
from roadworthy.spec.load import load_text

if TYPE_CHECKING:
    from roadworthy.plan.values import Plan
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment, Scalar

V4_ON_32_H100 = """\
name: v4
model: {config: deepseek-ai/DeepSeek-V4-Pro, max_model_len: 32K}
cluster: {nodes: 4, gpus_per_node: 8, gpu: H100-80GB, nics: [{count: 8, rate: 400Gb/s}]}
"""
K3_ON_32_H200 = """\
name: k3
model: {config: moonshotai/Kimi-K3, max_model_len: 32K}
cluster: {nodes: 4, gpus_per_node: 8, gpu: H200-141GB, nics: [{count: 8, rate: 400Gb/s}]}
"""
LLAMA_ON_8_H100 = """\
name: llama
model: {config: meta-llama/Llama-3.1-8B, max_model_len: 8K}
cluster: {nodes: 1, gpus_per_node: 8, gpu: H100-80GB}
"""
TINY = "name: tiny\nmodel: {config: tiny, max_model_len: 4096}\nengine: {version: 0.32.0}\n"

FAKE_VLLM = """\
#!/usr/bin/env -S python3 -SE
import json, os, sys
wanted = ("VLLM_", "NCCL_", "GLOO_", "CUDA_", "HF_", "RAY_")
print(json.dumps({"argv": sys.argv[1:], "env": {k: v for k, v in os.environ.items() if k.startswith(wanted)}}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a script started: the arguments of the program and the variables it saw."""

    argv: tuple[str, ...]
    env: dict[str, str]


@lru_cache(maxsize=32)
def _planned(document: str) -> tuple[Deployment, ModelSpec, Plan]:
    vocabulary = CatalogVocabulary(is_checkpoint=lambda config: config.startswith(("/", "./", "../", "~")))
    deployment = load_text(document, source="test.yaml", vocabulary=vocabulary)
    config = deployment.model.config
    model = model_by_id("tiny" if config.startswith(("/", "./", "../", "~")) else config)
    return deployment, model, make_plan(deployment, model, gpu_by_name(deployment.cluster.gpu))


def render_input(document: str, layout: str | None = None) -> RenderInput:
    """What targets get for ``document``; a checkpoint's path stands for the shape of ``tiny``."""
    deployment, model, plan = _planned(document)
    chosen = only(plan, layout).layouts[0] if layout else plan.best
    assert chosen is not None, [judged.reasons for judged in plan.layouts]
    return RenderInput(
        deployment=deployment, model=model, gpu=gpu_by_name(deployment.cluster.gpu), chosen=chosen,
        check_script=check_script(deployment),
    )  # fmt: skip


def rendered(name: str, inputs: RenderInput) -> dict[str, Artifact]:
    """The files of one target by path."""
    return {artifact.path: artifact for artifact in target(name)(inputs)}


def write(folder: Path, files: dict[str, Artifact]) -> None:
    """The files below ``folder``, with their modes."""
    for path, artifact in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(artifact.text, encoding="utf-8")
        place.chmod(artifact.mode)


def fake_program(folder: Path, name: str) -> Path:
    """A program called ``name`` in ``folder`` that prints its arguments and variables as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(FAKE_VLLM, encoding="utf-8")
    program.chmod(0o755)
    return program


def start(script: Path, *, path: Path, env: dict[str, str] | None = None) -> Started:
    """Run ``script`` with the programs of ``path`` in front; fails with what it said when it does not succeed."""
    done = run(script, path=path, env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return Started(argv=tuple(told["argv"]), env=told["env"])


def run(script: Path, *, path: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``script`` in an environment of its own."""
    clean = {"PATH": f"{path}:{os.environ['PATH']}", "HOME": str(path), "LC_ALL": "C.UTF-8", **(env or {})}
    return subprocess.run([str(script)], capture_output=True, text=True, env=clean, timeout=60, check=False)


def flags(argv: tuple[str, ...]) -> dict[str, Scalar]:
    """Flags of a `vllm serve` line by name, with the word after each, or None for a switch."""
    found: dict[str, Scalar] = {}
    for index, word in enumerate(argv):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            following = argv[index + 1] if index + 1 < len(argv) else "--"
            found[name] = value if equals else None if following.startswith("--") else following
    return found


def shellcheck(*scripts: Path) -> str:
    """What shellcheck has to say; empty when nothing."""
    done = subprocess.run(
        ["shellcheck", "--norc", "--shell=bash", *map(str, scripts)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
