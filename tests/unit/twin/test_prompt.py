from __future__ import annotations

from roadworthy.twin.prompt import Segment, block_contents, segment_tokens


def blocks(*segments: tuple[str, int], size: int = 4) -> list[object]:
    return list(block_contents(tuple(Segment(*segment) for segment in segments), size))


def test_only_full_blocks_are_named() -> None:
    assert len(blocks(("a", 3))) == 0
    assert len(blocks(("a", 11))) == 2


def test_a_shorter_cut_of_a_segment_has_the_same_first_blocks() -> None:
    assert blocks(("system", 8), ("x", 4))[:2] == blocks(("system", 11), ("y", 1))[:2]


def test_blocks_differ_where_the_text_differs() -> None:
    one, other = blocks(("system", 6), ("x", 2)), blocks(("system", 6), ("y", 2))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_a_block_over_several_segments_names_each_piece() -> None:
    assert blocks(("a", 2), ("b", 1), ("c", 5)) == [(("a", 0, 2), ("b", 0, 1), ("c", 0, 1)), (("c", 1, 4),)]


def test_tokens_add_up() -> None:
    assert segment_tokens((Segment("a", 2), Segment("b", 5))) == 7
