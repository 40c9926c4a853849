"""Real faults on this machine, diagnosed from what they print. The slower ones: scripts/provoke_faults.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "provoke_faults.py"


def provoked(name: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), name], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.engine
@pytest.mark.e2e
@pytest.mark.parametrize("name", ["unknown-flag", "gloo-peer-dead"])
def test_a_fault_of_the_real_engine_or_of_torch_is_named(name: str) -> None:
    provoked(name)


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["small-shared-memory", "full-shared-memory"])
def test_a_shared_memory_that_is_small_or_full_is_named(name: str) -> None:
    tried = (
        subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    if os.geteuid() != 0 or tried is None or tried.returncode:
        pytest.skip("mount namespaces are not allowed here")
    provoked(name)


@pytest.mark.e2e
def test_a_low_limit_of_locked_memory_is_named() -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("prlimit", "setpriv"))):
        pytest.skip("another user's limits cannot be set here")
    provoked("low-memlock")
