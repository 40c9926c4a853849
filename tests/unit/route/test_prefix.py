"""Beginnings of prompts: keys from bytes, and what an engine should hold."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import pytest

from roadworthy.route.prefix import (
    BOUNDS_BYTES,
    FIELD_WITHIN_BYTES,
    STEP_BYTES,
    STEP_RATIO,
    EngineIndex,
    matched_bytes,
    prefix_keys,
    prompt_start,
    salt_of,
)

SALT = salt_of("acme", "m")


def text(size: int, seed: int = 0) -> bytes:
    return (f"{seed} the quick brown fox jumps over the lazy dog; ".encode() * (size // 20 + 1))[:size]


def chat(*turns: str, **more: object) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": turn} for at, turn in enumerate(turns)]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def test_bounds_rise_by_at_most_an_eighth_and_never_by_less_than_a_step() -> None:
    for before, after in pairwise(BOUNDS_BYTES):
        assert STEP_BYTES <= after - before <= max(STEP_BYTES, before / STEP_RATIO)


def test_keys_grow_with_the_logarithm_of_the_length() -> None:
    counts = [len(prefix_keys(text(kib * 1024), SALT)) for kib in (16, 64, 256, 1024, 4096)]
    grown = [after - before for before, after in pairwise(counts)]
    assert counts[0] == 16
    assert max(grown) - min(grown) <= 2
    assert counts[-1] < 80


def test_equal_beginnings_have_equal_keys_up_to_where_they_part() -> None:
    shared = text(10_000)
    one, other = prefix_keys(shared + text(5000, 1), SALT), prefix_keys(shared + text(9000, 2), SALT)
    common = sum(a == b for a, b in zip(one, other, strict=False))
    assert matched_bytes(common) <= 10_000 < BOUNDS_BYTES[common]
    assert one[:common] == other[:common]


def test_a_prompt_below_the_first_bound_has_no_key() -> None:
    assert prefix_keys(text(STEP_BYTES - 1), SALT) == ()
    assert len(prefix_keys(text(STEP_BYTES), SALT)) == 1


def test_tenants_and_models_share_no_key() -> None:
    body = text(8192)
    salts = [salt_of("acme", "m"), salt_of("acme", "n"), salt_of("other", "m"), salt_of("acm", "em")]
    assert len({key for salt in salts for key in prefix_keys(body, salt)}) == 4 * len(prefix_keys(body, SALT))


def test_what_comes_before_the_prompt_does_not_matter() -> None:
    first = chat("x" * 4000)
    second = first.replace(b'{"model"', b'{"seed": 7, "temperature": 0.3, "model"')
    keys = [prefix_keys(body, SALT, prompt_start(body)) for body in (first, second)]
    assert keys[0] == keys[1] != ()


def test_the_next_turn_of_a_conversation_begins_with_the_one_before() -> None:
    before, after = chat("a" * 4000), chat("a" * 4000, "b" * 900, "and then?")
    keys = [prefix_keys(body, SALT, prompt_start(body)) for body in (before, after)]
    assert keys[1][: len(keys[0]) - 1] == keys[0][:-1]


@pytest.mark.parametrize("field", ["messages", "prompt", "input"])
def test_the_prompts_field_is_found_by_its_name(field: str) -> None:
    body = json.dumps({"model": "m", field: "x"}).encode()
    assert body[prompt_start(body) :].startswith(f'"{field}"'.encode())


def test_a_field_far_from_the_front_is_not_looked_for() -> None:
    body = json.dumps({"tools": "t" * FIELD_WITHIN_BYTES, "messages": []}).encode()
    assert prompt_start(body) == 0


def test_every_process_computes_the_same_keys() -> None:
    program = (
        "from roadworthy.route.prefix import prefix_keys, salt_of;"
        "print(prefix_keys(b'abc' * 1000, salt_of('acme', 'm')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"}
    )
    assert done.stdout.strip() == str(prefix_keys(b"abc" * 1000, SALT))


class TestEngineIndex:
    def test_it_holds_what_was_added_and_matches_from_the_first_key_on(self) -> None:
        index = EngineIndex(entries=100)
        keys = prefix_keys(text(8192), SALT)
        index.add(keys)
        assert index.matched(keys) == len(keys) == len(index)
        assert index.matched((1, *keys)) == 0
        assert index.held_bytes == matched_bytes(len(keys)) == 8192

    def test_what_prompts_share_is_counted_once(self) -> None:
        index = EngineIndex(entries=100)
        index.add(prefix_keys(text(8192) + text(4096, 1), SALT))
        index.add(prefix_keys(text(8192) + text(4096, 2), SALT))
        assert index.held_bytes == 8192 + 2 * 4096

    def test_the_least_recently_used_prompt_goes_first_and_its_tail_before_its_beginning(self) -> None:
        index = EngineIndex(entries=10)
        old, new = prefix_keys(text(8192, 1), SALT), prefix_keys(text(8192, 2), SALT)
        index.add(old)
        index.add(new)
        assert index.matched(new) == 8
        assert index.matched(old) == 2

    def test_a_prompt_used_again_is_recent_again(self) -> None:
        index = EngineIndex(entries=16)
        old, new, third = (prefix_keys(text(8192, seed), SALT) for seed in (1, 2, 3))
        for keys in (old, new, old, third):
            index.add(keys)
        assert (index.matched(old), index.matched(new), index.matched(third)) == (8, 0, 8)

    def test_it_stands_for_no_more_bytes_than_the_pool_holds(self) -> None:
        index = EngineIndex(entries=1000, capacity_bytes=6000)
        keys = prefix_keys(text(8192), SALT)
        index.add(keys)
        assert index.held_bytes == 5120
        assert index.matched(keys) == 5

    def test_a_forgotten_key_ends_every_longer_match(self) -> None:
        index = EngineIndex(entries=100)
        keys = prefix_keys(text(8192), SALT)
        index.add(keys)
        index.forget(keys[3])
        index.forget(keys[3])
        assert index.matched(keys) == 3
        assert index.held_bytes == 8192 - 1024
        index.clear()
        assert (len(index), index.held_bytes) == (0, 0)
