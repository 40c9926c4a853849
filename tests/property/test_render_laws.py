"""Whatever a document calls its model and its settings, rendered files carry it as text and nothing of it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roadworthy.plan.values import Setting
from roadworthy.render.markdown import code
from roadworthy.render.shell import comment, word
from support.rendering import (
    TINY,
    fake_program,
    flags,
    render_input,
    rendered,
    shellcheck,
    start,
    write,
)

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

# what a YAML scalar can hold: anything but NUL and lone surrogates
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
NASTY = st.text(st.sampled_from("'\"`$(){}\\;&|<>*?~#!% \n\t\r=,-\u2028\u00a0“é"), min_size=1, max_size=20)
NAMES = TEXT | NASTY


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    fake_program(folder, "vllm")
    return folder


def with_names(inputs: RenderInput, *, folder: str, served: str, template: str) -> RenderInput:
    """The same deployment under other names; layout and sizes stay."""
    deployment = inputs.deployment
    named = replace(
        deployment,
        model=replace(deployment.model, config=f"/{folder}", served_name=served),
        engine=replace(deployment.engine, settings={"chat_template": template}),
    )
    chosen = replace(
        inputs.chosen,
        settings={**inputs.chosen.settings, "chat_template": Setting(value=template, why="fixed in the document")},
    )
    return replace(inputs, deployment=named, chosen=chosen)


def as_folder(config: str) -> str:
    """What of a path is the checkpoint's folder."""
    return config.rsplit("/", 1)[0] if config.endswith(".json") else config


@settings(max_examples=25)
@given(folder=NAMES, served=NAMES, template=NAMES)
@example(folder="m", served="-rf", template="--headless")
@example(folder="$(exit 3)", served="`exit 3`", template="'; exit 3 #")
@example(folder="a\n# b", served="EOF", template=")\nexit 3\n(")
def test_any_name_reaches_the_engine_as_it_is(folder: str, served: str, template: str, programs: Path) -> None:
    inputs = with_names(render_input(TINY), folder=folder, served=served, template=template)
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), rendered("vllm", inputs))
        started = start(Path(place) / "node-0.sh", path=programs)
    assert started.argv[:2] == ("serve", as_folder(f"/{folder}") or "/")
    expected = ["--served-model-name=" + served] if served.startswith("-") else ["--served-model-name", served]
    assert list(started.argv[2 : 2 + len(expected)]) == expected
    expected = ["--chat-template=" + template] if template.startswith("-") else ["--chat-template", template]
    at = started.argv.index(expected[0], 4)
    assert list(started.argv[at : at + len(expected)]) == expected


@settings(max_examples=3)
@given(names=st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=10, max_size=10))
def test_shellcheck_takes_every_name_for_text(names: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        scripts = []
        for index, (folder, served, template) in enumerate(names):
            inputs = with_names(render_input(TINY), folder=folder, served=served, template=template)
            write(Path(place) / str(index), rendered("vllm", inputs))
            scripts.append(Path(place) / str(index) / "node-0.sh")
        assert not shellcheck(*scripts)


@given(text=NAMES)
def test_a_word_is_one_argument_in_any_locale(text: str) -> None:
    script = f"printf '%s' {word(text)} | od -An -v -tx1"
    for locale in ("C", "C.UTF-8"):
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, env={"LC_ALL": locale, "PATH": "/usr/bin:/bin"}, check=True
        )
        assert bytes.fromhex(done.stdout.decode()) == text.encode()


@given(text=NAMES, indent=st.sampled_from(["", "  "]))
def test_a_comment_has_no_line_that_runs(text: str, indent: str) -> None:
    for line in comment(text, indent=indent).splitlines():
        assert line.startswith(f"{indent}# ")
        assert line.isprintable()


@given(text=NAMES)
def test_a_code_span_is_closed_by_its_own_fence_alone(text: str) -> None:
    span = code(text)
    fence = span[: len(span) - len(span.lstrip("`"))]
    assert "\n" not in span
    assert fence not in span[len(fence) : -len(fence)].replace(fence + "`", "") or fence == ""


@settings(max_examples=15)
@given(served=NAMES, folder=NAMES)
def test_units_keep_their_keys_whatever_the_names(served: str, folder: str) -> None:
    plain = rendered("systemd", render_input(TINY))
    named = rendered("systemd", with_names(render_input(TINY), folder=folder, served=served, template="x"))
    unit = next(path for path in plain if path.endswith(".service"))

    def keys(text: str) -> list[str]:
        return [line.partition("=")[0] for line in text.splitlines() if line and not line.startswith("#")]

    assert keys(named[unit].text) == keys(plain[unit].text)


def test_the_same_document_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.rendering import V4_ON_32_H100, render_input, rendered\n"
        "inputs = render_input(V4_ON_32_H100, 'TP8 DP4 EP32')\n"
        "print(json.dumps({t: {p: a.text for p, a in rendered(t, inputs).items()}\n"
        "                  for t in ('vllm', 'ray', 'systemd', 'host-prep')}))\n"
    )
    tests = str(Path(__file__).resolve().parent.parent)
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, tests], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert json.loads(outputs[0]) == json.loads(outputs[1])
    assert flags(tuple(json.loads(outputs[0])["vllm"]["node-0.sh"].split()))["--nnodes"] == "4"
