"""Two runs set side by side: what differs, and whether chance explains it.

A difference is judged by resampling stretches of both runs (:mod:`roadworthy.advise.intervals`): the logarithm of the
ratio of a statistic over its bootstrap standard error is taken as normal. Several statistics are asked at once, so the
probabilities are held to Holm's step-down rule: in 95 of 100 comparisons of two equal services nothing is called
different at all. Success is compared by Fisher's exact test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roadworthy.advise.intervals import MIN_BLOCKS, Blocks, Interval, Resampled, resample_count
from roadworthy.core.latency import MIN_SAMPLES, LatencySummary, tpot_s

SIGNIFICANCE = 0.05
DEFAULT_TOLERANCE_RATIO = 0.02
"""A difference below this is nobody's concern, however sure it is: on a calm target a microsecond is significant."""

Outcome = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run as comparisons see it: columns of the same length, one entry a request, by time sent.

    Args:
        ttft_s, tpot_s, e2e_s: None for a request that failed or has none.
    """

    name: str
    model: str
    start_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    ttft_s: tuple[float | None, ...]
    tpot_s: tuple[float | None, ...]
    e2e_s: tuple[float | None, ...]
    ok: tuple[bool, ...]
    asked_rate_per_s: float | None = None
    salt: str = ""

    @property
    def completed(self) -> int:
        return sum(self.ok)

    @classmethod
    def of_columns(
        cls, name: str, *, model: str, start_s: Sequence[float], input_tokens: Sequence[int],
        output_tokens: Sequence[int], ttft_s: Sequence[float], e2e_s: Sequence[float], errors: Sequence[str],
        asked_rate_per_s: float | None = None, salt: str = "",
    ) -> Measured:  # fmt: skip
        """From columns in any order, as ``vllm bench serve --save-detailed`` and ``bench --out`` write them."""
        order = sorted(range(len(start_s)), key=start_s.__getitem__)
        ok = tuple(not errors[at] for at in order)
        return cls(
            name=name,
            model=model,
            start_s=tuple(start_s[at] for at in order),
            input_tokens=tuple(input_tokens[at] for at in order),
            output_tokens=tuple(output_tokens[at] for at in order),
            ttft_s=tuple(ttft_s[at] if good else None for at, good in zip(order, ok, strict=True)),
            tpot_s=tuple(
                tpot_s(e2e_s=e2e_s[at], ttft_s=ttft_s[at], output_tokens=output_tokens[at]) if good else None
                for at, good in zip(order, ok, strict=True)
            ),
            e2e_s=tuple(e2e_s[at] if good else None for at, good in zip(order, ok, strict=True)),
            ok=ok,
            asked_rate_per_s=asked_rate_per_s,
            salt=salt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One statistic of both runs. ``ratio`` is B over A with its 95 % interval; ``probability`` that two equal services
    differ so much by chance, corrected for the number of questions; None where there are too few samples."""

    name: str
    unit: Literal["s", "ratio"]
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    probability: float | None
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What B is against A. ``cautions`` say why the two may not be comparable at all."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    cautions: tuple[str, ...]
    tolerance_ratio: float

    @property
    def outcome(self) -> Outcome:
        """``worse`` when anything is; else ``better`` when anything is; ``unknown`` when nothing could be told."""
        found = {one.outcome for one in self.differences}
        for word in ("worse", "better", "same"):
            if word in found:
                return word
        return "unknown"


def compare(a: Measured, b: Measured, *, tolerance_ratio: float = DEFAULT_TOLERANCE_RATIO, seed: int = 0) -> Comparison:
    """B against A, latency by latency and in success."""
    found = [*_latencies(a, b, seed), _success(a, b)]
    return Comparison(
        a=a.name,
        b=b.name,
        differences=tuple(_judged(one, tolerance_ratio) for one in _corrected(found)),
        cautions=tuple(_cautions(a, b)),
        tolerance_ratio=tolerance_ratio,
    )


def _latencies(a: Measured, b: Measured, seed: int) -> Iterator[Difference]:
    weights = {}
    for run in (a, b):
        blocks = _blocks(run)
        weights[run is b] = (blocks, blocks.resamples(seed + (run is b), resample_count(len(run.ok))))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        pair = []
        for run in (a, b):
            blocks, drawn = weights[run is b]
            present = [(value, block) for value, block in zip(getattr(run, name), blocks.of, strict=True)
                       if value is not None]  # fmt: skip
            summary = LatencySummary.of(value for value, _ in present)
            enough = len(present) >= MIN_BLOCKS
            values, places = [value for value, _ in present], [block for _, block in present]
            sample = Resampled(values, places, drawn) if enough else None
            pair.append((summary, sample))
        for stat in ("p50", "p99"):
            yield _latency(f"{name.removesuffix('_s')}_{stat}", stat, pair[0], pair[1])


def _blocks(run: Measured) -> Blocks:
    lengths_s, waits_s = ([value or 0.0 for value in column] for column in (run.e2e_s, run.ttft_s))
    return Blocks.of_times(run.start_s, lengths_s, waits_s)


def _latency(
    name: str, stat: str, a: tuple[LatencySummary, Resampled | None], b: tuple[LatencySummary, Resampled | None]
) -> Difference:
    values = [getattr(summary, stat) for summary, _ in (a, b)]
    shown = [None if math.isnan(value) else value for value in values]
    needed = max(MIN_BLOCKS, MIN_SAMPLES[int(stat[1:])])
    unknown = Difference(
        name=name, unit="s", a=shown[0], b=shown[1], ratio=None, low=None, high=None, probability=None,
        outcome="unknown", why=f"wants {needed:,} requests in both runs",
    )  # fmt: skip
    if a[1] is None or b[1] is None or min(a[0].count, b[0].count) < needed:
        return unknown
    logs = [
        math.log(second / first)
        for first, second in zip(a[1].stats[stat], b[1].stats[stat], strict=False)
        if first > 0 and second > 0
    ]
    if len(logs) < MIN_BLOCKS or min(values) <= 0:
        return replace(unknown, why="some latency is zero")
    ratio = values[1] / values[0]
    mean = math.fsum(logs) / len(logs)
    error = math.sqrt(math.fsum((one - mean) ** 2 for one in logs) / (len(logs) - 1))
    distance = math.log(ratio) / error if error > 0 else math.copysign(math.inf, math.log(ratio)) if ratio != 1 else 0.0
    spread = math.exp(1.959964 * error)
    return Difference(
        name=name, unit="s", a=values[0], b=values[1], ratio=ratio, low=ratio / spread, high=ratio * spread,
        probability=math.erfc(abs(distance) / math.sqrt(2)), outcome="same",
    )  # fmt: skip


def _success(a: Measured, b: Measured) -> Difference:
    shares = [run.completed / len(run.ok) if run.ok else None for run in (a, b)]
    if shares[0] is None or shares[1] is None:
        return Difference(name="success", unit="ratio", a=shares[0], b=shares[1], ratio=None, low=None, high=None,
                          probability=None, outcome="unknown", why="a run without requests")  # fmt: skip
    probability = fisher(a.completed, len(a.ok), b.completed, len(b.ok))
    interval = _ratio_interval(a, b)
    return Difference(
        name="success", unit="ratio", a=shares[0], b=shares[1], ratio=shares[1] / shares[0] if shares[0] else None,
        low=interval.low if interval else None, high=interval.high if interval else None, probability=probability,
        outcome="same",
    )  # fmt: skip


def _ratio_interval(a: Measured, b: Measured) -> Interval | None:
    """Of a ratio of shares (Katz), with half a success and half a failure added so that none is zero."""
    if not a.completed:
        return None
    p, q = (a.completed + 0.5) / (len(a.ok) + 0.5), (b.completed + 0.5) / (len(b.ok) + 0.5)
    error = math.sqrt(max(0.0, 1 / (a.completed + 0.5) - 1 / (len(a.ok) + 0.5) + 1 / (b.completed + 0.5)
                          - 1 / (len(b.ok) + 0.5)))  # fmt: skip
    return Interval(q / p * math.exp(-1.959964 * error), q / p * math.exp(1.959964 * error))


def fisher(good_a: int, all_a: int, good_b: int, all_b: int) -> float:
    """Probability, both sides, of shares at least as unequal as these when both runs fail alike (Fisher's exact)."""
    good, total = good_a + good_b, all_a + all_b
    whole = _log_choose(total, all_a)

    def log_chance(x: int) -> float:
        return _log_choose(good, x) + _log_choose(total - good, all_a - x) - whole

    seen = log_chance(good_a) + 1e-9
    chances = (log_chance(x) for x in range(max(0, all_a - (total - good)), min(good, all_a) + 1))
    return min(1.0, math.fsum(math.exp(one) for one in chances if one <= seen))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _corrected(found: Sequence[Difference]) -> list[Difference]:
    """Holm: the smallest probability times the number of questions, the next times one less, and none below the one
    before it."""
    asked = sorted(
        (at for at, one in enumerate(found) if one.probability is not None), key=lambda at: found[at].probability or 0.0
    )
    corrected, floor = list(found), 0.0
    for place, at in enumerate(asked):
        floor = max(floor, min(1.0, (found[at].probability or 0.0) * (len(asked) - place)))
        corrected[at] = replace(found[at], probability=floor)
    return corrected


def _judged(one: Difference, tolerance_ratio: float) -> Difference:
    if one.probability is None or one.outcome == "unknown":
        return one
    ratio = one.ratio if one.ratio is not None else math.inf
    if one.probability >= SIGNIFICANCE:
        return replace(one, outcome="same", why="chance explains it")
    worse = ratio > 1 if one.unit == "s" else ratio < 1
    # a success of 99.9 % against 100 % is a thousand failures in a million requests, so no share of it is tolerated
    if one.unit == "s" and abs(ratio - 1) <= tolerance_ratio:
        return replace(one, outcome="same", why=f"sure, but within {tolerance_ratio:.0%}")
    return replace(
        one, outcome="worse" if worse else "better", why=f"chance explains it in {one.probability:.1%} of cases"
    )


def _cautions(a: Measured, b: Measured) -> Iterator[str]:
    if a.model != b.model:
        yield f"Different models: {a.model} and {b.model}."
    if a.asked_rate_per_s != b.asked_rate_per_s:
        rates = ["none" if rate is None else f"{rate:g}/s" for rate in (a.asked_rate_per_s, b.asked_rate_per_s)]
        yield f"Different rates were asked for: {rates[0]} and {rates[1]}."
    for word, name in (("Prompts", "input_tokens"), ("Answers", "output_tokens")):
        means = [
            math.fsum(value for value, good in zip(getattr(run, name), run.ok, strict=True) if good)
            / max(1, run.completed)
            for run in (a, b)
        ]
        if min(means) > 0 and max(means) / min(means) > 1.05:
            yield f"{word} differ in length: {means[0]:,.0f} and {means[1]:,.0f} tokens on average."
    if a.salt and a.salt == b.salt:
        yield "Both runs sent the same texts: the second may have found its prompts in the prefix cache."
    short = [run.name for run in (a, b) if run.completed < 1000]
    if short:
        yield f"Fewer than 1,000 requests completed in {' and '.join(short)}: a P99 of so few is uncertain."
