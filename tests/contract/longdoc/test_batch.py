"""`doc batch`: every clause against a playbook, kept as it goes, taken up again where it stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import hang, plain
from roadworthy.adapters.longdoc_job import JobFile
from roadworthy.cli import doc
from roadworthy.core.errors import SpecError
from support.longdoc import LAW, NAME, Reply, lines, speaking, store_with
from support.threaded_engine import after, eventually, threaded_engine

PLAYBOOK = """
name: Our positions
checks:
  - {id: penalty, topic: Penalties, wanted: no reduction, severity: high}
  - {id: privacy, topic: Privacy, wanted: protected}
  - {id: insurance, topic: Insurance, wanted: "a policy of 1 <million>", severity: critical}
  - {id: force, topic: Force majeure, wanted: none, required: false}
"""


def judging(name: str, prompt: str) -> str:
    """Finds two clauses, quotes one rightly, and one with words that are nowhere."""
    assert name == "compare"
    clause = prompt.rsplit("<passage", 1)[1]
    if "违约金" in clause:
        quote = "人民法院可以根据当事人的请求予以适当减少"
        return lines({"check": "penalty", "verdict": "deviates", "why": "may be reduced", "quote": quote})
    if "隐私权" in clause:
        return lines({"check": "privacy", "verdict": "meets", "why": "said", "quote": "隐私权不受侵犯，神圣不可剥夺"})
    return '{"clause": "bears on none"}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store_with(tmp_path)
    (tmp_path / "pb.yaml").write_text(PLAYBOOK)
    return tmp_path


def batch(home: Path, url: str, *more: str) -> int:
    code = doc.command.main(
        ["batch", str(home / "pb.yaml"), "--home", str(home), "--url", url, "--model", "m", "--document", "law.md",
         "--budget", "8000", *more], standalone_mode=False,
    )  # fmt: skip
    assert isinstance(code, int)
    return code


def table(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_risk_table_says_what_was_found_and_what_is_missing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(speaking(judging)) as engine:
        assert batch(home, engine.url, "--json", "--html", str(home / "risk.html")) == 1
        assert len([one for one in engine.requests if one.method == "POST"]) == 6
    told = table(capsys)
    assert [(one["check"], one["status"], one["risk"]) for one in told["risks"]] == [
        ("insurance", "missing", 12), ("penalty", "deviates", 9), ("privacy", "unverified", 4), ("force", "absent", 0),
    ]  # fmt: skip
    (judgement,) = told["risks"][1]["judgements"]
    (citation,) = judgement["citations"]
    assert (judgement["section"], citation["document"]) == ("第三条", NAME)
    assert LAW[citation["start"] : citation["end"]] == citation["quote"]
    page = (home / "risk.html").read_text()
    assert "may be reduced" in page
    assert "1 &lt;million&gt;" in page


def test_a_person_reads_the_table(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(speaking(judging)) as engine:
        assert batch(home, engine.url) == 1
    out = capsys.readouterr().out
    assert "Insurance: no clause bears on it" in out
    assert "(not verified)" in out


def test_a_job_goes_on_where_it_stopped(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    down = plain(400, b'{"error": {"message": "the disk is on fire"}}')
    with threaded_engine(after(4, speaking(judging), down)) as engine:
        assert batch(home, engine.url, "--parallel", "1", "--json") == 3
    told = table(capsys)
    assert len(told["unread"]) == 2
    assert "the disk is on fire" in told["unread"][0]["reason"]
    assert {one["check"]: one["status"] for one in told["risks"]}["insurance"] == "unread"
    with threaded_engine(speaking(judging)) as engine:
        assert batch(home, engine.url, "--json") == 1
        assert len([one for one in engine.requests if one.method == "POST"]) == 2
    told = table(capsys)
    assert (told["resumed"], told["unread"]) == (4, [])
    with threaded_engine(speaking(judging)) as engine:
        assert batch(home, engine.url, "--json") == 1
        assert engine.requests == []


def test_an_endpoint_that_is_down_is_not_asked_for_every_clause(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_with(home, LAW + "\n\n".join(f"第{one}条　条文在此。" for one in ("七", "八", "九", "十", "十一", "十二")))
    with threaded_engine(plain(400, b"{}")) as engine:
        assert batch(home, engine.url, "--parallel", "1", "--json") == 3
        assert len(engine.requests) == 5
    assert len(table(capsys)["unread"]) == 12


def test_odd_replies_in_a_row_do_not_keep_the_rest_from_being_compared(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_with(home, LAW + "\n\n".join(f"第{one}条　条文在此。" for one in ("七", "八", "九", "十", "十一", "十二")))
    with threaded_engine(after(9, speaking(lambda name, prompt: "Well."), speaking(judging))) as engine:
        assert batch(home, engine.url, "--parallel", "1", "--json") == 3
    assert len(table(capsys)["unread"]) == 9


def test_another_playbook_or_text_is_another_comparison(home: Path) -> None:
    job = ("--job", str(home / "job.jsonl"))
    with threaded_engine(speaking(judging)) as engine:
        batch(home, engine.url, *job)
        store_with(home, LAW.replace("婚姻自由", "婚姻自主"))
        batch(home, engine.url, *job)
        assert len([one for one in engine.requests if one.method == "POST"]) == 7
        (home / "pb.yaml").write_text(PLAYBOOK.replace("no reduction", "any reduction"))
        batch(home, engine.url, *job)
        assert len([one for one in engine.requests if one.method == "POST"]) == 13


@pytest.mark.parametrize(
    "reply", [lambda name, prompt: "I think it is fine.", lambda name, prompt: '{"check": "none"}']
)
def test_a_model_that_does_not_answer_in_the_form_compares_nothing(
    home: Path, reply: Reply, capsys: pytest.CaptureFixture[str]
) -> None:
    with threaded_engine(speaking(reply)) as engine:
        assert batch(home, engine.url, "--json") == 3
    assert {one["status"] for one in table(capsys)["risks"]} == {"unread"}


def test_comparisons_go_with_the_document(home: Path) -> None:
    with threaded_engine(speaking(judging)) as engine:
        batch(home, engine.url)
    assert len(list((home / "jobs").iterdir())) == 1
    doc.command.main(["remove", NAME, "--home", str(home)], standalone_mode=False)
    assert list((home / "jobs").iterdir()) == []


def test_an_interrupted_job_ends_at_once_and_keeps_what_was_done(home: Path) -> None:
    with threaded_engine(after(3, speaking(judging), hang())) as engine:
        process = subprocess.Popen(
            [sys.executable, "-m", "roadworthy", "doc", "batch", str(home / "pb.yaml"), "--home", str(home), "--url",
             engine.url, "--model", "m", "--document", "law.md", "--budget", "8000", "--parallel", "2"],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            eventually(lambda: len(engine.requests) == 5)
            (job,) = (home / "jobs").iterdir()
            eventually(lambda: len(job.read_bytes().splitlines()) == 3)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130
    assert b"Traceback" not in told
    assert len(job.read_bytes().splitlines()) == 3


def test_wrong_playbooks_are_told(home: Path) -> None:
    for text, words in (("checks: [", "YAML"), ("checks: []", "no checks"), ("checks: [{id: a}]", "problems")):
        (home / "pb.yaml").write_text(text)
        with pytest.raises(SpecError, match=words):
            batch(home, "http://127.0.0.1:9")


def test_a_torn_line_is_done_again_and_a_strange_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs" / "job.jsonl"
    with JobFile(path) as job:
        job.add("a", {"x": 1})
        job.add("b", {"x": 2})
        with pytest.raises(SpecError, match="another run"):
            JobFile(path)
    path.write_bytes(path.read_bytes()[:-5])
    with JobFile(path) as job:
        assert job.done == {"a": {"x": 1}}
        job.add("c", {"x": 3})
    with JobFile(path) as job:
        assert list(job.done) == ["a", "c"]
    strange = tmp_path / "notes.txt"
    strange.write_text("my notes\nmore of them\n")
    with pytest.raises(SpecError, match="something else"):
        JobFile(strange)
    assert strange.read_text() == "my notes\nmore of them\n"


def test_a_file_without_line_end_that_is_no_job_is_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / "notes.txt"
    strange.write_text("my notes")
    with pytest.raises(SpecError, match="something else"):
        JobFile(strange)
    assert strange.read_text() == "my notes"
