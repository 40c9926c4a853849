"""Many files take no more memory than a few: documents are let go, clues thinned, counts kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.diagnose import examine as module
from roadworthy.diagnose.examine import Examination, is_log

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


def test_logs_are_told_from_what_probes_read() -> None:
    engine = "\n".join(
        f"(EngineCore pid=7) INFO 11-02 04:11:{at % 60:02d} [loggers.py:1] step {at}" for at in range(200)
    )
    access = "\n".join(
        f"2026-11-02T04:11:09Z session={at % 5} worker=w{at % 3} cached={at} prompt=100" for at in range(200)
    )
    scrape = "\n".join(f'vllm:num_requests_running{{engine="{at}"}} {at}' for at in range(200))
    assert is_log(engine)
    assert is_log("2026-11-02T04:11:09Z stderr F " + engine)
    assert not is_log(access)
    assert not is_log(scrape)
    assert not is_log("2026-11-02 04:11:09 one line alone\n")


def test_logs_beyond_the_limit_are_scanned_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGS_PROBED_BYTES", 30_000)
    examination = Examination.new()
    log = "".join(f"2026-11-02T04:11:{at % 60:02d}Z INFO step {at} done\n" for at in range(300))
    for number in range(9):
        read(examination, f"rank{number}.log", log + XID)
    read(examination, "z.txt", "System clock synchronized: no\n" * 40)
    assert 1 <= len([one for one in examination.documents if one.file.startswith("rank")]) < 9
    assert len({one.lines[0].file for one in examination.book().all("gpu.xid")}) == 9
    assert examination.documents[-1].file == "z.txt"
