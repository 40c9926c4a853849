"""Text to tree: what is refused, with its line; and that no text can take memory or run code."""

from __future__ import annotations

import pytest

from roadworthy.spec.yaml_text import MAX_NODES, MAX_TEXT_BYTES, ListNode, MapNode, ScalarNode, describe, read_yaml


def value(text: str) -> object:
    node, problems = read_yaml(f"a: {text}", source="x")
    assert not problems
    assert isinstance(node, MapNode)
    scalar = node.entries["a"]
    assert isinstance(scalar, ScalarNode)
    return scalar.value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("8", 8), ("-3", -3), ("0.30", 0.3),
        ("1e3", 1000.0), (".5", 0.5), ("16/s", "16/s"), ("'8'", "8"), ('"true"', "true"), ("80GiB", "80GiB"),
        ("2026-01-01", "2026-01-01"), ("http://a:1", "http://a:1"), ("!!str 5", "5"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, wanted: object) -> None:
    assert value(text) == wanted
    assert type(value(text)) is type(wanted)


@pytest.mark.parametrize("text", ["on", "Off", "YES", "n", "1:30", "190:20:30", "012", "-07", "1_000", "0x1F", "0o17"])
def test_readings_that_differ_between_yaml_versions_are_marked(text: str) -> None:
    node, _ = read_yaml(f"a: {text}", source="x")
    assert isinstance(node, MapNode)
    trap = node.entries["a"]
    assert isinstance(trap, ScalarNode)
    assert trap.trap
    assert trap.value == text
    quoted, _ = read_yaml(f'a: "{text}"', source="x")
    assert isinstance(quoted, MapNode)
    kept = quoted.entries["a"]
    assert isinstance(kept, ScalarNode)
    assert not kept.trap


def test_a_key_written_twice_is_named_with_both_lines_wherever_it_is() -> None:
    _, problems = read_yaml("a: 1\nb:\n  - c: 1\n    d: 2\n    c: 3\na: 2\n", source="x")
    assert [(problem.path, problem.seen) for problem in problems] == [
        ("b[0].c", "written twice, on lines 3 and 5"),
        ("a", "written twice, on lines 1 and 6"),
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [("a: [1\nb: 2", "x:2:"), ("a: b: c", "x:1:5"), ("\ta: 1", "x:1:1"), ("a: 'open", "x:1:"), ("%", "x:1:")],
)
def test_a_syntax_error_is_one_problem_with_line_and_column(text: str, place: str) -> None:
    node, problems = read_yaml(text, source="x")
    assert node is None
    (problem,) = problems
    assert problem.path.startswith(place)
    assert problem.wanted.startswith("YAML")


def test_tabs_get_a_hint() -> None:
    _, (problem,) = read_yaml("a:\n\tb: 1", source="x")
    assert "spaces" in problem.hint


def test_a_tag_is_refused_and_builds_nothing() -> None:
    _, (problem,) = read_yaml("a: !!python/object/apply:os.system [ls]", source="x")
    assert problem.path == "a"
    assert "os.system" in problem.seen


def test_two_documents_in_one_file_are_refused() -> None:
    node, (problem,) = read_yaml("a: 1\n---\nb: 2\n", source="x")
    assert node is None
    assert problem.path == "x:2"


def test_an_alias_repeats_its_anchor_and_a_merge_gives_way_to_what_is_written() -> None:
    node, problems = read_yaml("base: &b {x: 1, y: 2}\none: *b\ntwo: {<<: *b, y: 3}\n", source="x")
    assert not problems
    assert isinstance(node, MapNode)
    one, two = node.entries["one"], node.entries["two"]
    assert isinstance(one, MapNode)
    assert isinstance(two, MapNode)
    assert describe(one.entries["x"]) == "1"
    assert {key: describe(item) for key, item in two.entries.items()} == {"x": "1", "y": "3"}


@pytest.mark.parametrize("text", ["a: *b", "a: &a [*a]"])
def test_an_alias_of_nothing_is_refused(text: str) -> None:
    node, (problem,) = read_yaml(text, source="x")
    assert node is None
    assert problem.seen.startswith("*")


def test_a_merge_of_something_else_is_named() -> None:
    _, (problem,) = read_yaml("a: {<<: 5}", source="x")
    assert problem.path == "a.<<"


def test_aliases_that_multiply_are_stopped_by_count() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [" + ", ".join([f"*l{n - 1}"] * 10) + "]" for n in range(1, 12)]
    node, (problem,) = read_yaml("\n".join(lines), source="x")
    assert node is None
    assert f"{MAX_NODES:,}" in problem.seen


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 900, "{a: " * 200, "- " * 400, "a: " + "[" * 60 + "]" * 60])
def test_nesting_without_end_is_refused(text: str) -> None:
    node, problems = read_yaml(text, source="x")
    assert node is None
    assert len(problems) == 1


def test_more_than_four_mebibytes_are_refused_by_characters_and_by_bytes() -> None:
    for text in ("#" * (MAX_TEXT_BYTES + 1), "#" + "é" * (MAX_TEXT_BYTES // 2)):
        node, (problem,) = read_yaml(text, source="x")
        assert node is None
        assert "4 MiB" in problem.wanted


@pytest.mark.parametrize("text", ["a: \x00", "a: \x07", "\ud800", "a: \ufffe"])
def test_characters_that_are_no_text_are_refused(text: str) -> None:
    node, (problem,) = read_yaml(text, source="x")
    assert node is None
    assert problem.wanted == "printable UTF-8 text"


def test_a_list_as_a_key_is_refused() -> None:
    node, (problem,) = read_yaml("? [a]\n: b", source="x")
    assert node is None
    assert "key" in problem.seen


def test_what_was_seen_fits_on_a_line() -> None:
    node, _ = read_yaml("a: " + "x" * 500 + "\nb: [1, 2]\nc: {d: 1}\ne: \"\\n\\e\"\nf: ''\n", source="x")
    assert isinstance(node, MapNode)
    shown = {key: describe(item) for key, item in node.entries.items()}
    assert len(shown["a"]) == 60
    assert shown["b"] == "a list of 2"
    assert shown["c"] == "a mapping of d"
    assert shown["e"] == "\\n\\x1b"
    assert shown["f"] == "empty text"
    assert describe(ListNode(items=(), line=1)) == "an empty list"
