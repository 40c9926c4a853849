"""Mended files, run and parsed for real: bash takes the scripts, YAML the manifests, vLLM's parser the command lines.

The scripts run with a search path that holds stand-ins alone, each of which writes down the words it was given.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from roadworthy.lint.fix import fix_text
from roadworthy.lint.run import lint_text
from support.lint_rows import ROWS
from support.lint_shapes import flag_shapes
from support.programs import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

DATA = Path(__file__).resolve().parents[2] / "data" / "lint"
RUN = {
    "one line", "last of one line", "continued lines", "last continued line", "array", "string of flags", "bash -c",
    "module",
}  # fmt: skip
PARSED = {"pod args", "pod args first", "pod flow args", "official image", "compose list"}
STAND_IN = '#!/bin/bash\nprintf \'%s\\0\' "${0##*/}" "$@" > "$SEEN"\n'


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    for name in ("vllm", "python3", "ray", "numactl", "sleep", "grep"):
        (folder / name).write_text(STAND_IN, encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "bash").symlink_to("/bin/bash")
    return folder


def words_of(script: str, stand_ins: Path, seen: Path) -> list[str]:
    """The words that the server of a script is started with."""
    done = subprocess.run(
        ["/bin/bash", "-c", script], env={"PATH": str(stand_ins), "SEEN": str(seen)}, capture_output=True, text=True,
        check=False, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stderr}\n{script}"
    name, *words = seen.read_text(encoding="utf-8").split("\0")[:-1]
    assert (name, words[0]) == ("vllm", "serve"), f"{name} {words}\n{script}"
    return words[1:]


def words_in(manifest: str) -> list[str]:
    """The words of the one container of a manifest, behind ``vllm serve``."""
    document = yaml.safe_load(manifest)
    if "services" in document:
        return [str(word) for word in document["services"]["llm"]["command"]]
    container = document["spec"]["template"]["spec"]["containers"][0]
    words = [str(word) for word in [*container.get("command", []), *container.get("args", [])]]
    return words[2:] if words[:2] == ["vllm", "serve"] else words


def mended() -> Iterator[tuple[str, str, str]]:
    """(rule, form, text) of every file about a flag of the table that mending leaves without a false flag."""
    for rule, row in ROWS.items():
        for flag in row.flags:
            for shaped in flag_shapes(flag, model=row.model):
                if shaped.form not in RUN | PARSED:
                    continue
                text, done = fix_text(shaped.text)
                left = {problem.status for problem in lint_text(text).problems}
                if done and not left & {"never_existed", "removed", "dangerous", "renamed"}:
                    yield rule, shaped.form, text


def test_vllm_takes_the_line_of_every_mended_file_and_refuses_the_false_flags(stand_ins: Path, tmp_path: Path) -> None:
    asked: dict[tuple[str, ...], tuple[str, str, str]] = {}
    rules = set()
    for rule, form, text in mended():
        words = words_of(text, stand_ins, tmp_path / "seen") if form in RUN else words_in(text)
        asked.setdefault(tuple(words), (rule, form, text))
        rules.add(rule)
    assert len(rules) > 15
    assert len(asked) > 30
    # The other direction, so that a parser which took anything would fail the test too.
    refused = [
        ["m", *flag.split()]
        for rule, row in ROWS.items()
        for flag in row.flags
        if rule
        in ("vllm.moe-capacity-factor", "vllm.obsolete-flags", "vllm.cpu-offload", "vllm.enable-async-output-proc")
    ]
    answers = ask("parse_serve_lines", [*map(list, asked), *refused])
    assert not [(asked[words], answer) for words, answer in zip(asked, answers, strict=False) if answer]
    assert all(answers[len(asked) :])


@pytest.mark.parametrize("path", sorted(DATA.glob("*.sh")), ids=lambda path: path.name)
def test_bash_reads_a_mended_script(path: Path) -> None:
    fixed, _ = fix_text(path.read_text(encoding="utf-8"))
    done = subprocess.run(["/bin/bash", "-n"], input=fixed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(DATA.glob("*.yaml")), ids=lambda path: path.name)
def test_yaml_reads_a_mended_manifest(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    fixed, _ = fix_text(text)
    assert [type(document) for document in yaml.safe_load_all(fixed)] == [type(one) for one in yaml.safe_load_all(text)]
