"""Whatever is quoted: a citation that comes back is the text's own words at its offsets, and says what was quoted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.longdoc.cite import cite, compared, find_quote, stands
from roadworthy.longdoc.replies import Objects, WithoutThoughts
from roadworthy.longdoc.search import StoredUnit
from roadworthy.longdoc.values import Unit

LETTERS = st.sampled_from(list("ab1.9,，。 \n\t\u3000第三十条权利人ﬁé\u0301\u00ad“\"'’-—…Ａ１"))
TEXTS = st.text(LETTERS, max_size=60)


def stored(text: str, start: int = 7) -> StoredUnit:
    unit = Unit(
        kind="text", number="", label="L", title="", path=(), text=text, char_start=start, char_end=start + len(text)
    )
    return StoredUnit(id=1, document="d", unit=unit)


@given(TEXTS, TEXTS, st.tuples(st.integers(0, 60), st.integers(4, 60)))
@settings(max_examples=300)
def test_a_citation_is_true_and_says_what_was_quoted(other: str, text: str, cut: tuple[int, int]) -> None:
    unit = stored(text)
    copied = text[cut[0] : cut[0] + cut[1]].replace("，", ", ").replace("“", '"')
    quote = copied if cut[1] % 4 else copied + other
    for one in cite(quote, unit):
        assert text[one.start - 7 : one.end - 7] == one.quote
        assert stands(one, unit)
        assert compared(one.quote).text in compared(quote).text


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=300)
def test_a_whole_passage_is_found_wherever_it_stands(before: str, text: str, after: str) -> None:
    span = find_quote(text, f"{before} | {text} | {after}")
    wanted = compared(text.strip(" \t\r\n\"'“”‘’«»「」『』.,;:。，；：、…")).text
    assert (span is not None) == bool(wanted) or wanted[:1].isspace() or _edge(text)


def _edge(text: str) -> bool:
    """Texts whose edge is a mark on the letter before it have no edge of their own."""
    kept = text.strip(" \t\r\n\"'“”‘’«»「」『』.,;:。，；：、…\u00ad")
    return kept[:1] == "\u0301" or kept[-1:] == "\u0301" or not kept


@given(st.text(st.sampled_from(list('{}[]"\\:, a1<>/think')), max_size=200), st.integers(1, 20))
@settings(max_examples=200)
def test_how_a_reply_is_cut_into_pieces_changes_nothing(said: str, size: int) -> None:
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    whole, cut = Objects(), Objects()
    assert [one for piece in pieces for one in cut.feed(piece)] == list(whole.feed(said))
    first, second = WithoutThoughts(), WithoutThoughts()
    assert "".join(first.feed(piece) for piece in pieces) + first.end() == second.feed(said) + second.end()
