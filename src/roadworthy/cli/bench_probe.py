"""`roadworthy bench probe`: are facts in long texts found, wherever they stand?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.bench_options import FILE, SHARE, target_options
from roadworthy.core.errors import SpecError
from roadworthy.core.units import parse_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.adapters.load_probe import ProbeRun
    from roadworthy.bench.probes.ask import ProbePlan
    from roadworthy.bench.probes.report import ProbeView, Verdict
    from roadworthy.bench.probes.score import ProbeAnswer

DEFAULT_LENGTHS = "2K,8K,32K"
_COLOURS = {"met": "green", "missed": "red", "undecided": "yellow"}
_SHORTEST_TOKENS = 256
_MOST_QUESTIONS = 20_000


@click.command("probe")
@target_options
@click.option("--kinds", default="needle,many,overwrite,alias", show_default=True, help="Which kinds of question.")
@click.option("--lengths", default=DEFAULT_LENGTHS, show_default=True, help="Tokens of the prompts.")
@click.option(
    "--depths",
    type=click.IntRange(1, 51),
    default=5,
    show_default=True,
    help="Depths, evenly from the beginning to the end.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Questions at each place.")
@click.option("--floor", type=SHARE, default=0.9, help="Score that every length and depth has to reach (90%).")
@click.option(
    "--answer-tokens",
    type=click.IntRange(min=8),
    default=64,
    show_default=True,
    help="Longest answer; more for a model that thinks aloud.",
)
@click.option("--at-once", type=click.IntRange(1, 256), default=4, show_default=True, help="Questions under way.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same texts and questions.")
@click.option("--tokenizer", type=FILE, help="tokenizer.json or its folder, to size prompts exactly.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--out", type=FILE, help="Also write the JSON document, with every answer, to a file.")
@click.option("--html", type=FILE, help="Also write a page with the heat maps.")
def command(
    target: str | None, spec: str | None, ready_file: Path | None, key: str | None, model: str | None, timeout: float,
    kinds: str, lengths: str, depths: int, repeats: int, floor: float, answer_tokens: int, at_once: int, seed: int,
    tokenizer: Path | None, as_json: bool, out: Path | None, html: Path | None,
) -> int:  # fmt: skip
    """Hide facts in long texts, ask for them, and score the answers by depth and length.

    Kinds: needle (one fact), many (four facts), overwrite (a fact that changed), alias (a name explained elsewhere).
    Exit code 0: every length and depth reaches the floor; 1: one does not, or questions were not answered; 2: wrong
    input; 3: the target could not be reached.
    """
    from roadworthy.adapters.load_probe import run_probes
    from roadworthy.adapters.load_run import BenchRequest
    from roadworthy.adapters.report_files import write_or_rescue
    from roadworthy.bench.probes.report import probe_page, render_probes
    from roadworthy.cli.bench_aim import aim_at
    from roadworthy.cli.bench_output import Places, json_text
    from roadworthy.cli.output import print_json
    from roadworthy.spec.values import RequestProfile

    plan = _plan(kinds, lengths, depths=depths, repeats=repeats, seed=seed, answer_tokens=answer_tokens)
    Places(out=out, html=html).require_writable()
    aim = aim_at(target, spec=spec, ready_file=ready_file, key=key)
    request = BenchRequest(
        url=aim.url, workload=RequestProfile(), tenants=aim.tenants, keys=aim.keys, model=model, timeout_s=timeout,
        tokenizer=tokenizer,
    )  # fmt: skip
    run = run_probes(request, plan, at_once=at_once, told=_progress(plan.count))
    view = view_of(run, floor)
    document = probe_document(run, view)
    if as_json:
        print_json(document)
    else:
        click.echo(render_probes(view, paint=_paint), nl=False)
    contents = [(out, json_text({**document, "answers": answers_of(run)}))] if out is not None else []
    contents += [(html, probe_page(view))] if html is not None else []
    write_or_rescue(contents, say=lambda text: click.echo(text, err=True))
    return 0 if view.verdict == "met" else 1


def _plan(kinds: str, lengths: str, *, depths: int, repeats: int, seed: int, answer_tokens: int) -> ProbePlan:
    from roadworthy.bench.probes.ask import ProbePlan
    from roadworthy.bench.probes.cases import KINDS, grid

    asked = [kind.strip() for kind in kinds.split(",")]
    strangers = [kind for kind in asked if kind not in KINDS]
    if strangers:
        raise SpecError(f"--kinds: {strangers[0]!r}, wanted some of {', '.join(KINDS)}")
    try:
        tokens = sorted({parse_count(part) for part in lengths.split(",")})
    except ValueError as error:
        raise SpecError(f"--lengths {lengths}: {error}", hint="such as 2K,8K,32K") from error
    if tokens[0] < _SHORTEST_TOKENS:
        raise SpecError(
            f"--lengths: {tokens[0]}, wanted at least {_SHORTEST_TOKENS}", hint="facts need room around them"
        )
    plan = ProbePlan(
        kinds=tuple(kind for kind in KINDS if kind in asked), lengths_tokens=tuple(tokens), depths=grid(depths),
        repeats=repeats, seed=seed, answer_tokens=answer_tokens,
    )  # fmt: skip
    if plan.count > _MOST_QUESTIONS:
        raise SpecError(f"{plan.count:,} questions, wanted at most {_MOST_QUESTIONS:,}", hint="fewer depths or repeats")
    return plan


def view_of(run: ProbeRun, floor_ratio: float) -> ProbeView:
    """What to show of ``run``."""
    from roadworthy.bench.probes.report import ProbeView, verdict_of
    from roadworthy.bench.probes.score import report_of

    kinds = report_of(run.answers)
    verdict, reason = verdict_of(kinds, floor_ratio, partial=run.partial)
    return ProbeView(
        title=f"{run.model} at {run.target}{' (simulated engine)' if run.simulated else ''}",
        kinds=kinds,
        verdict=verdict,
        reason=reason,
        floor_ratio=floor_ratio,
        notes=tuple(_notes(run)),
    )


def _notes(run: ProbeRun) -> list[str]:
    from roadworthy.bench.probes.report import length_of

    notes = []
    if run.simulated:
        notes.append("A simulated engine answers with filler: these scores say nothing about a model.")
    if run.too_long:
        lengths = ", ".join(length_of(length) for length in run.too_long)
        notes.append(f"Longer than the model's context, and not asked: {lengths}.")
    counted = [one.prompt_tokens / one.case.length_tokens for one in run.answers if one.prompt_tokens]
    if counted:
        mean = sum(counted) / len(counted)
        notes.append(f"Prompts were {mean:.0%} of the planned length on average, sized by {run.sized_by}.")
    errors = {one.error for one in run.answers if one.error}
    notes += [f"Not answered: {error}." for error in sorted(errors)[:5]]
    if run.partial:
        notes.append("The probe was ended early; this report is partial.")
    return notes


def probe_document(run: ProbeRun, view: ProbeView) -> dict[str, object]:
    """What ``--json`` prints."""
    from roadworthy.cli.output import plain

    return {
        "verdict": view.verdict,
        "reason": view.reason,
        "target": run.target,
        "model": run.model,
        "simulated": run.simulated,
        "partial": run.partial,
        "floor": view.floor_ratio,
        "seed": run.plan.seed,
        "sized_by": run.sized_by,
        "asked": len(run.answers),
        "failed": sum(bool(one.error) for one in run.answers),
        "kinds": [
            {**_object(plain(kind)), "by_length": [list(pair) for pair in kind.by_length()]} for kind in view.kinds
        ],
        "notes": list(view.notes),
    }


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict)  # a dataclass becomes an object
    return value


def answers_of(run: ProbeRun) -> list[dict[str, object]]:
    """Every question and reply, without the long texts; the seed makes those again."""
    return [
        {
            "kind": one.case.kind, "length_tokens": one.case.length_tokens, "depth_ratio": one.case.depth_ratio,
            "repeat": one.case.repeat, "question": one.case.question, "right": list(one.case.right),
            "wrong": list(one.case.wrong), "reply": one.reply, "score": one.score, "prompt_tokens": one.prompt_tokens,
            "ttft_s": one.ttft_s, "error": one.error,
        }
        for one in run.answers
    ]  # fmt: skip


def _progress(count: int) -> Callable[[ProbeAnswer], None]:
    """A line on stderr for every tenth of the questions."""
    from roadworthy.bench.probes.ask import about

    answers: list[ProbeAnswer] = []

    def told(answer: ProbeAnswer) -> None:
        answers.append(answer)
        if len(answers) % max(1, count // 10) == 0:
            click.echo(f"{about(answers)} of {count:,}", err=True)

    return told


def _paint(verdict: Verdict, text: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=_COLOURS[verdict], bold=True)
