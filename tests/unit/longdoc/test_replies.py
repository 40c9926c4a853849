"""What a model wrote becomes values, whatever stands around them and however it is cut into pieces."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.replies import Objects, WithoutThoughts, objects, texts

SAID = 'Sure!\n```json\n[{"claim": "a } b \\" {", "cite": [{"id": "P1"}]},\n{"n": 2}]\n``` {broken} {"last": tru'


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_objects_come_out_of_prose_fences_and_lists(size: int) -> None:
    reader = Objects()
    found = [one for at in range(0, len(SAID), size) for one in reader.feed(SAID[at : at + size])]
    assert found == [{"claim": 'a } b " {', "cite": [{"id": "P1"}]}, {"n": 2}]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_thoughts_are_left_out(size: int) -> None:
    said = 'a <b> <think>{"claim": "thought"}</think>{"claim": "said"}<think>never closed'
    reader = WithoutThoughts()
    kept = "".join(reader.feed(said[at : at + size]) for at in range(0, len(said), size)) + reader.end()
    assert kept == 'a <b> {"claim": "said"}'
    assert objects(said) == [{"claim": "said"}]


def test_what_begins_like_a_thought_and_is_none_is_kept() -> None:
    reader = WithoutThoughts()
    assert reader.feed("x <thi") == "x "
    assert reader.end() == "<thi"


def test_deep_nesting_and_endless_objects_end() -> None:
    assert objects('{"a":' * 5000 + "1" + "}" * 5000) == []
    assert objects("{" + "x" * 300_000) == []


def test_only_strings_of_a_list_are_taken() -> None:
    assert texts(["a", 1, None, " ", "b" * 9, "c"], most=2, longest=3) == ["a", "bbb"]
    assert texts("one", most=2, longest=9) == ["one"]
    assert texts({"no": 1}, most=2, longest=9) == []
