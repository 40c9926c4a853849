"""Prompts: the same text for the same plan, about as long as planned, in turns that alternate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.advise.arrivals import PlannedRequest
from roadworthy.bench.prompts import PROBE_WORDS, Calibration, conversation, probe, segment_text
from roadworthy.twin.prompt import Segment


def planned(*segments: Segment) -> PlannedRequest:
    return PlannedRequest(
        t_sched_s=0, session=1, turn=1, turns=2, prompt_tokens=sum(one.tokens for one in segments), output_tokens=5,
        segments=segments,
    )  # fmt: skip


def test_probes_have_their_length_in_words_and_ask_for_one_token() -> None:
    for which, words in enumerate(PROBE_WORDS):
        (message,) = probe(which).messages
        assert len(message.text.split()) == words
        assert probe(which).output_tokens == 1


@given(st.floats(0.5, 4.0), st.integers(0, 60), st.integers(100, 5000))
def test_two_probes_are_enough_to_hit_a_length_in_tokens(per_word: float, frame: int, tokens: int) -> None:
    counts = tuple(round(words * per_word + frame) for words in PROBE_WORDS)
    calibration = Calibration.of_probes((counts[0], counts[1]))
    words = calibration.words(tokens)
    assert words * per_word + frame == pytest.approx(tokens, abs=max(4, 0.02 * tokens))


def test_a_server_that_counts_nonsense_leaves_the_default() -> None:
    assert Calibration.of_probes((50, 50)) == Calibration()
    assert Calibration.of_probes((50, 10)) == Calibration()


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_shorter_cut_of_a_segment_is_a_prefix_of_a_longer_one(few: int, many: int) -> None:
    short, long = segment_text("system", min(few, many)), segment_text("system", max(few, many))
    assert long.startswith(short)


def test_different_segments_differ_from_the_first_words() -> None:
    assert segment_text("s1.0u", 8) != segment_text("s2.0u", 8)


def test_a_conversation_is_system_then_user_and_assistant_by_turns() -> None:
    request = planned(Segment("system", 30), Segment("s1.0u", 20), Segment("s1.0a", 9), Segment("s1.1u", 20))
    messages = conversation(request, {"s1.0a": "what the engine said"}, Calibration())
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2].text == "what the engine said"


def test_an_answer_that_was_not_kept_is_filler_of_its_length() -> None:
    request = planned(Segment("s1.0u", 20), Segment("s1.0a", 13), Segment("s1.1u", 20))
    answer = conversation(request, {}, Calibration(tokens_per_word=1.0))[1]
    assert (answer.role, len(answer.text.split())) == ("assistant", 13)


def by_letters(text: str) -> int:
    """A tokenizer whose words are a token for each three letters begun; blanks belong to the word after them."""
    return sum(-(-len(word) // 3) for word in text.split())


@given(st.integers(3, 3000), st.integers(0, 3))
def test_with_a_tokenizer_a_text_has_its_length_to_the_word(tokens: int, seed: int) -> None:
    calibration = Calibration().by_tokenizer(by_letters)
    assert calibration.sized_by == "tokenizer"
    text = calibration.cut(f"s{seed}", tokens)
    assert by_letters(text) == pytest.approx(tokens, abs=2)


@given(st.integers(1, 300), st.integers(1, 300))
def test_with_a_tokenizer_too_a_shorter_cut_is_a_prefix(few: int, many: int) -> None:
    calibration = Calibration().by_tokenizer(by_letters)
    short, long = sorted((calibration.cut("system", few), calibration.cut("system", many)), key=len)
    assert long.startswith(short)


def test_where_nothing_counts_lengths_go_by_bytes() -> None:
    calibration = Calibration()
    assert calibration.sized_by == "bytes"
    text = calibration.cut("x", 1000)
    assert len(text.encode()) == pytest.approx(4000, rel=0.05)
    assert calibration.tokens_of(text) == pytest.approx(1000, rel=0.05)


def test_texts_that_a_trace_recorded_are_sent_as_they_are() -> None:
    said = (("system", "Be brief."), ("user", "Hm?"), ("tool", "42"))
    request = PlannedRequest(
        t_sched_s=0, session=1, turn=0, turns=1, prompt_tokens=5, output_tokens=5, segments=(Segment("t1.0u", 5),),
        said=said,
    )  # fmt: skip
    messages = conversation(request, {}, Calibration())
    assert [(one.role, one.text) for one in messages] == [("system", "Be brief."), ("user", "Hm?"), ("user", "42")]


def test_blocks_of_one_prompt_are_one_message_and_shared_blocks_share_their_text() -> None:
    calibration = Calibration(tokens_per_word=1.0)
    first = conversation(planned(Segment("h1", 50), Segment("h2", 20)), {}, calibration)
    second = conversation(planned(Segment("h1", 50), Segment("h3", 20)), {}, calibration)
    assert len(first) == len(second) == 1
    assert first[0].text.split()[:50] == second[0].text.split()[:50]
    assert first[0].text.split()[50:] != second[0].text.split()[50:]
    assert len(first[0].text.split()) == 70
