"""What one measured run came to, and what a reader needs to read it right and to run it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.advise.breakdown import GroupReport, by_kind, by_prompt_length
from roadworthy.advise.objectives import DEFAULT_ACCEPTANCE
from roadworthy.advise.verdict import after_warmup
from roadworthy.bench.sections import RunSection
from roadworthy.bench.tenants_table import tenants_table
from roadworthy.core.units import format_duration

if TYPE_CHECKING:
    from roadworthy.adapters.load_request import BenchRequest
    from roadworthy.adapters.load_target import ServedModel
    from roadworthy.advise.arrivals import Schedule
    from roadworthy.advise.intervals import Interval
    from roadworthy.advise.steady import SteadyState
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.bench.driver import DriveResult
    from roadworthy.bench.prompts import Calibration
    from roadworthy.core.records import RequestRecord
    from roadworthy.spec.workload_values import ArrivalPattern, Quantiles

_SIZED_BY = {
    "tokenizer": "words, counted by the model's tokenizer",
    "server": "words, {per_word:.2f} tokens each by the target's own count",
    "bytes": "words, by bytes (4 a token): the target does not count, so lengths are a guess",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """What was measured.

    Args:
        intervals: 95 % intervals of each latency's mean and percentiles.
        to_its_end: answers were made to be as long as planned.
        client_cpu_ratio: the busiest stretch of the load generator, in cores.
        clock_jump_s: how far the wall clock was set meanwhile; no latency depends on it.
    """

    request: BenchRequest
    target: str
    model: ServedModel
    calibration: Calibration
    schedule: Schedule
    to_its_end: bool
    drive: DriveResult
    report: SlaReport
    intervals: Mapping[str, Mapping[str, Interval]]
    steady: SteadyState
    client_cpu_ratio: float
    clock_jump_s: float = 0.0

    @property
    def simulated(self) -> bool:
        return self.drive.simulated or self.model.simulated

    def facts(self) -> tuple[tuple[str, str], ...]:
        """What a reader needs to run it again."""
        asked = self.request
        model = self.model.id + (" (simulated engine)" if self.simulated else "")
        return (
            ("target", self.target),
            ("model", model),
            ("load", f"{self._load()}, {self._length()}"),
            ("seed, salt", f"{asked.seed}, {asked.salt}"),
            *(self._shape() if asked.replay is None else ()),
            ("prompt sizing", _SIZED_BY[self.calibration.sized_by].format(per_word=self.calibration.tokens_per_word)),
            ("concurrency cap", "none" if asked.max_concurrency is None else f"{asked.max_concurrency}"),
            ("load generator", f"{self.client_cpu_ratio:.0%} of a core at its busiest"),
        )

    def notes(self) -> tuple[str, ...]:
        """What stands beside the numbers."""
        return tuple(self._notes())

    def section(self, title: str) -> RunSection:
        """This run as part of a report."""
        return RunSection(
            title=title,
            report=self.report,
            records=self.drive.records,
            facts=self.facts(),
            notes=self.notes(),
            simulated=self.simulated,
            groups=self.groups(),
            tables=tenants_table(
                self.counted, self.report.tenants, {tenant.id: tenant.weight for tenant in self.request.tenants}
            ),
        )

    def groups(self) -> tuple[tuple[str, tuple[GroupReport, ...]], ...]:
        """The counted requests by tenant, prompt length and kind, where there is more than one."""
        sla = DEFAULT_ACCEPTANCE if self.report.default_limits else self.request.sla
        found = (
            ("tenant", self.report.tenants),
            ("prompt length", by_prompt_length(self.counted, sla)),
            ("kind", by_kind(self.counted, sla)),
        )
        return tuple((name, groups) for name, groups in found if len(groups) > 1 or (groups and name == "tenant"))

    @property
    def counted(self) -> tuple[RequestRecord, ...]:
        """The requests that the numbers are about: all but the warm-up."""
        warmup_s = self.steady.from_s if self.request.warmup_s == "auto" else self.request.warmup_s
        return after_warmup(self.drive.records, warmup_s)

    def _load(self) -> str:
        replay = self.request.replay
        if replay is None:
            return arrivals_text(self.request.workload.arrivals, self.request.workload.rate_per_s)
        speed = "" if replay.speed == 1 else f", {replay.speed:g} times as fast"
        cut = "" if replay.max_gap_s is None else f", silences cut to {format_duration(replay.max_gap_s)}"
        timed = "" if replay.trace.timed else ", without times: "
        paced = (
            ""
            if replay.trace.timed
            else arrivals_text(self.request.workload.arrivals, self.request.workload.rate_per_s)
        )
        return f"replay of {replay.name} ({replay.trace.format}){timed}{paced}{speed}{cut}"

    def _length(self) -> str:
        asked = self.request
        parts = [f"{asked.requests:,} requests"] if asked.requests else []
        parts += [f"{asked.duration_s:g} s"] if asked.duration_s else []
        return ", ".join(parts) or f"{self.report.requests:,} requests"

    def _shape(self) -> Iterator[tuple[str, str]]:
        shape = self.request.workload
        if shape.mix:
            parts = (f"{part.name or part.kind} {part.share_ratio:.0%}" for part in shape.mix)
            yield "mix, by requests", ", ".join(parts)
            return
        yield "prompt tokens", _quantiles(shape.prompt_tokens)
        yield "output tokens", _quantiles(shape.output_tokens)
        if shape.sessions.turns > 1:
            think = format_duration(shape.sessions.think_time_s) if shape.sessions.think_time_s else "none"
            yield "sessions", f"{shape.sessions.turns:g} turns on average, think time {think}"

    def _notes(self) -> Iterator[str]:
        drive = self.drive
        if drive.abandoned:
            yield f"{drive.abandoned:,} requests were in flight when the run was ended; none is counted."
        if drive.cut_sessions:
            yield f"{drive.cut_sessions:,} conversations went on beyond the end; that part was not sent."
        if drive.uncounted:
            yield f"{drive.uncounted:,} answers came without usage: their tokens are counted as stream events."
        if not self.to_its_end:
            yield "The target does not take ignore_eos: answers end where the model ends them, at most as planned."
        if self.request.replay is not None:
            yield from self.request.replay.trace.notes()
            too_long = getattr(self.schedule, "too_long", 0)
            if too_long:
                yield f"{too_long:,} requests of the trace are longer than the model's context, and were not sent."
        for at_s, length_s in drive.stalls_s:
            yield f"The load generator stood still for {length_s:.1f} s, {at_s:.0f} s after the start."
        if self.clock_jump_s:
            yield (
                f"The wall clock was set by {self.clock_jump_s:+.1f} s during the run; latencies do not depend on it, "
                "but times in other hosts' logs do."
            )
        yield from self._steady_notes()

    def _steady_notes(self) -> Iterator[str]:
        steady = self.steady
        if self.request.warmup_s == "auto":
            yield (
                f"Warm-up: {steady.requests:,} requests of the first {steady.from_s:.1f} s are left out, by the run's "
                "own latencies."
            )
        elif steady.requests and not self.request.warmup_s:
            yield (
                f"The first {steady.from_s:.1f} s differ from the rest ({steady.requests:,} requests); --warmup auto "
                "leaves them out."
            )
        if steady.steady is False and steady.drift_ratio is not None:
            way = "rose" if steady.drift_ratio > 0 else "fell"
            drift = abs(steady.drift_ratio)
            yield f"The run was not steady: latencies {way} by {drift:.0%} from its first half to its second."


def arrivals_text(pattern: ArrivalPattern, rate_per_s: float) -> str:
    """When requests are sent, in words."""
    rate = f"{rate_per_s:g} requests a second"
    bursts = "" if pattern.burstiness == 1 else f", burstiness {pattern.burstiness:g}"
    match pattern.pattern:
        case "poisson":
            return f"open loop, Poisson, {rate}"
        case "gamma":
            return f"open loop, gamma{bursts}, {rate}"
        case "constant":
            return f"open loop, even gaps, {rate}"
        case "diurnal":
            period = format_duration(pattern.period_s)
            return f"open loop, waves of {period}, peak {pattern.peak_ratio:g} times the trough{bursts}, mean {rate}"
        case "ramp":
            return f"open loop, ramp from {rate_per_s:g} to {pattern.to_rate_per_s or rate_per_s:g} a second{bursts}"
        case "closed":
            return f"closed loop, {pattern.users:,} users"
        case _:
            raise AssertionError(pattern.pattern)


def _quantiles(tokens: Quantiles) -> str:
    return f"P50 {tokens.p50:,}, P90 {tokens.p90:,}, P99 {tokens.p99:,}"
