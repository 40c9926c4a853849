"""Every table of a document, read by all who know its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.diagnose.probes import tables_machines, tables_serving
from roadworthy.diagnose.probes.tables import records, tables
from roadworthy.diagnose.probes.tables_serving import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, Document

READERS = (*tables_serving.READERS, *tables_machines.READERS)


def table_clues(document: Document) -> Iterator[Clue]:
    """What the tables of a document say, by every reader that knows their columns."""
    for table in tables(document):
        for reader in READERS:
            for clue in reader(document, table):  # a row means nothing without the names of its columns
                yield replace(clue, lines=(clue.lines[0], table.header, *clue.lines[1:]))
    for table in records(document):
        yield from sessions(document, table)


PROBES = (table_clues,)
