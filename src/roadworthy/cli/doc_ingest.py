"""`roadworthy doc ingest` and `doc embed`: documents into the store, and their vectors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.doc_options import (
    embedding_options,
    home_option,
    home_or_default,
    open_recogniser,
    open_store,
    served_of,
    tokenizer_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roadworthy.cli.doc_options import EmbeddingChoice
    from roadworthy.longdoc.wall import Meter, Wall

SUFFIXES = {
    ".txt", ".md", ".markdown", ".text", ".pdf", ".docx", ".xlsx", ".pptx", ".html", ".htm", ".png", ".jpg", ".jpeg",
    ".tif", ".tiff",
}  # fmt: skip
"""Of the files that are taken out of a folder; a file that is named is read whatever it is called."""

SHOWN_EVERY_S = 1.0


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@home_option
@click.option("--no-vectors", is_flag=True, help="Leave embeddings out: faster, and search by words and numbers alone.")
@click.option(
    "--no-bundled", is_flag=True, help="With --embeddings: leave the bundled embedding out, which is slow on a CPU."
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that parse and embed (one a core).")
@tokenizer_option
@embedding_options
@click.option(
    "--engine", type=click.FloatRange(min=0, min_open=True), metavar="TOKENS/S",
    help="What the engine prefills, to compare reading with; --spec takes it from the plan.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def ingest(
    paths: tuple[Path, ...],
    home: Path | None,
    no_vectors: bool,
    no_bundled: bool,
    workers: int | None,
    tokenizer: str,
    embedding: EmbeddingChoice,
    engine: float | None,
    as_json: bool,
) -> int:
    """Read documents into the store; what has not changed is not read again.

    A run that breaks off is taken up by the same command: files, recognised pages and vectors that are done are not
    done again. Exit code 1 when a file could not be stored.
    """
    from roadworthy.adapters.longdoc_many import ManyFiles
    from roadworthy.adapters.longdoc_reembed import judge
    from roadworthy.adapters.longdoc_tokens import counter
    from roadworthy.cli.output import print_json

    counter(tokenizer)  # one that is not there is told before a worker meets it
    files = list(_files(paths))
    with open_store(home) as store, open_recogniser(home_or_default(home)) as recogniser:
        served = served_of(embedding, known=store.served.model())
        if no_vectors:
            served = None
        if served is not None:
            store.served.use(served.model)
        many = ManyFiles(
            store, vectors=not (no_vectors or no_bundled), served=served,
            recognise=recogniser.pages if recogniser is not None else None, workers=workers,
            tokenizer=tokenizer, heard=_shown(),
        )  # fmt: skip
        results = many.run(files)
        stored = any(one.get("outcome") == "stored" for one in results)
        trust = judge(store, served) if served is not None and stored else None
    meter = many.meter
    wall = _wall(meter, engine, embedding.spec)
    if as_json:
        print_json({"documents": results, "summary": _summary(meter, wall, trust)})
    else:
        _print(results)
    _say_summary(meter, wall, trust)
    return 1 if any("error" in one for one in results) else 0


@click.command()
@home_option
@embedding_options
@click.option("--drop", is_flag=True, help="Delete the vectors of the endpoint's model instead.")
def embed(
    home: Path | None,
    embedding: EmbeddingChoice,
    drop: bool,
) -> int:
    """Make the vectors of everything stored anew, with another model behind /v1/embeddings.

    Search goes on with the vectors that are there until the new ones are complete. Broken off, the same command goes on
    where it stopped.
    """
    from roadworthy.adapters.longdoc_index import drop_indexes
    from roadworthy.adapters.longdoc_reembed import reembed
    from roadworthy.cli.output import say

    with open_store(home) as store:
        if drop:
            say("deleted" if store.served.drop() else "there were none")
            drop_indexes(home_or_default(home))
            return 0
        served = served_of(embedding)
        if served is None:
            raise click.UsageError("give --embeddings URL, or --spec FILE, with --embedding-model NAME")
        made = reembed(store, home_or_default(home), served, _embedded())
        say(f"{made:,} vectors made by {served.model.model}, of {served.dimension} numbers")
        _say_trust(store.served.trust())
    return 0


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.rglob("*") if one.is_file() and one.suffix.lower() in SUFFIXES)
        else:
            yield path


def _print(results: Sequence[dict[str, object]]) -> None:
    """What went in as it came; what failed at the end, where it is seen."""
    for one in sorted(results, key=lambda each: "error" in each):
        units = f", {one['units']} units" if "units" in one else ""
        click.echo(f"{one['document']}: {one.get('error') or one['outcome']}{units}")
        for note in one.get("notes", ()):  # type: ignore[attr-defined]
            click.echo(f"  {note}")
        if one.get("hint"):
            click.echo(f"  hint: {one['hint']}")


def _wall(meter: Meter, engine: float | None, spec: Path | None) -> Wall | None:
    from roadworthy.longdoc.wall import Wall

    rate = engine if engine is not None else _planned_rate(spec)
    if rate is None or not meter.tokens:
        return None
    return Wall(read_per_s=meter.per_s(meter.tokens), engine_per_s=rate)


def _planned_rate(spec: Path | None) -> float | None:
    """Prompt tokens a second of all replicas of the plan's layout; None where it predicts no speed."""
    if spec is None:
        return None
    from roadworthy.cli.wiring import load_planned
    from roadworthy.route.govern.prefill import PrefillPace

    best = load_planned(str(spec)).best()
    pace = PrefillPace.planned(best, ranks=best.layout.dp)
    return None if pace is None else pace.tokens_per_s * best.layout.replicas


def _summary(meter: Meter, wall: Wall | None, trust: tuple[float, float] | None) -> dict[str, object]:
    return {
        "files": meter.files, "failed": meter.failed, "pages": meter.pages, "ocr_pages": meter.ocr_pages,
        "tokens": meter.tokens, "seconds": round(meter.elapsed_s, 3),
        "pages_per_s": round(meter.per_s(meter.pages), 2), "tokens_per_s": round(meter.per_s(meter.tokens), 1),
        "read_s": round(meter.read_s, 3),
        "io_wall": None if wall is None else {
            "read_tokens_per_s": round(wall.read_per_s, 1), "engine_tokens_per_s": round(wall.engine_per_s, 1),
            "bottleneck": wall.bottleneck,
        },
        "embedding_trust": None if trust is None else {"chinese": trust[0], "other": trust[1]},
    }  # fmt: skip


def _say_summary(meter: Meter, wall: Wall | None, trust: tuple[float, float] | None) -> None:
    from roadworthy.cli.output import say

    if meter.pages:
        ocr = f", {meter.ocr_pages:,} by OCR" if meter.ocr_pages else ""
        say(
            f"{meter.done - meter.failed:,} of {meter.files:,} files, {meter.pages:,} pages{ocr} in "
            f"{meter.elapsed_s:,.1f} s: {meter.per_s(meter.pages):,.1f} pages/s, "
            f"{meter.per_s(meter.tokens):,.0f} tokens/s"
        )
    if wall is not None:
        say(f"IO wall: {wall.said()}")
    if trust is not None:
        _say_trust(trust)
    if meter.failed:
        say(f"{meter.failed:,} of {meter.files:,} files were not stored; the same command tries them again")


def _say_trust(trust: tuple[float, float]) -> None:
    """A model that does not find units by their own sentences is not relied on, and its operator wants to know."""
    from roadworthy.adapters.longdoc_trust import FULL_TRUST
    from roadworthy.cli.output import say

    for language, share in zip(("Chinese", "other"), trust, strict=True):
        if share < FULL_TRUST:
            counts = f"counts {share / FULL_TRUST:.0%} of what it could" if share else "does not count"
            say(f"on {language} text the endpoint's embedding {counts}: it misses units by their own sentences")


def _shown() -> Callable[[Meter], None]:
    """One line that is written over, on a terminal."""
    if not os.isatty(2):
        return lambda _: None
    last_s = 0.0

    def show(meter: Meter) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s < SHOWN_EVERY_S and meter.done < meter.files:
            return
        last_s = now_s
        name, page, of = meter.current
        at = f", OCR {page:,} of {of:,} of {Path(name).name}" if name else ""
        click.echo(
            f"\r\x1b[K{meter.done:,} of {meter.files:,} files, {meter.pages:,} pages "
            f"({meter.per_s(meter.pages):,.1f}/s), {meter.per_s(meter.tokens):,.0f} tokens/s, "
            f"{meter.units:,} units embedded{at}"
            + ("\n" if meter.done == meter.files else ""),
            err=True, nl=False,
        )  # fmt: skip

    return show


def _embedded() -> Callable[[int, int], None]:
    if not os.isatty(2):
        return lambda *_: None

    def show(done: int, of: int) -> None:
        click.echo(f"\r{done:,} of {of:,} units embedded" + ("\n" if done == of else ""), err=True, nl=False)

    return show
