"""What an engine publishes of its blocks, set against what the index supposes."""

from __future__ import annotations

from roadworthy.route.confirm import PENDING_REQUESTS, Confirmations
from roadworthy.route.prefix import EngineIndex

KEYS = tuple(range(101, 109))  # of a prompt of 8192 bytes, which is 1024 tokens: a bound each 128 tokens
PROMPT = {"prompt_bytes": 8192, "prompt_tokens": 1024}


def engine() -> tuple[EngineIndex, Confirmations]:
    index = EngineIndex(entries=1000)
    confirmations = Confirmations(index)
    index.add(KEYS)
    confirmations.expect("r1")
    return index, confirmations


def blocks(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def test_keys_whose_blocks_were_stored_are_confirmed() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 64), 16)
    known.settle("r1", KEYS, **PROMPT)
    assert (len(known), known.confirmed_total, known.refuted_total) == (8, 8, 0)
    assert index.matched(KEYS) == 8


def test_an_evicted_block_ends_the_match_where_it_lay() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 64), 16)
    known.settle("r1", KEYS, **PROMPT)
    known.removed([40])  # the last block of the fifth key: tokens 624 to 640
    assert index.matched(KEYS) == 4
    known.removed([64, 9999])
    assert index.matched(KEYS) == 4
    assert len(known) == 6


def test_blocks_that_come_in_several_events_are_put_together() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 32), 16)
    known.stored("r1", 32, blocks(33, 32), 16)
    known.settle("r1", KEYS, **PROMPT)
    assert len(known) == 8
    known.removed([64])
    assert index.matched(KEYS) == 7


def test_what_the_engine_did_not_keep_is_forgotten() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 32), 16)  # half of the prompt
    known.settle("r1", KEYS, **PROMPT)
    assert index.matched(KEYS) == 4
    assert known.refuted_total == 4


def test_the_last_block_of_a_prompt_may_be_missing_because_it_is_not_full() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 7), 128)  # 896 of 1024 tokens in blocks of 128
    known.settle("r1", KEYS, prompt_bytes=8192, prompt_tokens=1020)
    assert index.matched(KEYS) == 8


def test_a_prefix_the_engine_had_before_stays_and_the_rest_is_confirmed() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 64), 16)
    known.settle("r1", KEYS, **PROMPT)
    longer = (*KEYS, 201, 202)  # 10240 bytes, 1280 tokens: only the last 256 are new
    index.add(longer)
    known.expect("r2")
    known.stored("r2", 64, blocks(65, 16), 16)
    known.settle("r2", longer, prompt_bytes=10240, prompt_tokens=1280)
    assert index.matched(longer) == 10
    known.removed([80])
    assert index.matched(longer) == 9


def test_blocks_after_one_that_was_never_heard_of_confirm_nothing() -> None:
    index, known = engine()
    known.stored("r1", 777, blocks(1, 8), 16)
    known.settle("r1", KEYS, **PROMPT)
    assert (index.matched(KEYS), known.confirmed_total, known.refuted_total) == (8, 0, 0)


def test_without_usage_or_without_a_word_of_the_engine_all_stays_as_supposed() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 2), 16)
    known.settle("r1", KEYS, prompt_bytes=8192, prompt_tokens=None)
    known.expect("r2")
    known.settle("r2", KEYS, **PROMPT)
    known.settle("never seen", KEYS, **PROMPT)
    assert (index.matched(KEYS), known.refuted_total) == (8, 0)


def test_events_of_other_requests_only_teach_where_their_blocks_lie() -> None:
    index, known = engine()
    known.stored("someone else's", None, blocks(1, 32), 16)
    known.stored(None, 32, blocks(33, 16), 16)
    known.stored("r1", 48, blocks(49, 16), 16)
    known.settle("r1", KEYS, **PROMPT)
    assert known.confirmed_total == 2  # the last 256 tokens
    assert index.matched(KEYS) == 8


def test_two_prompts_that_end_in_one_block_both_lose_it() -> None:
    index = EngineIndex(entries=100)
    known = Confirmations(index)
    for name, key in (("r1", 1), ("r2", 2)):
        index.add([key])
        known.expect(name)
        known.stored(name, None, [70], 128)
        known.settle(name, [key], prompt_bytes=1040, prompt_tokens=132)
    known.removed([70])
    assert (index.matched([1]), index.matched([2]), len(known)) == (0, 0, 0)


def test_after_a_clear_nothing_is_known_and_late_events_do_no_harm() -> None:
    index, known = engine()
    known.stored("r1", None, blocks(1, 64), 16)
    known.settle("r1", KEYS, **PROMPT)
    known.clear()
    known.removed([1, 64])
    assert (len(known), index.matched(KEYS)) == (0, 8)


def test_requests_that_never_end_are_forgotten_in_the_end() -> None:
    index, known = engine()
    for number in range(PENDING_REQUESTS):
        known.expect(f"lost {number}")
    known.stored("r1", None, blocks(1, 32), 16)
    known.settle("r1", KEYS, **PROMPT)
    assert index.matched(KEYS) == 8


def test_what_is_confirmed_is_bounded_by_what_the_index_holds() -> None:
    index = EngineIndex(entries=8)
    known = Confirmations(index)
    for number in range(200):
        key = 1000 + number
        index.add([key])
        known.expect("r")
        known.stored("r", None, [5000 + number], 128)
        known.settle("r", [key], prompt_bytes=1024, prompt_tokens=128)
    assert len(known) <= 2 * 8 + 1
