"""`roadworthy doc`: long documents in, answers with their place out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.doc_ask import ask, clean
from roadworthy.cli.doc_batch import batch
from roadworthy.cli.doc_options import home_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from roadworthy.adapters.longdoc_ingest import Progress
    from roadworthy.adapters.longdoc_read.ocr import Recogniser
    from roadworthy.adapters.longdoc_read.pdf import Recognise
    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.search import Hit, Searcher

SUFFIXES = {
    ".txt", ".md", ".markdown", ".text", ".pdf", ".docx", ".xlsx", ".pptx", ".html", ".htm", ".png", ".jpg", ".jpeg",
    ".tif", ".tiff",
}  # fmt: skip
"""Of the files that are taken out of a folder; a file that is named is read whatever it is called."""


@click.group()
def command() -> None:
    """Read long documents and find the passage that answers, by number, words and meaning."""


command.add_command(ask)
command.add_command(batch)


@command.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@home_option
@click.option("--no-vectors", is_flag=True, help="Leave embeddings out: faster, and search by words and numbers alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def ingest(paths: tuple[Path, ...], home: Path | None, no_vectors: bool, as_json: bool) -> int:
    """Read documents into the store; what has not changed is not read again."""
    from roadworthy.cli.output import print_json

    with _store(home) as store, _recogniser(_home(home)) as recogniser:
        recognise = recogniser.pages if recogniser is not None else None
        results = [_ingest(store, path, no_vectors=no_vectors, recognise=recognise) for path in _files(paths)]
    if as_json:
        print_json({"documents": results})
    else:
        for one in results:
            click.echo(
                f"{one['document']}: {one.get('error') or one['outcome']}"
                + (f", {one['units']} units" if "units" in one else "")
            )
            for note in one.get("notes", ()):  # type: ignore[attr-defined]
                click.echo(f"  {note}")
            if one.get("hint"):
                click.echo(f"  hint: {one['hint']}")
    return 1 if any("error" in one for one in results) else 0


@command.command()
@click.argument("question", required=False)
@home_option
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 1000), help="Results for each question.")
@click.option(
    "--batch", type=click.Path(path_type=Path), help="A file with a question on each line (or JSON with `question`)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --batch one line for each question.")
def search(question: str | None, home: Path | None, limit: int, batch: Path | None, as_json: bool) -> int:
    """Find the units that answer a question."""
    from roadworthy.cli.output import plain, print_json
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.shown import hit_json

    if (question is None) == (batch is None):
        raise click.UsageError("give a question, or --batch FILE")
    if batch is None and not (question and question.strip()):
        raise SpecError("an empty question finds nothing", hint='such as: roadworthy doc search "第1024条"')
    with _store(home) as store:
        searcher = _searcher(store, _home(home))
        if batch is not None:
            for line in _questions(batch):
                hits = searcher.search(line, limit=limit)
                if as_json:
                    click.echo(
                        json.dumps(
                            plain({"query": line, "results": [hit_json(hit) for hit in hits]}), ensure_ascii=False
                        )
                    )
                else:
                    click.echo("\n".join([line, *_lines(hits), ""]))
            return 0
        assert question is not None
        hits = searcher.search(question, limit=limit)
    if as_json:
        print_json({"query": question, "results": [hit_json(hit) for hit in hits]})
    else:
        click.echo("\n".join(_lines(hits)) or "nothing is stored yet: roadworthy doc ingest FILE")
    return 0


@command.command("list")
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(home: Path | None, as_json: bool) -> int:
    """List the documents in the store."""
    from roadworthy.cli.output import print_json

    with _store(home) as store:
        documents = store.documents()
    if as_json:
        print_json({"documents": documents})
    else:
        click.echo(
            "\n".join(f"{one.name}  {one.units:,} units, {one.characters:,} characters" for one in documents)
            or "nothing is stored"
        )
    return 0


@command.command()
@click.argument("name")
@home_option
def remove(name: str, home: Path | None) -> int:
    """Delete a document with its units, vectors and comparisons."""
    from roadworthy.core.errors import SpecError

    _need_numpy()
    from roadworthy.adapters.longdoc_index import drop_indexes
    from roadworthy.adapters.longdoc_job import drop_jobs

    with _store(home) as store:
        if not store.remove(name):
            raise SpecError(f"{name!r} is not in the store", hint="`roadworthy doc list` shows what is")
        drop_indexes(_home(home))
        drop_jobs(_home(home), name)
    click.echo(f"removed {name}", err=True)
    return 0


def _home(home: Path | None) -> Path:
    return home or Path.home() / ".roadworthy"


def _need_numpy() -> None:
    import importlib.util

    from roadworthy.core.errors import Unsupported

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        # read when numpy is loaded; for vectors this small a second thread does nothing but wait for the first
        os.environ.setdefault(name, "1")
    if importlib.util.find_spec("numpy") is None:
        raise Unsupported("long documents need numpy", hint="pip install 'roadworthy[longdoc]'")


def _store(home: Path | None) -> DocumentStore:
    _need_numpy()
    from roadworthy.adapters.longdoc_store import DocumentStore

    return DocumentStore(_home(home))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.rglob("*") if one.is_file() and one.suffix.lower() in SUFFIXES)
        else:
            yield path


def _recogniser(home: Path) -> AbstractContextManager[Recogniser | None]:
    """OCR, where there is some."""
    from contextlib import nullcontext

    from roadworthy.adapters.longdoc_read.ocr import Recogniser, engines

    return Recogniser(home / "cache" / "ocr") if engines() else nullcontext()


def _ingest(store: DocumentStore, path: Path, *, no_vectors: bool, recognise: Recognise | None) -> dict[str, object]:
    from roadworthy.adapters.longdoc_ingest import ingest
    from roadworthy.adapters.longdoc_read.values import UnreadableError

    name = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        return {"document": name, "error": error.strerror or str(error)}
    try:
        return ingest(store, name, data, vectors=not no_vectors, recognise=recognise, progress=_progress(name))
    except UnreadableError as error:
        return {"document": name, "error": str(error), "hint": error.hint}


def _progress(name: str) -> Progress | None:
    if not os.isatty(2):
        return None
    every = {"pages": 10, "units embedded": 20}

    def show(what: str, done: int, of: int) -> None:
        if done % every[what] == 0 or done == of:
            click.echo(f"\r{name}: {done:,} of {of:,} {what}" + ("\n" if done == of else ""), err=True, nl=False)

    return show


def _searcher(store: DocumentStore, home: Path) -> Searcher:
    from roadworthy.adapters import embeddings
    from roadworthy.adapters.longdoc_index import open_index
    from roadworthy.longdoc.search import Searcher

    return Searcher(open_index(store, home), store, embeddings.embed_question if embeddings.available() else None)


def _questions(path: Path) -> Iterator[str]:
    from roadworthy.core.errors import ProbeError

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProbeError(f"{path}: {error}", hint="one question a line, in UTF-8") from error
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line) if line.lstrip().startswith("{") else None
        except ValueError:
            record = None
        asked = (record.get("question") or record.get("query")) if isinstance(record, dict) else line.strip()
        yield str(asked)


def _lines(hits: Sequence[Hit]) -> list[str]:
    lines = []
    for number, hit in enumerate(hits, 1):
        unit = hit.stored.unit
        where = " > ".join((*unit.path, unit.label))
        place = f"({hit.stored.document}, {unit.char_start}-{unit.char_end})"
        lines.append(f"{number}. {clean(where)}  {clean(unit.title)}  {place}")
        lines.append(f"   {clean(unit.text)[:160]}")
    return lines
