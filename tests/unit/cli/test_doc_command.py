"""`roadworthy doc`: ingest, search by number and words, batches, removal that removes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from roadworthy.cli import doc
from roadworthy.core.errors import SpecError

WORDS = ("自然人享有隐私权。", "合同依法成立。", "所有权受保护。", "婚姻自由。", "继承开始。", "侵权应当赔偿。")
LAW = "## 第一编　总则\n\n" + "\n\n".join(
    f"第{number}条　{words}" for number, words in zip("一二三四五六", WORDS, strict=True)
)


def run(*arguments: str | Path) -> int:
    code = doc.command.main([str(one) for one in arguments], standalone_mode=False)
    assert isinstance(code, int)
    return code


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "law.md").write_text(LAW)
    assert run("ingest", tmp_path / "law.md", "--home", tmp_path / "home", "--no-vectors") == 0
    return tmp_path / "home"


def results(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found = json.loads(capsys.readouterr().out)["results"]
    assert isinstance(found, list)
    return found


def test_a_number_and_words_find_their_article(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("search", "第4条", "--home", home, "--json") == 0
    first = results(capsys)[0]
    assert (first["section"], first["named"], first["path"]) == ("第四条", True, ["第一编　总则"])
    assert LAW[first["start"] : first["end"]] == first["text"]
    assert run("search", "隐私", "--home", home, "--json", "--limit", "1") == 0
    (only,) = results(capsys)
    assert only["section"] == "第一条"
    assert set(only) >= {"document", "section", "path", "page", "start", "end", "score", "text"}


def test_a_batch_answers_line_by_line_in_order(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "第2条"}\n\n继承\n')
    capsys.readouterr()
    assert run("search", "--batch", tmp_path / "q.jsonl", "--home", home, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["query"] for line in lines] == ["第2条", "继承"]
    assert [line["results"][0]["section"] for line in lines] == ["第二条", "第五条"]


def test_what_has_not_changed_is_not_read_again_and_a_change_replaces(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run("ingest", tmp_path / "law.md", "--home", home, "--no-vectors", "--json")
    assert json.loads(capsys.readouterr().out)["documents"][0]["outcome"] == "unchanged"
    (tmp_path / "law.md").write_text(LAW.replace("隐私权", "名誉权"))
    run("ingest", tmp_path / "law.md", "--home", home, "--no-vectors", "--json")
    assert json.loads(capsys.readouterr().out)["documents"][0]["outcome"] == "stored"
    run("search", "名誉", "--home", home, "--json", "--limit", "1")
    assert results(capsys)[0]["section"] == "第一条"


def test_a_removed_document_is_gone_from_the_file_too(home: Path, tmp_path: Path) -> None:
    assert run("remove", str(tmp_path / "law.md"), "--home", home) == 0
    with pytest.raises(SpecError):
        run("remove", str(tmp_path / "law.md"), "--home", home)
    assert "隐私权".encode() not in b"".join(path.read_bytes() for path in home.iterdir())


def test_a_bad_file_is_named_and_the_others_are_stored(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.txt").write_bytes("Für die Größe gilt: übrige Öle.".encode("latin-1"))
    (tmp_path / "empty.txt").touch()
    (tmp_path / "more.md").write_text(LAW)
    capsys.readouterr()
    assert (
        run(
            "ingest",
            *(tmp_path / name for name in ("latin.txt", "empty.txt", "more.md", "none.txt")),
            "--home",
            home,
            "--no-vectors",
            "--json",
        )
        == 1
    )
    told = json.loads(capsys.readouterr().out)["documents"]
    assert ["error" in one for one in told] == [True, True, False, True]
    assert "iconv" in told[0]["hint"]


def test_wrong_use_is_told(home: Path) -> None:
    with pytest.raises(click.UsageError):
        run("search", "--home", home)
    with pytest.raises(SpecError):
        run("search", " ", "--home", home)
