from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.adapters.twin_server.text import chat_tokens, contents, filler, tokens_of

ENGLISH = (
    "The engine answers with filler text at the speed the plan predicts, so that clients, dashboards and limits can be "
    "tried without a GPU. Prompts are counted at about four characters a token, as English comes to in practice."
)


@given(st.text())
def test_tokens_join_to_the_text(text: str) -> None:
    assert "".join(tokens_of(text)) == text


def test_english_comes_to_about_four_characters_a_token() -> None:
    assert 3.3 < len(ENGLISH) / len(tokens_of(ENGLISH)) < 4.7


def test_filler_opens_by_saying_what_it_is() -> None:
    assert "".join(filler(["x"], 50)).startswith("(simulated) ")


@given(st.lists(st.text(min_size=1), min_size=1), st.integers(1, 300))
def test_filler_has_exactly_the_asked_tokens_and_is_the_same_each_time(prompt: list[str], count: int) -> None:
    answer = filler(prompt, count)
    assert len(answer) == count
    assert answer == filler(prompt, count)
    assert filler(prompt, count + 5)[:count] == answer


@given(st.integers(1, 200))
def test_an_answer_sent_back_has_the_tokens_it_had(count: int) -> None:
    """What makes the next turn hit the cached blocks of this answer."""
    answer = filler(["prompt"], count)
    assert tokens_of("".join(answer)) == answer


def test_filler_needs_no_escaping_in_json() -> None:
    assert all(char.isalnum() or char in "() " for char in "".join(filler(["x"], 500)))


def test_other_prompts_get_other_text() -> None:
    assert len({"".join(filler([str(index)], 40)) for index in range(50)}) > 30


def test_a_conversation_begins_as_the_shorter_one_does() -> None:
    question = {"role": "user", "content": "how far is it"}
    first = chat_tokens([question])
    answer = filler(first, 30)
    follow_up = [question, {"role": "assistant", "content": "".join(answer)}, {"role": "user", "content": "and now"}]
    assert chat_tokens(follow_up)[: len(first) + 30] == first + answer


def test_content_in_parts_is_their_text() -> None:
    parts = [{"type": "text", "text": "the cat"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert chat_tokens([{"role": "user", "content": parts}]) == chat_tokens([{"role": "user", "content": "the cat"}])


def test_contents_name_full_units_and_tell_salts_apart() -> None:
    tokens = tokens_of(ENGLISH)
    named = contents(tokens, 16, "")
    assert len(named) == len(tokens) // 16
    assert named[:2] == contents(tokens[:40], 16, "")
    assert not set(named) & set(contents(tokens, 16, "salt"))
