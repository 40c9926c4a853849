"""Many files take no more memory than a few: documents are let go, clues thinned, counts kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose import examine as module
from roadworthy.diagnose.examine import Examination

if TYPE_CHECKING:
    import pytest

XID = "[771.120] NVRM: Xid (PCI:0000:dd:00): 79, pid=1, GPU has fallen off the bus.\n"


def read(examination: Examination, name: str, text: str) -> None:
    scan = examination.scan(name)
    scan.feed(text.encode())
    examination.finished(scan, text)


def test_documents_beyond_the_limit_are_probed_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENTS_MOST_BYTES", 5_000)
    examination = Examination.new()
    for number in range(50):
        read(examination, f"n{number}.txt", "System clock synchronized: no\n" * 40)
    assert sum(len(one.text) for one in examination.documents) <= 5_000
    assert len(examination.book().all("clock.unsynchronised")) >= 50


def test_clues_of_further_files_are_thinned_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLUES_KEPT_WHOLE", 100)
    examination = Examination.new()
    for number in range(20):
        read(examination, f"rank{number}.log", XID * 150)
    later = [one for one in examination.book().all("gpu.xid") if one.lines[0].file == "rank19.log"]
    assert len(later) == 2 * module.THINNED_TO
    assert later[0].count == 150
    assert [later[0].lines[0].number, later[-1].lines[0].number] == [1, 150]
