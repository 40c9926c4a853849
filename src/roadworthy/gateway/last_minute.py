"""What each tenant did in the last minute: tokens, and how long its first tokens took."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW_S = 60.0
_SLICE_S = 5.0
_PER_OCTAVE = 8
_SHORTEST_S = 1e-4


class LastMinute:
    """Sums by tenant, a slice of five seconds at a time; a percentile is read some 5 % exact."""

    def __init__(self) -> None:
        self._slices: deque[tuple[float, dict[str, _Sums]]] = deque()

    def turn(self, now_s: float) -> None:
        """What is added next happened about ``now_s``."""
        slices = self._slices
        if not slices or now_s - slices[-1][0] >= _SLICE_S:
            slices.append((now_s, {}))
            while now_s - slices[0][0] > WINDOW_S:
                slices.popleft()

    def add(self, tokens: Mapping[str, int]) -> None:
        """Tokens by tenant."""
        for tenant_id, count in tokens.items():
            self._sums(tenant_id).tokens += count

    def first_token(self, tenant_id: str, ttft_s: float) -> None:
        ttft = self._sums(tenant_id).ttft
        bucket = int(math.log2(max(ttft_s, _SHORTEST_S) / _SHORTEST_S) * _PER_OCTAVE)
        ttft[bucket] = ttft.get(bucket, 0) + 1

    def _sums(self, tenant_id: str) -> _Sums:
        latest = self._slices[-1][1]
        sums = latest.get(tenant_id)
        if sums is None:
            sums = latest[tenant_id] = _Sums()
        return sums

    def of(self, now_s: float) -> dict[str, tuple[int, dict[int, int]]]:
        """Tokens, and counts of first tokens by bucket (``quantile_s`` reads them), of each tenant that was there."""
        found: dict[str, tuple[int, dict[int, int]]] = {}
        for began_s, sums in self._slices:
            if now_s - began_s > WINDOW_S:
                continue
            for tenant_id, one in sums.items():
                tokens, ttft = found.get(tenant_id, (0, {}))
                found[tenant_id] = (tokens + one.tokens, added(ttft, one.ttft))
        return found


class _Sums:
    __slots__ = ("tokens", "ttft")

    def __init__(self) -> None:
        self.tokens = 0
        self.ttft: dict[int, int] = {}


def added(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    """Counts of two windows together."""
    return {bucket: one.get(bucket, 0) + other.get(bucket, 0) for bucket in one.keys() | other.keys()}


def quantile_s(counts: dict[int, int], quantile: float) -> float | None:
    """In seconds; None without any."""
    total = sum(counts.values())
    rank = math.ceil(quantile * total)
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return float(_SHORTEST_S * 2 ** ((bucket + 0.5) / _PER_OCTAVE))
    return None
