"""From options and a document to what one run is asked to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from roadworthy.cli.trace_file import read_replay
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.core.units import parse_count
from roadworthy.spec.values import Quantiles, RequestProfile, Sla

if TYPE_CHECKING:
    from roadworthy.adapters.load_request import BenchRequest
    from roadworthy.cli.bench_aim import Aim
    from roadworthy.spec.values import Deployment
    from roadworthy.spec.workload_values import Pattern

_T = TypeVar("_T")

DEFAULT_DURATION_S = 60.0


def bench_request(
    aim: Aim, *, model: str | None, timeout: float, rate: float | None, arrivals: Pattern | None,
    burstiness: float | None, ramp_to: float | None, users: int | None, trace: Path | None, speed: float,
    max_gap: float | None, prompt_tokens: str | None, output_tokens: str | None, seed: int, salt: str | None,
    tokenizer: Path | None, temperature: float, priorities: bool, ttft_p99: float | None, tpot_p99: float | None,
    success: float | None,
    duration: float | None = None, requests: int | None = None, max_concurrency: int | None = None,
    warmup: float | Literal["auto"] | None = None,
) -> BenchRequest:  # fmt: skip
    """What the options ask for, on top of the document.

    Raises:
        SpecError: options that contradict each other, or a trace that cannot be read.
        Unsupported: the extra that the client needs is not installed.
    """
    from roadworthy.advise.traces import Replay

    try:
        from roadworthy.adapters.load_run import BenchRequest
    except ModuleNotFoundError as error:
        raise Unsupported(f"bench needs {error.name}", hint="pip install 'roadworthy[gateway]'") from error
    if isinstance(warmup, float) and duration is not None and warmup >= duration:
        raise SpecError(f"--warmup {warmup:g}s leaves nothing of --duration {duration:g}s", hint="measure for longer")
    replay = read_replay(Replay, trace, speed=speed, max_gap_s=max_gap, instead="--rate")
    endless = duration is None and requests is None and replay is None
    request = BenchRequest(
        url=aim.url,
        workload=_workload(
            aim.deployment, rate=rate, arrivals=arrivals, burstiness=burstiness, ramp_to=ramp_to, users=users,
            prompt_tokens=prompt_tokens, output_tokens=output_tokens,
        ),
        sla=_sla(aim.deployment, ttft_p99, tpot_p99, success),
        tenants=aim.tenants,
        keys=aim.keys,
        seed=seed,
        requests=requests,
        duration_s=DEFAULT_DURATION_S if endless else duration,
        replay=replay,
        model=model,
        tokenizer=tokenizer,
        send_priorities=priorities,
        temperature=temperature,
        max_concurrency=max_concurrency,
        warmup_s=warmup or 0.0,
        timeout_s=timeout,
    )  # fmt: skip
    return request if salt is None else replace(request, salt=salt)


def _workload(
    deployment: Deployment | None, *, rate: float | None, arrivals: Pattern | None, burstiness: float | None,
    ramp_to: float | None, users: int | None, prompt_tokens: str | None, output_tokens: str | None,
) -> RequestProfile:  # fmt: skip
    workload = deployment.workload if deployment is not None else RequestProfile()
    pattern = workload.arrivals
    implied: Pattern | None = (
        "closed"
        if users is not None
        else "ramp"
        if ramp_to is not None
        else "gamma"
        if burstiness is not None
        else None
    )
    if arrivals is None and implied is not None and not (implied == "gamma" and pattern.pattern in ("diurnal", "ramp")):
        arrivals = implied
    pattern = replace(
        pattern,
        pattern=_given(arrivals, pattern.pattern),
        burstiness=_given(burstiness, pattern.burstiness),
        to_rate_per_s=_given(ramp_to, pattern.to_rate_per_s),
        users=_given(users, pattern.users),
    )
    for name, value, wanted in (("--users", users, "closed"), ("--ramp-to", ramp_to, "ramp")):
        if value is not None and pattern.pattern != wanted:
            raise SpecError(f"{name} goes with --arrivals {wanted}, not {pattern.pattern}", hint=f"leave out {name}")
    if pattern.pattern == "closed" and rate is not None:
        raise SpecError("--rate and a closed loop: the users set the pace", hint="leave out --rate, or --users")
    if pattern.pattern == "ramp" and pattern.to_rate_per_s is None:
        raise SpecError("a ramp without an end", hint="add --ramp-to RATE")
    return replace(
        workload,
        arrivals=pattern,
        rate_per_s=_given(rate, workload.rate_per_s),
        prompt_tokens=_quantiles("--prompt-tokens", prompt_tokens, workload.prompt_tokens),
        output_tokens=_quantiles("--output-tokens", output_tokens, workload.output_tokens),
    )


def _quantiles(option: str, text: str | None, otherwise: Quantiles) -> Quantiles:
    if text is None:
        return otherwise
    try:
        counts = [parse_count(part) for part in text.split(",")]
        if len(counts) == 1:
            counts *= 3
        p50, p90, p99 = counts
        return Quantiles(p50=p50, p90=p90, p99=p99)
    except ValueError as error:
        raise SpecError(
            f"{option} {text}: {error}", hint="write one length, such as 512, or three that rise, such as 512,1024,2K"
        ) from error


def _sla(deployment: Deployment | None, ttft_s: float | None, tpot_s: float | None, success: float | None) -> Sla:
    sla = deployment.sla if deployment is not None else Sla()
    return replace(
        sla,
        ttft_p99_s=_given(ttft_s, sla.ttft_p99_s),
        tpot_p99_s=_given(tpot_s, sla.tpot_p99_s),
        success_ratio=_given(success, sla.success_ratio),
    )


def _given(value: _T | None, otherwise: _T) -> _T:
    return otherwise if value is None else value
