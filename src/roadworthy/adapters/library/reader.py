"""The process that reads one document: told on stdin what to read, it tells its progress on stdout, in lines of JSON.

It is a process of its own so that a file which crashes a parser, or eats memory, or is cancelled, takes nothing with
it. It ends with whoever started it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from roadworthy.adapters.embeddings import numpy_on_one_core
from roadworthy.adapters.processes import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

NICENESS = 10
"""Whoever relays tokens goes first."""

MOST_NOTES = 50
MOST_TOLD_A_DOCUMENT = 2000
"""Steps of progress that are told, of however many there are."""


def main(told: TextIO = sys.stdin, out: TextIO = sys.stdout) -> None:
    end_with_parent()
    task = json.loads(told.read())
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (task["memory_bytes"], task["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold the document's text
    numpy_on_one_core()
    os.environ["TMPDIR"] = task["work"]
    _say(out, read(task, out))


def read(task: Mapping[str, Any], out: TextIO) -> dict[str, Any]:
    """``{"read": ...}`` or ``{"unreadable": why, "hint": what to do}``."""
    from roadworthy.adapters.longdoc_index import open_index
    from roadworthy.adapters.longdoc_ingest import ingest
    from roadworthy.adapters.longdoc_read.ocr import open_recogniser
    from roadworthy.adapters.longdoc_read.values import UnreadableError
    from roadworthy.adapters.longdoc_store import DocumentStore

    home, work = Path(task["store"]), Path(task["work"])
    try:
        with open_recogniser(work / "ocr") as recogniser, DocumentStore(home) as store:
            data, told = Path(task["source"]).read_bytes(), _Progress(out).tell
            recognise = recogniser.pages if recogniser is not None else None
            found = ingest(store, task["name"], data, vectors=task["vectors"], recognise=recognise, progress=told)
            if found["outcome"] == "unchanged":  # stored, and whoever asked for it died before it heard of that
                store.remove(task["name"])
                found = ingest(store, task["name"], data, vectors=task["vectors"], recognise=recognise, progress=told)
            if task["index"]:
                open_index(store, home)
    except UnreadableError as error:
        return {"unreadable": str(error), "hint": error.hint}
    except MemoryError:
        return {"unreadable": "it takes more memory than a document may", "hint": "split it"}
    return {"read": {**found, "notes": list(found.get("notes", ()))[:MOST_NOTES]}}  # type: ignore[call-overload]


class _Progress:
    """Tells of some of the steps."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def tell(self, what: str, done: int, of: int) -> None:
        if done == of or done % max(1, of // MOST_TOLD_A_DOCUMENT) == 0:
            _say(self._out, {"what": what, "done": done, "of": of})


def _say(out: TextIO, value: Mapping[str, Any]) -> None:
    print(json.dumps(value), file=out, flush=True)
