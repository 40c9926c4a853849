"""Laws of linting: nothing that can be in a file brings it down, mending twice is mending once, a clean file stays."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.lint.fix import fix_text
from roadworthy.lint.run import lint_text
from roadworthy.lint.shell_lexer import read_shell
from roadworthy.lint.text import NotText, Piece, decode
from roadworthy.lint.yaml_source import read_yaml
from support.lint_rows import ROWS
from support.lint_shapes import flag_shapes, variable_shapes

FILES = [
    shaped.text
    for row in ROWS.values()
    for shaped in (
        *(one for flag in row.flags[:1] for one in flag_shapes(flag, model=row.model)),
        *(one for name, value in row.variables[:1] for one in variable_shapes(name, value)),
    )
] + [text.replace("@@", "") for row in ROWS.values() for text in (*row.false, *row.silent)]

PIECES = st.sampled_from([
    "vllm serve ", "--moe-capacity-factor 1.25 ", "export NCCL_ALGO=Tree", "'", '"', "\\\n", "\n", "\r\n", "$(", ")",
    "${X", "}", "`", "<<EOF\n", "EOF\n", "ARGS=(", "- name: NCCL_ALGO\n  value: Tree\n", "args:\n",
    "  - --swap-space\n", '  - "16"\n', "{{ .Values.x }}", "{% if a %}", "image: vllm/vllm-openai:v0.6.3\n",
    "apiVersion: v1\nkind: Pod\n", "#", "[Service]\n", "ExecStart=", "&a *a", "|\n", ">\n", "\t", " ", ";", "&&", "|",
    "=", ":", "\x00", "\ufeff", "é", "\u2028", "\ue000", "import os\n", "@reboot ipcs | ipcrm\n", "0 * * * * ",
])  # fmt: skip


@given(st.binary(max_size=400))
def test_any_bytes_are_text_or_are_said_to_be_none(data: bytes) -> None:
    try:
        decoded = decode(data)
    except NotText:
        return
    assert decoded.encode(decoded.text) == data
    lint_text(decoded.text)


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    report = lint_text(text)
    for problem in report.problems:
        assert 1 <= problem.line <= text.count("\n") + text.count("\r") + 1


@given(st.lists(PIECES, max_size=30).map("".join))
@settings(max_examples=400)
def test_broken_scripts_and_manifests_are_read_and_mended_once(text: str) -> None:
    fixed, _ = fix_text(text)
    again, done = fix_text(fixed)
    assert (again, done) == (fixed, ())


@given(st.sampled_from(FILES), st.data())
@settings(max_examples=300)
def test_a_file_cut_short_is_read(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    fix_text(text[:cut])
    fix_text(text[cut:])


@given(st.sampled_from(FILES), st.sampled_from(FILES))
@settings(max_examples=150)
def test_two_files_in_one_are_read(first: str, second: str) -> None:
    fixed, _ = fix_text(first + "\n" + second)
    assert fix_text(fixed)[0] == fixed


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_ends_change_neither_lines_nor_findings(ending: str) -> None:
    for text in FILES[:200]:
        if ending == "\r" and ("\n\n" in text or "\\\n" in text or "<<" in text):
            continue
        here = [(one.line, one.rule) for one in lint_text(text).problems]
        there = [(one.line, one.rule) for one in lint_text(text.replace("\n", ending)).problems]
        assert ending == "\r" or here == there, text


@given(st.text(string.printable, max_size=200))
def test_words_of_a_script_stand_where_they_say(text: str) -> None:
    for command in read_shell(Piece(text)).commands:
        for word in command.words:
            assert 0 <= word.start < word.end <= len(text)
            for position, character in enumerate(word.value):
                assert text[word.piece.at(position)] == character


KEYS = st.text(string.ascii_letters, min_size=1, max_size=6)


@given(st.recursive(
    st.text(string.ascii_letters + string.digits + " '\"#:-{}[]\n\\é", max_size=12) | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_scalars_of_a_manifest_have_the_value_that_yaml_gives_them(value: object) -> None:
    import yaml

    if not isinstance(value, (list, dict)):
        value = [value]
    for style in (None, '"', "'", "|", ">"):
        text = yaml.safe_dump(value, default_style=style, allow_unicode=True)  # type: ignore[arg-type]
        nodes = {id(node): node for node in _scalars(yaml.compose(text))}
        wanted = sorted(node.value for node in nodes.values())
        documents = read_yaml(Piece(text)).documents
        found = sorted(item.value for document in documents for item in document.walk() if item.kind == "text")
        keys = sorted(key.value for document in documents for item in document.walk() for key, _ in item.entries)
        assert [one.rstrip("\n") for one in sorted(found + keys)] == [one.rstrip("\n") for one in wanted], text


def _scalars(node: object) -> list[object]:
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return [node]
    if isinstance(node, yaml.SequenceNode):
        return [one for child in node.value for one in _scalars(child)]
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for child in pair for one in _scalars(child)]
    return []
