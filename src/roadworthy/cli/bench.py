"""`roadworthy bench`: open-loop load on a running service, and a verdict for each objective."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from roadworthy.core import units
from roadworthy.core.errors import SpecError, Unsupported

if TYPE_CHECKING:
    from roadworthy.adapters.load_run import BenchRequest, BenchRun
    from roadworthy.adapters.ready_file import Ready
    from roadworthy.advise.gates import Verdict
    from roadworthy.spec.values import Deployment, RequestProfile, Sla, Tenant

_T = TypeVar("_T")

DEFAULT_DURATION_S = 60.0
_COLOURS = {"met": "green", "missed": "red", "undecided": "yellow"}


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


RATE = Quantity("rate", units.parse_rate)
DURATION = Quantity("duration", units.parse_duration)
SHARE = Quantity("share", units.parse_ratio)
FILE = click.Path(path_type=Path)


@click.command()
@click.argument("target", metavar="URL|SPEC", required=False)
@click.option("--spec", metavar="FILE", help="Document with workload, SLA and tenants, when TARGET is a URL.")
@click.option("--ready-file", type=FILE, help="Take the URL and the tenants' keys from what `up` or `gateway` wrote.")
@click.option("--rate", type=RATE, help="Requests a second, such as 16/s; the document's workload.rate otherwise.")
@click.option("--duration", type=DURATION, help="How long requests are sent, such as 20s (60s without --requests).")
@click.option("--requests", type=click.IntRange(min=1), help="How many requests to send.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same arrivals and lengths.")
@click.option("--key", envvar="ROADWORTHY_KEY", show_envvar=True, help="API key, for every tenant.")
@click.option("--model", help="Model to ask for; the first that the target lists otherwise.")
@click.option("--ttft-p99", type=DURATION, help="Objective, such as 250ms; instead of the document's.")
@click.option("--tpot-p99", type=DURATION, help="Objective, such as 40ms; instead of the document's.")
@click.option("--success", type=SHARE, help="Objective, such as 99.9%; instead of the document's.")
@click.option("--max-concurrency", type=click.IntRange(min=1), help="Requests in flight at most; no cap otherwise.")
@click.option("--warmup", type=DURATION, help="Leave requests of this first stretch out of the numbers.")
@click.option("--timeout", type=DURATION, default="600s", show_default=True, help="Of one request.")
@click.option("--salt", help="Text of the prompts; a new one for each run otherwise, so that no cache knows it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--out", type=FILE, help="Also write the JSON document to a file.")
@click.option("--html", type=FILE, help="Also write a report with plots, one file that opens offline.")
def command(
    target: str | None, spec: str | None, ready_file: Path | None, key: str | None, as_json: bool, out: Path | None,
    html: Path | None, **options: object,
) -> int:  # fmt: skip
    """Drive open-loop load and give a verdict for each objective of the SLA.

    The target is the URL of an OpenAI-compatible service, or a document whose gateway or engine has a fixed address.
    Ctrl-C ends the load early and reports what there is. Exit code 0: every objective met; 1: one missed, or the run
    too small to tell; 2: wrong input; 3: the target could not be reached.
    """
    from roadworthy.adapters.report_files import require_writable
    from roadworthy.cli.output import print_json

    request = _request(_aim(target, spec=spec, ready_file=ready_file, key=key), **options)  # type: ignore[arg-type]
    if out is not None and html is not None and out.absolute() == html.absolute():
        raise SpecError(f"--out and --html: both {out}, wanted two files", hint="one holds JSON, the other the page")
    for path in (out, html):
        if path is not None:
            require_writable(path)
    run = _run(request)
    document = bench_document(run)
    if as_json:
        print_json(document)
    else:
        _print_report(run)
    _write_reports(run, document, out=out, html=html)
    return run.report.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where the load goes and as whom; ``deployment`` None when no document was named."""

    url: str
    deployment: Deployment | None
    tenants: tuple[Tenant, ...]
    keys: Mapping[str, str | None]


def _aim(target: str | None, *, spec: str | None, ready_file: Path | None, key: str | None) -> Aim:
    from roadworthy.adapters.ready_file import read_ready

    ready = read_ready(ready_file) if ready_file is not None else None
    if target is None and ready is None:
        raise SpecError("nothing to measure: no target", hint="name a URL, a document, or --ready-file FILE")
    is_url = target is not None and "://" in target
    if target is not None and not is_url and re.fullmatch(r"[\w.-]+:\d+", target):
        raise SpecError(f"{target}: neither a document nor a URL", hint=f"write http://{target}")
    if not is_url and target is not None and spec is not None:
        raise SpecError(f"two documents: {target} and --spec {spec}", hint="with --spec, the target is a URL")
    named = spec if is_url or target is None else target
    deployment = _load(named) if named is not None else None
    if is_url and target is not None:
        url = target
    else:
        url = ready.data_url if ready is not None else _address(deployment, named)
    tenants, keys = _tenants(deployment, ready, key)
    return Aim(url=url, deployment=deployment, tenants=tenants, keys=keys)


def _load(path: str) -> Deployment:
    from roadworthy.adapters.documents import load_document

    return load_document(path)


def _address(deployment: Deployment | None, name: str | None) -> str:
    """The fixed address that the document gives: its gateway's, or its only engine's."""
    if deployment is not None and deployment.gateway.port:
        host = deployment.gateway.host
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{host}:{deployment.gateway.port}"
    endpoints = deployment.engine.endpoints if deployment is not None else ()
    if len(endpoints) == 1:
        return endpoints[0].url
    problem = "several engines and no gateway port" if endpoints else "no gateway port and no engine endpoint"
    raise SpecError(
        f"{name}: the document gives {problem}, so there is no one address to measure",
        hint=f"start it with `roadworthy up {name} --ready-file ready.json`, then add --ready-file ready.json here",
    )


def _tenants(
    deployment: Deployment | None, ready: Ready | None, key: str | None
) -> tuple[tuple[Tenant, ...], Mapping[str, str | None]]:
    """Who sends, and each one's key: --key before the ready file before the document."""
    from roadworthy.cli.tenant_keys import with_keys
    from roadworthy.spec.values import Tenant

    tenants = deployment.tenants if deployment is not None else ()
    if ready is not None and not tenants:
        tenants = tuple(Tenant(id=tenant.id) for tenant in ready.tenants)
    if not tenants:
        return (), {"": key}
    if key is not None:
        return tenants, dict.fromkeys((tenant.id for tenant in tenants), key)
    handed_out = {tenant.id: tenant.key for tenant in ready.tenants} if ready is not None else {}
    missing = [tenant for tenant in tenants if tenant.id not in handed_out]
    keys = {tenant.id: tenant.key for tenant in with_keys(missing, os.environ)}
    return tenants, {tenant.id: handed_out.get(tenant.id) or keys.get(tenant.id) for tenant in tenants}


def _request(
    aim: Aim, *, rate: float | None, duration: float | None, requests: int | None, seed: int, model: str | None,
    ttft_p99: float | None, tpot_p99: float | None, success: float | None, max_concurrency: int | None,
    warmup: float | None, timeout: float, salt: str | None,
) -> BenchRequest:  # fmt: skip
    try:
        from roadworthy.adapters.load_run import BenchRequest
    except ModuleNotFoundError as error:
        raise Unsupported(f"bench needs {error.name}", hint="pip install 'roadworthy[gateway]'") from error
    if warmup is not None and duration is not None and warmup >= duration:
        raise SpecError(f"--warmup {warmup:g}s leaves nothing of --duration {duration:g}s", hint="measure for longer")
    request = BenchRequest(
        url=aim.url,
        workload=_workload(aim.deployment, rate),
        sla=_sla(aim.deployment, ttft_p99, tpot_p99, success),
        tenants=aim.tenants,
        keys=aim.keys,
        seed=seed,
        requests=requests,
        duration_s=DEFAULT_DURATION_S if duration is None and requests is None else duration,
        model=model,
        max_concurrency=max_concurrency,
        warmup_s=warmup or 0.0,
        timeout_s=timeout,
    )
    return request if salt is None else replace(request, salt=salt)


def _workload(deployment: Deployment | None, rate_per_s: float | None) -> RequestProfile:
    from roadworthy.spec.values import RequestProfile

    workload = deployment.workload if deployment is not None else RequestProfile()
    return workload if rate_per_s is None else replace(workload, rate_per_s=rate_per_s)


def _sla(deployment: Deployment | None, ttft_s: float | None, tpot_s: float | None, success: float | None) -> Sla:
    from roadworthy.spec.values import Sla

    sla = deployment.sla if deployment is not None else Sla()
    return replace(
        sla,
        ttft_p99_s=_given(ttft_s, sla.ttft_p99_s),
        tpot_p99_s=_given(tpot_s, sla.tpot_p99_s),
        success_ratio=_given(success, sla.success_ratio),
    )


def _given(value: _T | None, otherwise: _T | None) -> _T | None:
    return otherwise if value is None else value


def _run(request: BenchRequest) -> BenchRun:
    from roadworthy.adapters.load_run import run_bench
    from roadworthy.cli.bench_progress import watching

    with watching(request) as watch:
        return run_bench(request, watch=watch)


def bench_document(run: BenchRun) -> dict[str, object]:
    """What ``--json`` prints: the report's fields, and beside them what was run."""
    from roadworthy.cli.output import plain

    report = plain(run.report)
    assert isinstance(report, dict)  # a dataclass becomes an object
    verdict, reason = report.pop("verdict"), report.pop("reason")
    return {
        "verdict": verdict,
        "reason": reason,
        "target": run.target,
        "model": run.model.id,
        "simulated": run.simulated,
        "seed": run.request.seed,
        "salt": run.request.salt,
        **report,
        "client_cpu_ratio": run.client_cpu_ratio,
        "abandoned": run.drive.abandoned,
        "facts": dict(run.facts()),
        "notes": list(run.notes()),
    }


def _print_report(run: BenchRun) -> None:
    from roadworthy.bench.report_text import render_text

    def paint(verdict: Verdict, text: str) -> str:
        return text if os.environ.get("NO_COLOR") else click.style(text, fg=_COLOURS[verdict], bold=True)

    click.echo(render_text(run.section(_title(run)), paint=paint), nl=False)


def _title(run: BenchRun) -> str:
    return f"{run.model.id} at {run.target}"


def _write_reports(run: BenchRun, document: Mapping[str, object], *, out: Path | None, html: Path | None) -> None:
    import json

    from roadworthy import __version__
    from roadworthy.adapters.files import write_atomically

    if out is not None:
        write_atomically(out, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        click.echo(f"wrote {out}", err=True)
    if html is not None:
        from roadworthy.bench.report_html import render_html

        title = _title(run)
        page = render_html(title, (run.section("Measured run"),), generator=f"roadworthy {__version__}")
        write_atomically(html, page)
        click.echo(f"wrote {html}", err=True)
