"""Scrapes of running engines, and what our gateway's admin port knows of them. Reads only."""

from __future__ import annotations

import io
import json
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.incident.fetched import safe_part
from roadworthy.adapters.incident.http import Asker
from roadworthy.adapters.incident.programs import each_at_once
from roadworthy.core.errors import ProbeError, RoadworthyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roadworthy.adapters.incident.fetched import Fetched
    from roadworthy.adapters.incident.http import Login

METRICS_MOST_BYTES = 64 * 2**20
AT_ONCE = 16
LIMIT_S = 15.0
OF_INTEREST = re.compile(r"^(?:vllm:|sglang:|roadworthy_gateway_|DCGM_FI_)", re.MULTILINE)
HINT = "such as http://127.0.0.1:8000"
ADMIN_PAGES = ("/api/status", "/api/engines", "/api/requests")


def is_of_interest(text: str) -> bool:
    """Whether a scrape is of an engine, a GPU exporter or our gateway."""
    return bool(OF_INTEREST.search(text))


def engine_asker(url: str, *, ca_file: Path | None = None) -> Asker:
    """Raises SpecError for what is no address; `/metrics` at its end may stand there or not."""
    return Asker(
        url.rstrip("/").removesuffix("/metrics"), what="of an engine", hint=HINT, ca_file=ca_file, limit_s=LIMIT_S
    )


def fetch_scrapes(
    askers: Sequence[Asker], fetched: Fetched, *, apart_s: float, wait: Callable[[float], object] = time.sleep
) -> None:
    """Two scrapes of each, ``apart_s`` seconds apart; those that do not answer are noted."""
    for number in range(2):
        if number and askers:
            wait(apart_s)
        answered = each_at_once(partial(_scrape, fetched=fetched, number=number), askers, most=AT_ONCE)
        askers = [one for one, good in zip(askers, answered, strict=True) if good]


def _scrape(asker: Asker, fetched: Fetched, number: int) -> bool:
    file = f"engines/{safe_part(asker.address)}/metrics.t{number}.prom"
    try:
        with fetched.writing(file) as sink:
            asker.save("/metrics", (), sink, most_bytes=METRICS_MOST_BYTES)
    except ProbeError as error:
        fetched.could_not_look(f"{asker.url}/metrics", str(error))
        return False
    return True


def admin_asker(url: str, login: Login, *, ca_file: Path | None = None) -> Asker:
    """Raises SpecError for what is no address."""
    return Asker(
        url, what="of an admin port", hint="such as http://127.0.0.1:8081", login=login, ca_file=ca_file,
        limit_s=LIMIT_S,
    )  # fmt: skip


def fetch_gateway(asker: Asker, fetched: Fetched, *, ca_file: Path | None = None) -> list[Asker]:
    """Status, engines and latest requests of a gateway's admin port; what it does not answer is noted.

    Returns:
        Whom to scrape: the gateway itself and the engines that it names.
    """
    folder = f"gateways/{safe_part(asker.address)}"
    engines = b""
    for page in ADMIN_PAGES:
        body = io.BytesIO()
        try:
            asker.save(page, (), body, most_bytes=METRICS_MOST_BYTES)
        except ProbeError as error:
            fetched.could_not_look(f"{asker.url}{page}", str(error))
            continue
        fetched.put(f"{folder}/{page.rsplit('/', 1)[-1]}.json", body.getvalue().decode("utf-8", "replace"))
        engines = body.getvalue() if page == "/api/engines" else engines
    return [engine_asker(asker.url, ca_file=ca_file), *_engines(engines, ca_file)]


def _engines(body: bytes, ca_file: Path | None) -> list[Asker]:
    try:
        answer: Any = json.loads(body or b"{}")
    except ValueError:
        return []
    rows = answer.get("engines") or answer.get("data") or () if isinstance(answer, dict) else answer
    askers = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("url"), str):
            try:
                askers.append(engine_asker(row["url"], ca_file=ca_file))
            except RoadworthyError:
                continue  # whatever stands there, the gateway could not use it either
    return askers
