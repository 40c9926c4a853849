"""Target ``vllm``: one start script for each host, which runs `vllm serve` with nothing in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.engine_lines import Launch, ServeLine, launch, words
from roadworthy.render.script_parts import (
    api_key,
    environment,
    header,
    memory_lock,
    search_path,
    settle,
)
from roadworthy.render.scripts_readme import readme
from roadworthy.render.shell import comment, word
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from roadworthy.render.values import Emitted, RenderInput


def vllm_target(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``node-N.sh`` for each host and ``README.md``; a host of several engines has a script for each as well."""
    plan = launch(inputs)
    files: list[Artifact] = []
    for host in sorted({line.host for line in plan.lines}):
        files += host_scripts(inputs, plan, host)
    return (*files, Artifact(path="README.md", text=readme(inputs, plan)))


def host_scripts(inputs: RenderInput, plan: Launch, host: int) -> tuple[Artifact, ...]:
    """The scripts of one host: its engine's, or one for each engine and one that runs them all."""
    lines = plan.on_host(host)
    if len(lines) == 1:
        return (_engine_script(inputs, plan, lines[0], f"node-{host}.sh"),)
    names = [f"node-{host}-engine-{line.replica}.sh" for line in lines]
    engines = [_engine_script(inputs, plan, line, name) for line, name in zip(lines, names, strict=True)]
    together = Artifact(path=f"node-{host}.sh", text=_together(inputs, host, names), mode=0o755, node=host)
    return (*engines, together)


def _engine_script(inputs: RenderInput, plan: Launch, line: ServeLine, name: str) -> Artifact:
    return Artifact(
        path=name,
        text=engine_script(inputs, plan, line),
        mode=0o755,
        node=line.host,
        settings=(*line.variables, *line.arguments),
    )


def engine_script(inputs: RenderInput, plan: Launch, line: ServeLine) -> str:
    """The whole script that ends in ``exec vllm serve``."""
    role = "answers HTTP" if line.serves else "computes for the engine's first host"
    title = f"engine {line.replica}, host {line.host}: node {line.node_rank} of {line.nodes}, {role}"
    parts = [
        header(inputs, title),
        settle(line),
        environment(line.variables),
        api_key() if line.serves else "",
        memory_lock() if line.nodes > 1 and inputs.gpu.id != "cpu" else "",
        _left_out(plan),
        _command(line),
    ]
    return "\n".join(part for part in parts if part)


def _left_out(plan: Launch) -> str:
    if not plan.left_out:
        return ""
    lines = [comment("Settings that this line does without:")]
    for setting in plan.left_out:
        value = "" if setting.value is None else f" {setting.value}"
        lines.append(comment(f"{setting.name}{value}: {setting.why}", indent=""))
    return "\n".join(lines) + "\n"


def _command(line: ServeLine) -> str:
    model = '"$ROADWORTHY_MODEL"'
    return f'{arguments(line.arguments)}\n{search_path("vllm")}exec vllm serve {model} "${{args[@]}}"\n'


def arguments(settings: tuple[Emitted, ...], *, name: str = "args") -> str:
    """A bash array of the flags, each under its reason."""
    rows = [f"{name}=("]
    for setting in settings:
        rows += [comment(setting.why, indent="  "), "  " + " ".join(word(one) for one in words(setting))]
    return "\n".join([*rows, ")"])


_TOGETHER = """\
# Each engine is a process of its own. When this script is told to stop, it tells them and waits for all; an engine that
# ends by itself leaves the others running, and its exit code becomes this script's once all have ended.
children=()
told=no
trap 'told=yes; trap - TERM INT; kill -TERM "${children[@]}" 2>/dev/null || true' TERM INT
"""

_WAIT = """\
worst=0
for child in "${children[@]}"; do
  before=$told
  code=0
  wait "$child" || code=$?
  if [[ $told != "$before" ]]; then
    # the signal ended `wait`, not the child: wait for the child itself (127: it had ended just then)
    again=0
    wait "$child" 2>/dev/null || again=$?
    if ((again != 127)); then code=$again; fi
  fi
  if ((code > worst)); then worst=$code; fi
done
exit "$worst"
"""


def _together(inputs: RenderInput, host: int, names: list[str]) -> str:
    starts = "\n".join(f'"$here"/{word(name)} &\nchildren+=("$!")' for name in names)
    here = 'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"\n'
    return f"{header(inputs, f'the {len(names)} engines of host {host}')}\n{here}{_TOGETHER}{starts}\n{_WAIT}"
