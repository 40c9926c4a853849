"""What `bench` prints and writes of one run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.load_run import BenchRun
    from roadworthy.advise.gates import Verdict
    from roadworthy.bench.sections import RunSection
    from roadworthy.core.records import RequestRecord

COLOURS = {"met": "green", "missed": "red", "undecided": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Files to write, None for those that were not asked for.

    Args:
        evidence: a folder for all of it, whose manifest ``sign`` signs, with the text of the ``document`` that the load
            followed.
    """

    out: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    evidence: Path | None = None
    sign: Path | None = None
    document: str | None = None

    def require_writable(self) -> None:
        """Find out before the load. Raises SpecError or ProbeError."""
        from roadworthy.adapters.evidence import require_folder, require_key
        from roadworthy.adapters.report_files import require_writable

        named = {"--out": self.out, "--html": self.html, "--junit": self.junit}
        seen: dict[Path, str] = {}
        for option, path in named.items():
            if path is None:
                continue
            other = seen.setdefault(path.absolute(), option)
            if other != option:
                raise SpecError(
                    f"{other} and {option}: both {path}, wanted two files", hint="each holds another kind of report"
                )
        for path in seen:
            require_writable(path)
        if self.sign is not None:
            if self.evidence is None:
                raise SpecError("--sign: nothing to sign", hint="it signs what --evidence DIR writes")
            require_key(self.sign)
        if self.evidence is not None:
            require_folder(self.evidence)


def bench_document(run: BenchRun) -> dict[str, object]:
    """What ``--json`` prints: the report's fields, the same under vLLM's names, and beside them what was run."""
    from roadworthy.advise.breakdown import by_kind, by_prompt_length
    from roadworthy.advise.objectives import DEFAULT_ACCEPTANCE
    from roadworthy.bench.vllm_names import vllm_summary
    from roadworthy.cli.output import plain

    counted = run.counted
    sla = DEFAULT_ACCEPTANCE if run.report.default_limits else run.request.sla
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
        "prompt_lengths": plain(by_prompt_length(counted, sla)),
        "kinds": plain(by_kind(counted, sla)),
        "intervals": {
            name: {stat: [one.low, one.high] for stat, one in of.items()} for name, of in run.intervals.items()
        },
        "steady_state": plain(run.steady),
        "sized_by": run.calibration.sized_by,
        "client_cpu_ratio": run.client_cpu_ratio,
        "abandoned": run.drive.abandoned,
        "facts": dict(run.facts()),
        "notes": list(run.notes()),
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat",
        "model_id": run.model.id,
        "burstiness": run.request.workload.arrivals.burstiness,
        "max_concurrency": run.request.max_concurrency,
        **{name: value for name, value in vllm_summary(run.report, counted).items() if name not in report},
    }


def detailed(document: Mapping[str, object], records: Sequence[RequestRecord]) -> dict[str, object]:
    """``document`` with every request, which is what comparisons read."""
    from roadworthy.bench.vllm_names import vllm_details

    return {**document, **vllm_details(records)}


def print_run(section: RunSection) -> None:
    """The report in words on stdout."""
    from roadworthy.bench.report_text import render_text

    click.echo(render_text(section, paint=paint), nl=False)


def paint(verdict: Verdict, text: str) -> str:
    """``text`` in the colour of ``verdict``."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=COLOURS[verdict], bold=True)


def title_of(run: BenchRun) -> str:
    return f"{run.model.id} at {run.target}"


def json_text(document: Mapping[str, object]) -> str:
    """JSON with one key a line; lists of numbers stay on their line."""
    from roadworthy.cli.output import plain

    lines = (
        f"  {json.dumps(name)}: {json.dumps(plain(value), ensure_ascii=False)}" for name, value in document.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_reports(run: BenchRun, document: Mapping[str, object], places: Places) -> None:
    """Write what was asked for. A file that cannot be written stops none of the others.

    Raises:
        ProbeError: some file could not be written; the message says where its content is now.
    """
    from roadworthy import __version__
    from roadworthy.adapters.report_files import write_or_rescue
    from roadworthy.bench.junit import junit_xml
    from roadworthy.bench.report_html import render_html

    title = title_of(run)

    @cache
    def result() -> str:
        return json_text(detailed(document, run.drive.records))

    @cache
    def page() -> str:
        return render_html(title, (run.section("Measured run"),), generator=f"roadworthy {__version__}")

    @cache
    def pipeline() -> str:
        return junit_xml(title, run.report, facts=run.facts())

    asked = ((places.out, result), (places.html, page), (places.junit, pipeline))
    contents = [(path, write()) for path, write in asked if path is not None]
    write_or_rescue(contents, say=lambda text: click.echo(text, err=True))
    if places.evidence is not None:
        from roadworthy.cli.bench_evidence import write_run

        texts = {"result.json": result(), "report.html": page(), "junit.xml": pipeline()}
        if places.document is not None:
            texts["document.yaml"] = places.document
        write_run(run, texts, places.evidence, key=places.sign)
