"""Options that the commands under `bench` share, and the kinds of value they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from roadworthy.core import units

_F = TypeVar("_F", bound=Callable[..., object])


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks than the oldest we take
    """A value with a unit, such as ``16/s``; the parser's own words say what is wanted."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            number = self._parse(str(value))
        except ValueError as error:
            self.fail(f"{value!r}, wanted {error}", param, ctx)
        if number <= 0:
            self.fail(f"{value!r}, wanted more than zero", param, ctx)
        return number


class DurationOrAuto(Quantity):
    """A duration, or the word ``auto``."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:  # type: ignore[override]
        return "auto" if value == "auto" else super().convert(value, param, ctx)


def _rate(text: str) -> float:
    """A rate; a bare number is a second's, as in the document."""
    try:
        return float(text)
    except ValueError:
        return units.parse_rate(text)


RATE = Quantity("rate", _rate)
DURATION = Quantity("duration", units.parse_duration)
WARMUP = DurationOrAuto("duration", units.parse_duration)
SHARE = Quantity("share", units.parse_ratio)
FILE = click.Path(path_type=Path)

PATTERNS = ("poisson", "gamma", "constant", "diurnal", "ramp", "closed")


def options(*decorators: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Several options as one decorator, in the order they are given."""

    def apply(function: _F) -> _F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


target_options = options(
    click.argument("target", metavar="URL|SPEC", required=False),
    click.option("--spec", metavar="FILE", help="Document with workload, SLA and tenants, when TARGET is a URL."),
    click.option("--ready-file", type=FILE, help="Take URL and tenants' keys from what `up` or `gateway` wrote."),
    click.option("--key", envvar="ROADWORTHY_KEY", show_envvar=True, help="API key, for every tenant."),
    click.option("--model", help="Model to ask for; the first that the target lists otherwise."),
    click.option("--timeout", type=DURATION, default="600s", show_default=True, help="Of one request."),
)

load_options = options(
    click.option("--rate", type=RATE, help="Requests a second, such as 16/s; else the document's workload.rate."),
    click.option(
        "--arrivals",
        type=click.Choice(PATTERNS),
        help="When requests start: at random, in bursts, evenly, in waves, on a ramp, or by users who wait.",
    ),
    click.option("--burstiness", type=click.FloatRange(min=0, min_open=True),
                 help="Gamma shape of the gaps: 1 is Poisson, less is burstier."),
    click.option("--ramp-to", type=RATE, help="Rate at the end of a ramp."),
    click.option("--users", type=click.IntRange(min=1), help="Users of a closed loop, who ask again when answered."),
    click.option("--trace", type=FILE, help="Replay a trace (Mooncake, Azure, ShareGPT, an access log, ...)."),
    click.option("--speed", type=click.FloatRange(min=0, min_open=True), default=1.0,
                 help="Of the replay: 2 is twice as fast."),
    click.option("--max-gap", type=DURATION, help="Cut silences of the trace to this."),
    click.option("--prompt-tokens", metavar="N[,N,N]", help="P50, P90, P99 of prompts, or one length for all."),
    click.option("--output-tokens", metavar="N[,N,N]", help="P50, P90, P99 of answers, or one length for all."),
    click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same arrivals and lengths."),
    click.option("--salt", help="Text of the prompts; else a new one for each run, so that no cache knows it."),
    click.option("--tokenizer", type=FILE, help="tokenizer.json or its folder, to size prompts exactly."),
    click.option("--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True,
                 help="Of sampling; 0 takes the likeliest token every time."),
    click.option("--priorities", is_flag=True, help="Send each tenant's priority, for engines that schedule by it."),
)  # fmt: skip

sla_options = options(
    click.option("--ttft-p99", type=DURATION, help="Objective, such as 250ms; instead of the document's."),
    click.option("--tpot-p99", type=DURATION, help="Objective, such as 40ms; instead of the document's."),
    click.option("--success", type=SHARE, help="Objective, such as 99.9%; instead of the document's."),
)

report_options = options(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    click.option("--out", type=FILE, help="Also write the JSON document, with every request, to a file."),
    click.option("--html", type=FILE, help="Also write a report with plots, one file that opens offline."),
    click.option("--junit", type=FILE, help="Also write JUnit XML: a test for each objective, for pipelines."),
)
