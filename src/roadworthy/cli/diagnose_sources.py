"""Options of `roadworthy diagnose` that name live sources, and the fetching of what they name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.bench_options import DURATION
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roadworthy.adapters.incident.fetched import Fetched

PROMETHEUS_LOGIN = "ROADWORTHY_PROMETHEUS"
SINCE_S = 2 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What to look at besides files."""

    ssh: tuple[str, ...]
    logs: str | None
    kube: tuple[str, ...]
    namespace: str | None
    metrics: tuple[str, ...]
    apart_s: float
    gateways: tuple[str, ...]
    prometheus: tuple[str, ...]
    selectors: tuple[str, ...]
    since_s: float | None
    start: str | None
    end: str | None
    ca_file: Path | None

    def __bool__(self) -> bool:
        return bool(self.ssh or self.kube or self.metrics or self.gateways or self.prometheus)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options; the command takes them as keywords of :class:`Sources`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--ssh", multiple=True, metavar="HOST[,HOST]",
        help="Also ask these hosts over ssh: journal, kernel, containers' and Ray's logs, GPUs, NICs, local metrics.",
    ),
    click.option("--logs", metavar="FOLDER", help="Folder of logs on the hosts of --ssh, beside the usual places."),
    click.option(
        "--kube", multiple=True, metavar="SELECTOR",
        help="Also read the pods with this label: logs of this run and the last, events, descriptions, nodes, metrics.",
    ),
    click.option("--namespace", "-n", metavar="NAME", help="Namespace of --kube."),
    click.option("--metrics", multiple=True, metavar="URL", help="Also scrape this engine's /metrics twice."),
    click.option(
        "--apart", "apart_s", default=15.0, show_default=True, type=click.FloatRange(1, 600), help="Seconds between."
    ),
    click.option(
        "--gateway", "gateways", multiple=True, metavar="URL",
        help="Also ask the admin port of this gateway, and scrape it and its engines. Key: ROADWORTHY_ADMIN_KEY.",
    ),
    click.option(
        "--prometheus", multiple=True, metavar="URL",
        help="Also fetch series over time from this Prometheus (Thanos, Mimir, VictoriaMetrics). Login: "
        "ROADWORTHY_PROMETHEUS_TOKEN, or ROADWORTHY_PROMETHEUS_USER and ROADWORTHY_PROMETHEUS_PASSWORD.",
    ),
    click.option(
        "--selector", "selectors", multiple=True, metavar="LABELS",
        help="""Only series with these labels, such as '{job="vllm"}'; given again: or these.""",
    ),
    click.option("--since", "since_s", type=DURATION, metavar="DURATION", help="How far back to look.  [default: 2h]"),
    click.option("--from", "start", metavar="TIME", help="Start of the range: 2026-11-02T04:00:00Z or epoch seconds."),
    click.option("--to", "end", metavar="TIME", help="End of the range; now by default."),
    click.option(
        "--ca-file", type=click.Path(path_type=Path), metavar="FILE",
        help="Certificates to trust instead of the system's.",
    ),
)  # fmt: skip


def time_range(sources: Sources, now_s: float) -> tuple[float, float]:
    """(start, end) in seconds of the epoch. Raises SpecError for what is no range."""
    if sources.since_s is not None and sources.start:
        raise SpecError("--since and --from: both name the start", hint="give one of them")
    end_s = _moment(sources.end, "--to") if sources.end else now_s
    start_s = _moment(sources.start, "--from") if sources.start else end_s - (sources.since_s or SINCE_S)
    if start_s >= end_s:
        raise SpecError("the range ends before it starts", hint="--from must lie before --to")
    return start_s, end_s


def _moment(text: str, option: str) -> float:
    if re.fullmatch(r"\d{9,11}(?:\.\d+)?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(
            f"{option}: {text!r} is no time", hint="such as 2026-11-02T04:00:00Z (UTC without a zone) or epoch seconds"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def fetch(sources: Sources, fetched: Fetched, *, now_s: float, say: Callable[[str], object], alone: bool) -> None:
    """Fetch from every source; one that cannot be asked is noted.

    Raises:
        SpecError: an option that is wrong, before anything is asked.
        ProbeError: not one of them gave anything, and ``alone`` says that there is nothing else to read.
    """
    start_s, end_s = time_range(sources, now_s)
    work = _prepared(sources, fetched, start_s, end_s, say)
    failed: list[ProbeError] = []
    for what, one in work:
        say(f"asking {what}")
        try:
            one()
        except ProbeError as error:
            fetched.could_not_look(what, str(error))
            failed.append(error)
    fetched.close()
    if alone and not fetched.files:
        raise failed[0] if failed else _nothing(fetched)


def _nothing(fetched: Fetched) -> ProbeError:
    said = "; ".join(f"{what}: {reason}" for what, reason in fetched.missed[:3])
    return ProbeError(
        f"nothing could be looked at: {said or 'no source gave anything'}", hint="see what each source says"
    )


def _prepared(
    sources: Sources, fetched: Fetched, start_s: float, end_s: float, say: Callable[[str], object]
) -> list[tuple[str, Callable[[], None]]]:
    """What is to be done; everything that can be wrong with an option is found here."""
    from roadworthy.adapters.incident import engines, hosts, kube, prometheus
    from roadworthy.adapters.incident.http import Asker, Login, login_of

    work: list[tuple[str, Callable[[], None]]] = []
    since_s = end_s - start_s
    names = tuple(name.strip() for given in sources.ssh for name in given.split(",") if name.strip())
    if names:
        asked = hosts.Asked(hosts=names, since_s=since_s, logs=sources.logs or "")
        work.append((f"{', '.join(names)} over ssh", partial(hosts.fetch_hosts, asked, fetched)))
    for selector in sources.kube:
        pods = kube.Asked(selector=selector, namespace=sources.namespace, since_s=since_s)
        work.append((f"Kubernetes for {selector}", partial(kube.fetch_pods, pods, fetched)))
    login = login_of(os.environ, PROMETHEUS_LOGIN)
    ranged = prometheus.Range(start_s=start_s, end_s=end_s, selectors=_selectors(sources.selectors))
    for url in sources.prometheus:
        asker = Asker(
            url, what="of a Prometheus", hint="such as http://prometheus:9090", login=login, ca_file=sources.ca_file
        )
        if asker.exposes_login:
            say(f"warning: the login goes to {asker.url} unencrypted\nhint: https keeps it private")
        work.append((asker.url, partial(prometheus.fetch_series, asker, ranged, fetched)))
    scraped = [engines.engine_asker(url, ca_file=sources.ca_file) for url in sources.metrics]
    admin = Login(token=os.environ.get("ROADWORTHY_ADMIN_KEY", "").strip())
    gateways = [engines.admin_asker(url, admin, ca_file=sources.ca_file) for url in sources.gateways]
    for gateway in gateways:
        if gateway.exposes_login:
            hint = "an ssh tunnel, or https, keeps it private"
            say(f"warning: the admin key goes to {gateway.url} unencrypted\nhint: {hint}")

    def scrape() -> None:
        for gateway in gateways:
            found = engines.fetch_gateway(gateway, fetched, ca_file=sources.ca_file)
            scraped.extend(one for one in found if one.url not in {other.url for other in scraped})
        engines.fetch_scrapes(scraped, fetched, apart_s=sources.apart_s)

    if scraped or gateways:
        work.append(("/metrics", scrape))
    return work


def _selectors(given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    from roadworthy.diagnose.metrics.wanted import matchers_of

    found = []
    for selector in given:
        matchers = matchers_of(selector)
        if matchers is None:
            raise SpecError(f"--selector: {selector!r} is no selector of labels", hint="""such as '{job="vllm"}'""")
        found.append(matchers)
    return tuple(found)
