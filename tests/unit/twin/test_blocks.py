"""What requests hold of the pool, what they find in it, and what makes room."""

from __future__ import annotations

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.blocks import NOTHING, BlockPool, Holding
from support.twin import FULL_16

WINDOWED = CacheLayout(
    groups=(
        CacheGroup(kind="full", block_tokens=64, layers=1),
        CacheGroup(kind="window", block_tokens=16, layers=1, window_tokens=31),
        CacheGroup(kind="state", block_tokens=64, layers=1, resident_blocks=2, admission_blocks=3),
    ),
    bytes_per_block=(1,),
)
Text = tuple[str, int]


def pool(blocks: int = 11, cache: CacheLayout = FULL_16, *, caching: bool = True) -> BlockPool:
    return BlockPool(cache, blocks, enable_prefix_caching=caching, in_flight_tokens=1024, longest=4096)


def admit(pool: BlockPool, *text: Text) -> tuple[Holding, int] | None:
    """A whole prompt in one step; what it holds and its cached tokens, or None when it does not fit."""
    tokens = sum(length for _, length in text)
    holding = pool.holding(text, tokens)
    pool.new_step(pool.groups[0].step + 1)
    hit = pool.find(holding, tokens)
    if not pool.admit(holding, hit, new_tokens=tokens - hit.tokens, tokens=tokens):
        if holding.path is not None:
            holding.path.leave()
        return None
    return holding, hit.tokens


def hit(pool: BlockPool, *text: Text) -> int:
    """Tokens that a prompt would find, without taking anything."""
    tokens = sum(length for _, length in text)
    holding = pool.holding(text, tokens)
    found = pool.find(holding, tokens).tokens
    assert holding.path is not None
    holding.path.leave()
    return found


def release(pool: BlockPool, admitted: tuple[Holding, int] | None) -> None:
    assert admitted is not None
    pool.release(admitted[0])
    if admitted[0].path is not None:
        admitted[0].path.leave()


def test_block_zero_is_never_handed_out() -> None:
    full = pool(11)
    assert full.free_blocks == 10
    assert admit(full, ("a", 160)) is not None
    assert (full.free_blocks, full.usage_ratio) == (0, 1.0)
    assert admit(full, ("b", 1)) is None


def test_a_refused_admission_changes_nothing() -> None:
    tight = pool(4)
    assert admit(tight, ("a", 64)) is None
    assert tight.free_blocks == 3


def test_a_second_request_of_the_same_prefix_takes_only_new_blocks() -> None:
    shared = pool()
    first = admit(shared, ("system", 32), ("one", 8))
    assert first is not None
    assert (first[1], shared.free_blocks) == (0, 7)
    second = admit(shared, ("system", 32), ("two", 8))
    assert second is not None
    assert (second[1], shared.free_blocks) == (32, 6)


def test_at_least_one_token_is_left_to_compute() -> None:
    """A prompt that ends on a cached block boundary hits one block less: its last token gives the first output."""
    shared = pool()
    admit(shared, ("a", 32))
    again = admit(shared, ("a", 32))
    assert again is not None
    assert again[1] == 16


def test_texts_that_part_in_mid_block_share_the_blocks_before_it() -> None:
    """A system prompt of 70 tokens is the beginning of the same one of 100, which goes on differently."""
    shared = pool(101)
    admit(shared, ("system", 70), ("one", 30))
    assert hit(shared, ("system", 100)) == 64
    admit(shared, ("system", 100), ("two", 30))
    assert hit(shared, ("system", 100), ("two", 30)) == 128
    assert hit(shared, ("system", 70), ("one", 30)) == 96
    assert hit(shared, ("system", 71), ("one", 30)) == 64


def test_equal_words_after_different_texts_are_different_blocks() -> None:
    shared = pool(101)
    admit(shared, ("left", 32), ("same", 64))
    assert hit(shared, ("right", 32), ("same", 64)) == 0
    assert hit(shared, ("left", 48), ("same", 64)) == 32


def test_a_freed_prefix_stays_findable_until_its_blocks_are_needed() -> None:
    small = pool(6)
    release(small, admit(small, ("a", 40)))
    assert small.free_blocks == 5
    assert hit(small, ("a", 40)) == 32
    assert admit(small, ("b", 64)) is not None  # takes the 3 unused blocks and one cached
    assert hit(small, ("a", 40)) == 16, "a sequence's tail is evicted before its beginning"


def test_the_least_recently_freed_prefix_is_evicted_first() -> None:
    small = pool(5)
    old, young = admit(small, ("old", 17)), admit(small, ("young", 17))
    release(small, old)
    release(small, young)
    assert admit(small, ("c", 48)) is not None
    assert (hit(small, ("old", 17)), hit(small, ("young", 17))) == (0, 16)


def test_use_makes_a_prefix_young_again() -> None:
    small = pool(5)
    old, young = admit(small, ("old", 17)), admit(small, ("young", 17))
    release(small, old)
    release(small, young)
    release(small, admit(small, ("old", 17)))
    assert admit(small, ("c", 48)) is not None
    assert (hit(small, ("old", 17)), hit(small, ("young", 17))) == (16, 0)


def test_a_prefix_in_use_is_never_evicted() -> None:
    small = pool(5)
    assert admit(small, ("a", 17)) is not None
    assert admit(small, ("b", 48)) is None
    assert hit(small, ("a", 17)) == 16


def test_part_of_a_prefix_in_use_keeps_only_that_part() -> None:
    """Another request took up the beginning; when the first is gone, the rest may be evicted and the beginning not."""
    small = pool(8)
    whole = admit(small, ("a", 64), ("x", 1))
    part = admit(small, ("a", 33), ("y", 1))
    assert part is not None
    assert part[1] == 32
    release(small, whole)
    assert small.free_blocks == 4
    assert admit(small, ("c", 64)) is not None
    assert hit(small, ("a", 64)) == 32


def test_an_idle_hit_counts_as_a_block_taken() -> None:
    """Cached blocks that nobody uses are free until they are adopted, so a hit does not make room by itself."""
    small = pool(4)
    release(small, admit(small, ("a", 48)))
    assert small.free_blocks == 3
    assert admit(small, ("a", 48), ("b", 16)) is None
    assert admit(small, ("a", 48)) is not None
    assert small.free_blocks == 0


def test_without_caching_nothing_is_found() -> None:
    plain = pool(caching=False)
    first = admit(plain, ("a", 32))
    assert first is not None
    assert first[0].path is None
    again = admit(plain, ("a", 32))
    assert again is not None
    assert again[1] == 0


def test_two_requests_that_compute_the_same_prefix_at_once_keep_their_own_copies() -> None:
    """Both are findable, as in vLLM: when the first copy is gone, the second still answers."""
    double = pool(5)
    holdings = [double.holding((("a", 17),), 17) for _ in range(2)]
    for holding in holdings:
        assert double.admit(holding, NOTHING, new_tokens=17, tokens=17)
    assert double.free_blocks == 0
    double.release(holdings[0])
    assert admit(double, ("b", 32)) is not None
    assert hit(double, ("a", 17)) == 16


def test_the_tree_of_texts_forgets_what_nobody_uses() -> None:
    small = pool(5)
    for name in "abcdefgh":
        release(small, admit(small, (name, 33), (f"after {name}", 15)))
    assert len(small._roots[""].children) == 2, "the two that the pool still holds"


def test_salts_keep_equal_texts_apart() -> None:
    shared = pool(101)
    one = shared.holding((("a", 32),), 33, salt="one")
    assert shared.admit(one, NOTHING, new_tokens=33, tokens=33)
    assert shared.find(shared.holding((("a", 32),), 33, salt="one"), 33).tokens == 32
    assert shared.find(shared.holding((("a", 32),), 33, salt="two"), 33).tokens == 0


def test_decoding_takes_a_block_only_at_a_boundary() -> None:
    one = pool()
    admitted = admit(one, ("a", 20))
    assert admitted is not None
    for computed in range(20, 40):
        assert one.grow(admitted[0], computed=computed, new_tokens=1, settled=computed, known=computed + 1, lookahead=0)
        assert one.free_blocks == 10 - FULL_16.held_blocks(computed + 1)


def test_a_window_holds_its_whole_chunk_and_gives_the_rest_back_when_decoding() -> None:
    hybrid = pool(101, WINDOWED, caching=False)
    admitted = admit(hybrid, ("a", 128))
    assert admitted is not None
    assert 100 - hybrid.free_blocks == 2 + 8 + 1
    assert hybrid.grow(admitted[0], computed=128, new_tokens=1, settled=128, known=129, lookahead=0)
    assert 100 - hybrid.free_blocks == 3 + 3 + 2, "full blocks, the window, and the state before and after"


def test_a_later_chunk_keeps_only_the_window_below_it() -> None:
    hybrid = pool(101, WINDOWED, caching=False)
    holding = hybrid.holding((), 192)
    assert hybrid.admit(holding, NOTHING, new_tokens=128, tokens=192)
    assert hybrid.grow(holding, computed=128, new_tokens=64, settled=128, known=192, lookahead=0)
    # the window of 31 before token 128 begins in block 6; the state of the first chunk is read by the second
    assert 100 - hybrid.free_blocks == 3 + 6 + 2


def test_a_window_is_cached_where_a_later_request_can_resume() -> None:
    """Of 150 tokens the last resumable position is 128: the window before it is kept, and the state there."""
    hybrid = pool(101, WINDOWED)
    release(hybrid, admit(hybrid, ("a", 128), ("b", 22)))
    assert hit(hybrid, ("a", 128), ("b", 22)) == 0, "the state at 128 was never written: the chunk ran past it"
    other = hybrid.holding((("c", 128), ("d", 22)), 150)
    assert hybrid.admit(other, NOTHING, new_tokens=128, tokens=150)
    assert hybrid.grow(other, computed=128, new_tokens=22, settled=128, known=150, lookahead=0)
    hybrid.new_step(99)
    assert hit(hybrid, ("c", 128), ("e", 22)) == 128


def test_a_junction_is_kept_once_it_has_been_seen() -> None:
    """Full blocks say that two prompts begin alike for 64 tokens; the second request keeps the window there."""
    layout = CacheLayout(groups=WINDOWED.groups[:2], bytes_per_block=(1,))
    hybrid = pool(101, layout)
    admit(hybrid, ("system", 64), ("one", 100))
    second = admit(hybrid, ("system", 64), ("two", 100))
    third = admit(hybrid, ("system", 64), ("three", 100))
    assert second is not None
    assert third is not None
    assert (second[1], third[1]) == (0, 64)


def test_a_unit_is_a_boundary_of_every_group() -> None:
    two = CacheLayout(
        groups=(
            CacheGroup(kind="full", block_tokens=64, layers=1),
            CacheGroup(kind="full", block_tokens=96, layers=1),
        ),
        bytes_per_block=(1,),
    )
    both = pool(50, two)
    assert both.unit_tokens == 192
    admit(both, ("a", 400))
    assert hit(both, ("a", 400)) == 384
