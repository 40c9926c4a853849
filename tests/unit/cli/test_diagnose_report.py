"""The incident in each form, and that --redact leaves nothing in any of them: evidence, file names, notes, the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roadworthy.cli import diagnose

XID = "NVRM: Xid (PCI:0000:dd:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PRIVATE = (
    "trade-legal-7",
    "trade-legal-8",
    "acme-desk",
    "hunter2",
    "192.0.2.17",
    "My PIN",
    "jdoe",
    "oracle9.bank.example",
)


@pytest.fixture
def incident(tmp_path: Path) -> Path:
    folder = tmp_path / "incident"
    for name, text in {
        "hosts/trade-legal-7/journal.log": f"2026-11-02T04:11:09+0000 trade-legal-7 kernel: {XID}\n",
        "pods/acme-desk/llm-0/engine.log": (
            "2026-11-02T04:11:10Z (Worker_TP3 pid=7) ERROR 11-02 12:11:10 [core.py:842] EngineCore encountered a "
            "fatal error. --api-key hunter2 in /home/jdoe/llm, prompt: 'My PIN'\n"
            "2026-11-02T04:11:12Z [rank0]:[E1102 04:11:12 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught "
            "collective operation timeout, peer trade-legal-8 (192.0.2.17) oracle9.bank.example\n"
        ),
        "pods/acme-desk/trade-legal-8.bin": "\0\1\2" * 100,
        "could-not-look.json": json.dumps([{"what": "trade-legal-8", "reason": "ssh: connect to 192.0.2.17 failed"}]),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert diagnose.command.main([str(one) for one in arguments], standalone_mode=False) == 1
    return capsys.readouterr().out


@pytest.mark.parametrize("form", [(), ("--markdown",), ("--json",), ("--html",)])
def test_a_redacted_report_holds_nothing_private_in_any_form(
    incident: Path, form: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    asked = ("--html", page) if form == ("--html",) else form
    plain = shown(capsys, incident, *asked) + (page.read_text() if page.exists() else "")
    assert sum(name in plain for name in PRIVATE) >= 3
    redacted = shown(capsys, incident, *asked, "--redact") + (page.read_text() if page.exists() else "")
    assert [name for name in PRIVATE if name in redacted] == []
    assert "gpu-fell-off-bus" in redacted
    assert "host-" in redacted


def test_the_report_names_risk_reach_and_the_order_of_things(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, incident)
    assert "Risk of the remedy:" in text
    assert "How far it reached:" in text
    timeline = [line for line in text.splitlines() if line.strip(" *").startswith("2026-11-02")]
    assert "journal.log:1" in timeline[0]
    assert timeline[0].lstrip().startswith("*")
    assert any("04:11:10" in line and "rank 3" in line for line in timeline)
    markdown = shown(capsys, incident, "--markdown")
    assert "## Timeline" in markdown
    assert "**Risk of the remedy.**" in markdown
    document = json.loads(shown(capsys, incident, "--json"))
    assert document["actions"][0]["risk"]
    assert document["reach"]["hosts"]


def test_a_log_cannot_steer_the_terminal_nor_become_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_text(f"[7.1] {XID} \x1b]0;owned\x07\x1b[2J\x9b31m `code` | <b>bold</b>\n")
    assert not {"\x1b", "\x07", "\x9b"} & set(shown(capsys, tmp_path))
    page = tmp_path / "p.html"
    markdown = shown(capsys, tmp_path, "--markdown", "--html", page)
    assert not {"\x1b", "\x07", "\x9b"} & set(markdown)
    assert "<b>bold" not in page.read_text()
