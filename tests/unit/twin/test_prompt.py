"""Prompts as segments, and the tree of texts that they make."""

from __future__ import annotations

from roadworthy.twin.prompt import Segment, segment_tokens
from roadworthy.twin.texts import Path, Text


def test_tokens_add_up() -> None:
    assert segment_tokens((Segment("a", 30), Segment("b", 5))) == 35
    assert segment_tokens(()) == 0


def test_prompts_that_begin_alike_share_their_texts() -> None:
    root = Text(None, None, 0)
    one = Path(root, [("system", 70), ("one", 10)])
    two = Path(root, [("system", 70), ("two", 10)])
    longer = Path(root, [("system", 100), ("one", 10)])
    assert one.texts[0] is two.texts[0] is longer.texts[0]
    assert one.texts[1] is not two.texts[1]
    assert one.texts[1] is not longer.texts[1], "the same words after more of the system prompt"
    assert (one.ends, longer.ends) == ([70, 80], [100, 110])


def test_an_empty_segment_is_no_text() -> None:
    path = Path(Text(None, None, 0), [("a", 0), ("b", 4)])
    assert path.ends == [4]


def test_the_tree_keeps_what_somebody_uses() -> None:
    root = Text(None, None, 0)
    one, two = Path(root, [("a", 4), ("b", 4)]), Path(root, [("a", 4), ("b", 4), ("c", 4)])
    two.leave()
    assert [text.key for text in root.children.values()] == ["a"]
    assert one.texts[1].children == {}
    one.leave()
    assert root.children == {}
