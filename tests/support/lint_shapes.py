"""One setting in every file form that can hold it, with the line where it stands.

The forms are those people write: scripts with continued lines and arrays, pods, Compose, units, environment files.
"""

# ruff: noqa: E501 - whole files in one string each

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A whole file as text; ``line`` (1-based) is that of the setting."""

    form: str
    text: str
    line: int


def _shaped(form: str, text: str) -> Shaped:
    """``text`` with ``@@`` in front of the setting."""
    before, mark, after = text.partition("@@")
    assert mark, f"{form}: no mark"
    return Shaped(form=form, text=before + after, line=before.count("\n") + 1)


V4 = "deepseek-ai/DeepSeek-V4-Pro"
K3 = "moonshotai/Kimi-K3"


def flag_shapes(
    flag: str,
    *,
    model: str = V4,
    rest: tuple[str, ...] = ("--tensor-parallel-size 8",),
    image: str = "registry.local/llm:1",
) -> Iterator[Shaped]:
    """``flag`` (name and values as typed in a shell) among others of a `vllm serve` command."""
    words = shlex.split(flag)
    others = [shlex.split(one) for one in rest]
    tail = " ".join(rest)
    yield _shaped("one line", f"vllm serve {model} @@{flag} {tail}\n")
    yield _shaped("last of one line", f"#!/bin/bash\nvllm serve {model} {tail} @@{flag}\n")
    lines = " \\\n  ".join(rest)
    yield _shaped(
        "continued lines", f"#!/usr/bin/env bash\nset -e\nexec vllm serve {model} \\\n  @@{flag} \\\n  {lines}\n"
    )
    yield _shaped("last continued line", f"vllm serve {model} \\\n  {lines} \\\n  @@{flag}\n\necho started\n")
    yield _shaped(
        "array",
        "ARGS=(\n  # layout\n"
        + "".join(f"  {one}\n" for one in rest)
        + f'  @@{flag}  # why\n)\nvllm serve {model} "${{ARGS[@]}}"\n',
    )
    if "'" not in flag and '"' not in flag:
        yield _shaped("string of flags", f'EXTRA="{tail} @@{flag}"\nvllm serve {model} $EXTRA\n')
        yield _shaped("bash -c", f"bash -c 'vllm serve {model} {tail} @@{flag}'\n")
        yield _shaped("ssh", f'ssh node1 "vllm serve {model} @@{flag} {tail}"\n')
        yield _shaped(
            "environment file",
            f"# settings\nVLLM_ARGS={model} {tail} @@{flag}\n".replace(
                "VLLM_ARGS=" + model, "VLLM_ARGS=--model " + model
            ),
        )
    yield _shaped(
        "module", f"python3 -m vllm.entrypoints.openai.api_server \\\n  --model {model} \\\n  {lines} \\\n  @@{flag}\n"
    )
    yield _shaped(
        "docker run", f"docker run --gpus all --ipc host {image} \\\n  vllm serve {model} {tail} \\\n  @@{flag}\n"
    )
    yield _shaped(
        "heredoc",
        f"cat > /tmp/start.sh <<'EOF'\n#!/bin/bash\nvllm serve {model} {tail} \\\n  @@{flag}\nEOF\nbash /tmp/start.sh\n",
    )
    yield _shaped(
        "unit", f"[Service]\nExecStart=/usr/bin/vllm serve {model} \\\n  {tail} \\\n  @@{flag}\nRestart=always\n"
    )
    listed = "".join(f"            - {json.dumps(word)}\n" for other in others for word in other)
    mine = f"            - @@{json.dumps(words[0])}\n" + "".join(
        f"            - {json.dumps(word)}\n" for word in words[1:]
    )
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llm}\nspec:\n  template:\n    spec:\n      containers:\n        - name: vllm\n"
    yield _shaped(
        "pod args",
        f"{head}          image: {image}\n          command: [vllm, serve]\n          args:\n            - {model}\n{listed}{mine}",
    )
    yield _shaped(
        "pod args first",
        f"{head}          image: {image}\n          command:\n            - vllm\n            - serve\n            - {model}\n{mine}{listed}",
    )
    flow = ", ".join(json.dumps(word) for other in others for word in other)
    flow_mine = ", ".join(json.dumps(word) for word in words)
    yield _shaped(
        "pod flow args",
        f'{head}          image: {image}\n          command: ["vllm", "serve", "{model}"]\n          args: [{flow}, @@{flow_mine}]\n',
    )
    yield _shaped(
        "official image",
        f"{head}          image: registry.local/vllm-openai:stable\n          args:\n            - --model\n            - {model}\n{listed}{mine}",
    )
    block = f"                vllm serve {model} \\\n                  {tail} \\\n                  @@{flag}\n"
    yield _shaped(
        "pod script",
        f"{head}          image: {image}\n          command: [/bin/bash, -c]\n          args:\n            - |\n                ulimit -l unlimited\n{block}",
    )
    yield _shaped(
        "compose string",
        f"services:\n  llm:\n    image: {image}\n    command: >\n      vllm serve {model}\n      {tail}\n      @@{flag}\n",
    )
    yield _shaped(
        "compose list",
        "services:\n  llm:\n    image: registry.local/vllm-openai:stable\n    command:\n      - --model="
        + model
        + "\n"
        + "".join(f"      - {json.dumps(word)}\n" for other in others for word in other)
        + f"      - @@{json.dumps(words[0])}\n"
        + "".join(f"      - {json.dumps(word)}\n" for word in words[1:]),
    )
    yield _shaped(
        "config map",
        f"apiVersion: v1\nkind: ConfigMap\ndata:\n  start.sh: |\n    #!/bin/bash\n    vllm serve {model} {tail} \\\n      @@{flag}\n",
    )
    yield _shaped(
        "python list",
        f'import subprocess\n\nsubprocess.run(\n    [\n        "vllm",\n        "serve",\n        {model!r},\n'
        + "".join(f"        {word!r},\n" for other in others for word in other)
        + f"        @@{words[0]!r},\n"
        + "".join(f"        {word!r},\n" for word in words[1:])
        + "    ]\n)\n",
    )


def variable_shapes(name: str, value: str, *, beside: str = "") -> Iterator[Shaped]:
    """``name`` set to ``value`` in every form; ``beside`` is a shell command that the scripts go on to start."""
    quoted = shlex.quote(value)
    text = json.dumps(value)
    run = f"{beside}\n" if beside else "echo ready\n"
    yield _shaped("export", f"#!/bin/bash\nexport @@{name}={quoted}\n{run}")
    yield _shaped("export of two", f"export FIRST=1 @@{name}={quoted}\n{run}")
    yield _shaped("then exported", f"@@{name}={quoted}\nexport {name}\n{run}")
    yield _shaped("prefix", f"# start\n@@{name}={quoted} {beside or './run.sh'}\n")
    yield _shaped("env", f"env FIRST=1 @@{name}={quoted} {beside or './run.sh'}\n")
    yield _shaped("docker -e", f"docker run --rm \\\n  -e @@{name}={quoted} \\\n  registry.local/llm:1 ./run.sh\n")
    yield _shaped("docker --env", f"docker run --env @@{name}={quoted} registry.local/llm:1 ./run.sh\n")
    yield _shaped("mpirun -x", f"mpirun -np 16 -x @@{name}={quoted} ./run.sh\n")
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: llm\n      image: registry.local/llm:1\n      env:\n"
    yield _shaped(
        "pod env",
        f'{pod}        - name: FIRST\n          value: "1"\n        - name: @@{name}\n          value: {text}\n',
    )
    yield _shaped("pod env flow", f"{pod}        - {{name: @@{name}, value: {text}}}\n")
    yield _shaped("config map", f"apiVersion: v1\nkind: ConfigMap\ndata:\n  @@{name}: {text}\n")
    yield _shaped(
        "config map script",
        f"apiVersion: v1\nkind: ConfigMap\ndata:\n  env.sh: |\n    # fabric\n    export @@{name}={quoted}\n",
    )
    yield _shaped(
        "compose mapping",
        f"services:\n  llm:\n    image: registry.local/llm:1\n    environment:\n      FIRST: 1\n      @@{name}: {text}\n",
    )
    yield _shaped(
        "compose list",
        f"services:\n  llm:\n    image: registry.local/llm:1\n    environment:\n      - @@{name}={value}\n",
    )
    yield _shaped("environment file", f"# fabric\nFIRST=1\n@@{name}={value}\n")
    yield _shaped("quoted environment file", f'FIRST="1"\n@@{name}="{value}"\n')
    yield _shaped("unit", f"[Service]\nEnvironment=FIRST=1\nEnvironment=@@{name}={value}\nExecStart=/usr/bin/true\n")
    yield _shaped("quoted unit", f'[Service]\nEnvironment="FIRST=1" "@@{name}={value}"\nExecStart=/usr/bin/true\n')
    yield _shaped("Dockerfile", f"FROM registry.local/llm:1\nENV @@{name}={quoted}\n")
    yield _shaped("python", f"import os\n\nos.environ[@@{name!r}] = {value!r}\n")
    yield _shaped(
        "ray runtime_env",
        f"import ray\n\nray.init(runtime_env={{\n    'env_vars': {{\n        @@{name!r}: {value!r},\n    }},\n}})\n",
    )
    yield _shaped("crlf", f"export FIRST=1\r\nexport @@{name}={quoted}\r\n")
