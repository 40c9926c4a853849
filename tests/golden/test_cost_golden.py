"""The whole cost report at a measured throughput, word for word. `UPDATE_GOLDEN=1 pytest tests/golden` rewrites it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from roadworthy.cli.cost import command

GOLDEN = Path(__file__).resolve().parent / "cost"
RUNS = json.loads((GOLDEN / "runs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RUNS)
def test_the_report_is_as_recorded(name: str, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.json").write_text(json.dumps(RUNS[name]), encoding="utf-8")
    spec = next(path for path in (GOLDEN / f"{name}.yaml", examples / f"{name}.yaml") if path.exists())
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(command, [str(spec), "--measured", "run.json"], standalone_mode=False)
    ours = f"{result.stdout}exit code {result.return_value}\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(ours, encoding="utf-8")
    assert ours == file.read_text(encoding="utf-8")
    assert max(map(len, ours.splitlines())) <= 80
