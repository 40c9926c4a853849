"""Range queries: the series that rules understand, fetched from a Prometheus into a folder of answers."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.incident.fetched import safe_part
from roadworthy.adapters.incident.programs import each_at_once
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.metrics.wanted import TARGETS, query_of, step_s, wanted_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roadworthy.adapters.incident.fetched import Fetched
    from roadworthy.adapters.incident.http import Asker

AT_ONCE = 4
"""Queries in flight: what a shared Prometheus hardly notices."""

NAMES_MOST_BYTES = 64 * 2**20
TAIL_BYTES = 16 * 1024
JOB = re.compile(rb'"job"\s*:\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is asked for: seconds of the epoch, and label matchers of which any may fit."""

    start_s: float
    end_s: float
    selectors: tuple[tuple[str, ...], ...] = ()


def fetch_series(asker: Asker, asked: Range, fetched: Fetched) -> None:
    """Every wanted series of ``asked``, one file a metric; what is not there or does not come is noted.

    Raises:
        ProbeError: the server does not answer as a Prometheus does.
    """
    folder = f"prometheus/{safe_part(asker.address)}"
    families = wanted_of(_names(asker, asked))
    for family, names in families.items():
        if not names:
            narrowed = " with this selector" if asked.selectors else ""
            fetched.could_not_look(f"{folder} {family}", f"no series of them{narrowed}")
    names = [name for some in families.values() for name in some]

    def fetch(name: str) -> None:
        _one(asker, asked, fetched, f"{folder}/{safe_part(name)}.json", name, asked.selectors)

    each_at_once(fetch, names, most=AT_ONCE)
    jobs = _jobs(fetched.folder / folder, families["engines"])
    if jobs:
        any_of = "|".join(re.escape(job).replace("\\", "\\\\").replace('"', '\\"') for job in sorted(jobs))
        for name in TARGETS:
            _one(asker, asked, fetched, f"{folder}/{name}.json", name, ((f'job=~"{any_of}"',),))


def _names(asker: Asker, asked: Range) -> list[str]:
    """Names of all metrics in the range."""
    query = [("start", f"{asked.start_s:.3f}"), ("end", f"{asked.end_s:.3f}")]
    query += [("match[]", "{" + ",".join(matchers) + "}") for matchers in asked.selectors]
    body = io.BytesIO()
    asker.save("/api/v1/label/__name__/values", query, body, most_bytes=NAMES_MOST_BYTES)
    try:
        answer: Any = json.loads(body.getvalue())
        names = answer["data"]
        if answer["status"] != "success" or not isinstance(names, list):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ProbeError(
            f"{asker.url}: does not answer as a Prometheus does",
            hint="give the address that has /api/v1/query_range below it, such as http://prometheus:9090",
        ) from None
    return [str(name) for name in names]


def _one(
    asker: Asker, asked: Range, fetched: Fetched, file: str, name: str, selectors: Sequence[tuple[str, ...]]
) -> None:  # fmt: skip
    step = step_s(asked.end_s - asked.start_s)
    query = [
        ("query", query_of(name, selectors, step)), ("start", f"{asked.start_s:.3f}"), ("end", f"{asked.end_s:.3f}"),
        ("step", str(step)),
    ]  # fmt: skip
    try:
        with fetched.writing(file) as body:
            asker.save("/api/v1/query_range", query, body)
    except ProbeError as error:
        fetched.could_not_look(file, str(error))
        return
    for warning in _warnings(fetched.folder / file):
        fetched.could_not_look(f"{file}, in part", warning)


def _warnings(path: Path) -> list[str]:
    """What the server says of its own answer: Thanos and Mimir answer with what they have."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        head = file.read(TAIL_BYTES)
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        ends = head + file.read()
    said = []
    if re.search(rb'"isPartial"\s*:\s*true', ends):
        said.append("the server says that its answer is partial")
    if found := re.search(rb'"warnings"\s*:\s*(\[[^\]]*\])', ends):
        try:
            said += [str(one)[:300] for one in json.loads(found[1])]
        except ValueError:
            said.append("the server warns of something")
    return said


def _jobs(folder: Path, names: Sequence[str]) -> set[str]:
    """Scrape jobs of the engines: whose targets are asked for."""
    jobs: set[str] = set()
    for name in names:
        path = folder / f"{safe_part(name)}.json"
        if path.exists() and path.stat().st_size < NAMES_MOST_BYTES:
            jobs |= {found.decode("utf-8", "replace") for found in JOB.findall(path.read_bytes())}
        if jobs:
            break
    return jobs
