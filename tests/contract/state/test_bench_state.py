"""The script that measures stores: starts them, measures all, says what it found. What it finds is the machine's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.stores import redis_program, valkey_program

SCRIPT = Path(__file__).parents[3] / "scripts" / "bench-state"


def test_every_store_is_measured_and_the_numbers_are_kept(tmp_path: Path) -> None:
    redis_program(), valkey_program()  # named skips where they are not installed
    out = tmp_path / "state.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--requests", "40", "--rounds", "1", "--out", str(out)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["met"] == (done.returncode == 0)
    assert set(found["stores"]) == {"in process", "sqlite", "postgresql", "redis", "valkey"}
    assert all(one["admit_p50_s"] > 0 and one["admitted_and_settled_per_s"] > 0 for one in found["stores"].values())
    assert found["stores"]["in process"]["admit_p50_s"] < found["stores"]["redis"]["admit_p50_s"]
    assert len(done.stdout.splitlines()) == 6
