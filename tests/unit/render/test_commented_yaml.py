"""YAML with reasons: what a reader gets back is the data, and the reasons stand where a person looks for them."""

from __future__ import annotations

import pytest
import yaml

from roadworthy.render.commented_yaml import LINE_MAX, Text, comment_lines, plain, said, settings_of, yaml_text


def test_a_reason_stands_behind_its_value() -> None:
    assert yaml_text({"replicas": said(2, "two engines")}) == "replicas: 2  # two engines\n"


def test_a_reason_that_is_too_long_stands_above_and_is_wrapped() -> None:
    lines = yaml_text({"a": {"replicas": said(2, "word " * 60)}}).splitlines()
    assert all(len(line) <= LINE_MAX for line in lines)
    assert lines[-1] == "  replicas: 2"
    assert all(line.startswith("  # word") for line in lines[1:-1])


def test_the_reason_of_a_whole_item_stands_above_its_dash() -> None:
    assert yaml_text({"rules": [said({"alert": "Down", "for": "1m"}, "nobody is served")]}) == (
        'rules:\n  # nobody is served\n  - alert: Down\n    for: "1m"\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "yes", "No", "ON", "off", "~", "null", "true", "1", "0x1f", "1e3", "012", "1:30", ".5", ".inf",
        "2001-01-01", "=", "", " ", "a: b", "a #b", "- a", "? a", "& a", "*a", "!a", "|", ">", "%a", "@a",
        "`a`", "{a}", "[a]", "a\nb", "a\tb", "'", '"', "\\", "a\\n", "\x00", "\x7f", "\x85", "\u2028", "é",
        "日本", "\U0001f600", "---", "...", "--", "--flag", "-", "<<", "y", "N", "nan", "key: |", "#", "a ", " a",
    ],
)  # fmt: skip
def test_every_text_reads_back_as_itself_as_value_key_and_item(text: str) -> None:
    tree = {"value": text, "said": said(text, text), text: [text, said(text, "why")]}
    assert yaml.safe_load(yaml_text(tree, header=text)) == plain(tree)


@pytest.mark.parametrize("value", [0, -1, 2**63, 0.1, 1e22, 1e-7, -2.5e-9, True, False, None])
def test_every_number_reads_back_as_itself(value: float | bool | None) -> None:
    read = yaml.safe_load(yaml_text({"value": value}))["value"]
    assert (read, type(read)) == (value, type(value))


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        yaml_text({"value": float("nan")})


@pytest.mark.parametrize(
    "text",
    [
        "a\nb\n",
        "a:\n  b: |\n    c\n",
        "- x # y\n\n- z\n",
        " indented\n",
        "no end",
        "two\n\n",
        "tab\there\n",
        "é\n",
        "\n",
    ],
)
def test_many_lines_read_back_unchanged(text: str) -> None:
    assert yaml.safe_load(yaml_text({"data": {"file": Text(text=text)}, "after": 1})) == {
        "data": {"file": text},
        "after": 1,
    }


def test_a_literal_block_is_used_where_it_can_hold_the_text() -> None:
    assert yaml_text({"file": Text(text="a: 1\n")}) == "file: |\n  a: 1\n"


def test_comments_cannot_leave_their_line() -> None:
    assert comment_lines("one\rkey: evil\ntwo\u2028x: y") == "# one\n# key: evil\n# two\n# x: y\n"
    assert yaml.safe_load(yaml_text({"a": said(1, "why\nb: 2\x85c: 3")})) == {"a": 1}


def test_settings_are_named_by_their_place_with_value_and_reason() -> None:
    container = {
        "name": "vllm",
        "args": [said("--port", "where", name="--port", shown=8000), "8000"],
        "env": [{"name": "VLLM_PORT", "valueFrom": said({"x": "y"}, "so", name="VLLM_PORT", shown="of the pod")}],
        "tty": said(True, "so"),
    }
    tree = {"spec": {"containers": [container]}}
    found = [(one.kind, one.name, one.value, one.why) for one in settings_of(tree)]
    assert found == [
        ("flag", "--port", 8000, "where"),
        ("variable", "VLLM_PORT", "of the pod", "so"),
        ("field", "spec.containers[vllm].tty", True, "so"),
    ]


def test_documents_are_parted() -> None:
    assert list(yaml.safe_load_all(yaml_text({"a": 1}, {"b": 2}))) == [{"a": 1}, {"b": 2}]


def test_two_reasons_for_one_item_are_both_told() -> None:
    assert yaml_text({"a": [said(said(None, "inner"), "outer")]}) == "a:\n  - null  # outer; inner\n"
    assert yaml.safe_load(yaml_text(said(said([said(said({"k": 1}, "x"), "y")], "a"), "b"))) == [{"k": 1}]
