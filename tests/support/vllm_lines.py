"""Every `vllm serve` line that examples and a few more layouts give rise to, with the config.json each is for.

The lines are held against two engines: 0.32.0 live, 0.33.0 through what `scripts/check_vllm_lines.py` recorded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from roadworthy.adapters.tiny_model import CONFIG
from roadworthy.core.errors import Infeasible, Unsupported
from roadworthy.render.at_start import AtStart
from roadworthy.render.engine_lines import Backend, ServeLine, launch
from support.rendering import K3_ON_32_H200, V4_ON_32_H100, render_input, rendered

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

ROOT = Path(__file__).resolve().parents[2]
BACKENDS: tuple[Backend, ...] = ("mp", "ray")
LAYOUTS: tuple[tuple[str, str, str], ...] = (
    (V4_ON_32_H100, "TP8 PP4", ""),
    (V4_ON_32_H100, "TP8 DP4 EP32", ""),
    (V4_ON_32_H100, "TP8 PP2 DP2 EP16", ""),
    (V4_ON_32_H100, "TP8 DP4 EP32", "data_parallel_external_lb: true"),
    (V4_ON_32_H100, "TP8 DP4 EP32", "enable_eplb: true, eplb_config: '{\"num_redundant_experts\": 32}'"),
    (K3_ON_32_H200, "TP8 DP4 EP32", ""),
    (K3_ON_32_H200, "TP8 PP4", ""),
)
"""Documents of `support.rendering` with a layout and further settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedLine:
    """One line as a host starts it.

    Args:
        config: file name below ``facts/configs``, or ``tiny``.
        gpus: of the host.
    """

    arguments: tuple[str, ...]
    config: str
    gpus: int
    version: str

    @property
    def digest(self) -> str:
        """Names the line and what it is checked against."""
        text = json.dumps([self.version, self.config, self.gpus, self.arguments])
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def probe(self, configs: Path, tiny: Path) -> dict[str, object]:
        """What `scripts/vllm_probe/accept.py` reads."""
        place = tiny if self.config == "tiny" else configs / self.config
        return {"arguments": list(self.arguments), "config": str(place), "gpus": self.gpus}


def emitted_lines(version: str, configs: Path) -> tuple[EmittedLine, ...]:
    """Each different line once, in a stable order; of every engine the first, second and last host.

    Lines of the Kubernetes targets are taken from the manifests themselves. Examples whose model has no config.json in
    ``configs``, or that fit nowhere, give none.
    """
    documents = [(path.read_text(encoding="utf-8"), None) for path in sorted((ROOT / "examples").glob("*.yaml"))]
    lines: dict[EmittedLine, None] = {}
    for text, layout in [*documents, *((with_settings(text, more), layout) for text, layout, more in LAYOUTS)]:
        document = with_version(text, version)
        for backend in BACKENDS:
            lines |= dict.fromkeys(_lines(document, layout, backend, version, configs))
    return tuple(lines)


def _lines(document: str, layout: str | None, backend: Backend, version: str, configs: Path) -> list[EmittedLine]:
    try:
        inputs = render_input(document, layout)
        found = launch(inputs, backend=backend).lines
    except (Infeasible, Unsupported, AssertionError):
        return []
    repository = inputs.deployment.model.config
    cpu = inputs.gpu.id == "cpu"
    config = "tiny" if cpu else f"{_repository(repository).replace('/', '--')}_config.json"
    if (cpu and backend == "ray") or not (cpu or (configs / config).is_file()):
        return []
    words = [filled(line) for line in found if line.node_rank in (0, 1, line.nodes - 1)]
    if not cpu:
        words += manifest_lines("lws" if backend == "mp" else "kuberay", inputs, nodes=found[0].nodes)
    gpus = inputs.deployment.cluster.gpus_per_node
    return [EmittedLine(arguments=one, config=config, gpus=gpus, version=version) for one in words]


def manifest_lines(target: str, inputs: RenderInput, *, nodes: int) -> list[tuple[str, ...]]:
    """The `vllm serve` of every container that a target's manifests start, as Kubernetes would fill it in."""
    found = []
    for path, artifact in rendered(target, inputs).items():
        for document in yaml.safe_load_all(artifact.text) if path.endswith(".yaml") else ():
            for words in _arguments_of(document):
                filled_in = {
                    "$(LWS_GROUP_SIZE)": str(nodes),
                    "$(LWS_WORKER_INDEX)": str(int("--headless" in words)),
                    "$(LWS_LEADER_ADDRESS)": "10.0.0.1",
                }
                found.append(_one_model(tuple(filled_in.get(word, word) for word in words)))
    return found


def _arguments_of(value: Any) -> Iterator[list[str]]:
    """Every list under ``args`` that holds ``serve``, from there on."""
    if isinstance(value, dict):
        words = value.get("args")
        if isinstance(words, list) and "serve" in words:
            yield [str(word) for word in words[words.index("serve") :]]
        for below in value.values():
            yield from _arguments_of(below)
    elif isinstance(value, list):
        for below in value:
            yield from _arguments_of(below)


def _one_model(words: tuple[str, ...]) -> tuple[str, ...]:
    """The line with one name for any model: the checkpoint is a stand-in anyway."""
    return (words[0], "MODEL", *words[2:])


def _repository(config: str) -> str:
    from roadworthy.catalog.models import known_models

    return next((one.repository for one in known_models() if config in (one.id, *one.aliases)), config)


def filled(line: ServeLine) -> tuple[str, ...]:
    """The words of the line as a host starts it."""
    at_start = {AtStart.MASTER_ADDRESS: "10.0.0.1", AtStart.MODEL: "/models/m"}
    return _one_model(tuple(at_start[word] if isinstance(word, AtStart) else word for word in line.argv))


def with_version(document: str, version: str) -> str:
    """The document for that engine version."""
    if re.search(r"^ +version:", document, re.MULTILINE):
        return re.sub(r"^( +)version: .*$", rf"\1version: {version}", document, count=1, flags=re.MULTILINE)
    if re.search(r"^engine: \{", document, re.MULTILINE):
        bare = re.sub(r"version: [^,}]+,? ?", "", document, count=1)
        return re.sub(r"^engine: \{", f"engine: {{version: {version}, ", bare, count=1, flags=re.MULTILINE)
    if re.search(r"^engine:\n", document, re.MULTILINE):
        return document.replace("engine:\n", f"engine:\n  version: {version}\n", 1)
    return f"{document}engine: {{version: {version}}}\n"


def with_settings(document: str, settings: str) -> str:
    return f"{document}engine: {{settings: {{{settings}}}}}\n" if settings else document


def write_tiny_config(folder: Path) -> Path:
    """The tiny model's configuration as a file that the probe can read."""
    path = folder / "tiny.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path
