"""`scripts/bench-admission` runs and says what it should; what it measures is for a quiet machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "bench-admission"


def test_the_last_line_is_json_with_every_number() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--tenants", "10", "--keys", "40", "--waiting", "50", "--rounds", "1200"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["tenants"], found["keys"], found["waiting"]) == (10, 40, 50)
    assert found["met"] is (done.returncode == 0)
    parts = ("key", "admission", "settle", "crowded_admission", "crowded_settle", "crowded_tick")
    assert all(found[f"{name}_us"] > 0 for name in parts)
