from __future__ import annotations

from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.blocks import BlockPool, Holding
from support.twin import FULL_16

WINDOWED = CacheLayout(
    groups=(
        CacheGroup(kind="full", block_tokens=64, layers=1),
        CacheGroup(kind="window", block_tokens=16, layers=1, window_tokens=31),
        CacheGroup(kind="state", block_tokens=64, layers=1, resident_blocks=2, admission_blocks=3),
    ),
    bytes_per_block=(1,),
)


def pool(blocks: int = 11, cache: CacheLayout = FULL_16, *, caching: bool = True) -> BlockPool:
    return BlockPool(cache, blocks, enable_prefix_caching=caching)


def admit(pool: BlockPool, keys: list[int], tokens: int) -> tuple[Holding, int] | None:
    """A whole prompt in one chunk; the holding and the cached tokens, or None when it does not fit."""
    holding = Holding(keys)
    units = pool.find(holding, tokens)
    hit = len(units) * pool.unit_tokens
    if not pool.admit(holding, units, new_tokens=tokens - hit, tokens=tokens, in_flight_tokens=1024):
        return None
    return holding, hit


def test_block_zero_is_never_handed_out() -> None:
    full = pool(11)
    assert full.free_blocks == 10
    assert admit(full, [], 160) is not None
    assert (full.free_blocks, full.usage_ratio) == (0, 1.0)
    assert admit(full, [], 1) is None


def test_a_refused_admission_changes_nothing() -> None:
    tight = pool(4)
    assert admit(tight, [], 64) is None
    assert tight.free_blocks == 3


def test_a_second_request_of_the_same_prefix_takes_only_new_blocks() -> None:
    shared = pool()
    first = admit(shared, [1, 2], 40)
    assert first is not None
    assert (first[1], shared.free_blocks) == (0, 7)
    second = admit(shared, [1, 2], 40)
    assert second is not None
    assert (second[1], shared.free_blocks, shared.shared_blocks) == (32, 6, 2)


def test_at_least_one_token_is_left_to_compute() -> None:
    """A prompt that ends on a cached block boundary hits one block less: its last token gives the first output."""
    shared = pool()
    admit(shared, [1, 2], 32)
    again = admit(shared, [1, 2], 32)
    assert again is not None
    assert again[1] == 16


def test_a_freed_prefix_stays_findable_until_its_blocks_are_needed() -> None:
    small = pool(6)
    first = admit(small, [1, 2], 40)
    assert first is not None
    small.release(first[0], computed_tokens=40)
    assert small.free_blocks == 5
    assert len(small.find(Holding([1, 2]), 40)) == 2
    assert admit(small, [7, 8, 9], 64) is not None  # takes the 3 unused blocks and one cached
    assert len(small.find(Holding([1, 2]), 40)) == 1, "a sequence's tail is evicted before its beginning"


def test_the_least_recently_freed_prefix_is_evicted_first() -> None:
    small = pool(5)
    old, young = admit(small, [1], 17), admit(small, [2], 17)
    assert old is not None
    assert young is not None
    small.release(old[0], computed_tokens=17)
    small.release(young[0], computed_tokens=17)
    assert admit(small, [3], 48) is not None
    assert (len(small.find(Holding([1]), 17)), len(small.find(Holding([2]), 17))) == (0, 1)


def test_a_prefix_in_use_is_never_evicted() -> None:
    small = pool(5)
    assert admit(small, [1], 17) is not None
    assert admit(small, [], 48) is None
    assert len(small.find(Holding([1]), 17)) == 1


def test_an_idle_hit_counts_as_a_block_taken() -> None:
    """Cached blocks that nobody uses are free until they are adopted, so a hit does not make room by itself."""
    small = pool(4)
    first = admit(small, [1, 2, 3], 48)
    assert first is not None
    small.release(first[0], computed_tokens=48)
    assert small.free_blocks == 3
    assert admit(small, [1, 2, 3], 64) is None
    assert admit(small, [1, 2, 3], 48) is not None
    assert small.free_blocks == 0


def test_without_caching_nothing_is_found() -> None:
    plain = pool(caching=False)
    assert plain.keys_of(("a", "b")) == []
    first = admit(plain, [], 32)
    assert first is not None
    assert plain.shared_blocks == 0


def test_two_requests_that_compute_the_same_prefix_at_once_keep_their_own_copies() -> None:
    double = pool(11)
    one, two = Holding([5]), Holding([5])
    for holding in (one, two):
        assert double.admit(holding, [], new_tokens=16, tokens=16, in_flight_tokens=16)
    assert (double.shared_blocks, double.free_blocks) == (1, 8)
    assert (one.private_blocks, two.private_blocks) == (0, 1)


def test_decoding_takes_a_block_only_at_a_boundary() -> None:
    one = pool()
    holding = Holding([])
    assert one.admit(holding, [], new_tokens=20, tokens=20, in_flight_tokens=256)
    for computed in range(20, 40):
        if computed >= holding.covered_tokens:
            assert one.grow(holding, computed_tokens=computed, new_tokens=1, decoding=True)
        assert one.free_blocks == 10 - FULL_16.held_blocks(computed + 1)


def test_a_window_holds_its_whole_chunk_and_gives_the_rest_back_when_decoding() -> None:
    hybrid = pool(101, WINDOWED)
    holding = Holding([])
    assert hybrid.admit(holding, [], new_tokens=128, tokens=128, in_flight_tokens=256)
    assert 100 - hybrid.free_blocks == 2 + 8 + 2
    assert hybrid.grow(holding, computed_tokens=128, new_tokens=1, decoding=True)
    assert 100 - hybrid.free_blocks == WINDOWED.held_blocks(129) == 3 + 3 + 2


def test_a_later_chunk_keeps_only_the_window_below_it() -> None:
    hybrid = pool(101, WINDOWED)
    # 128 computed, 64 more: blocks of tokens 97..191 for the window of 31, that is block 6 to 11
    assert hybrid.prefill_blocks(128, 64) == 3 + 6 + 2


def test_admission_charges_state_what_it_may_need() -> None:
    """The state group holds 2 blocks and is charged 3, so a pool with one block too few does not admit."""
    needs = 1 + 1 + 3
    assert admit(pool(needs, WINDOWED), [], 16) is None
    assert admit(pool(needs + 1, WINDOWED), [], 16) is not None


def test_a_unit_is_a_boundary_of_every_full_group() -> None:
    two = CacheLayout(
        groups=(
            CacheGroup(kind="full", block_tokens=64, layers=1),
            CacheGroup(kind="full", block_tokens=96, layers=1),
        ),
        bytes_per_block=(1,),
    )
    both = pool(50, two)
    assert (both.unit_tokens, both.unit_blocks) == (192, 3 + 2)
