"""Ctrl-C while programs are asked: the command ends at once, and so do they."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from support.threaded_engine import eventually

if TYPE_CHECKING:
    from pathlib import Path


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_interrupt_ends_what_was_asked(tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.part\nmv {tmp_path}/pid.part {tmp_path}/pid\nsleep 600\n"
    )
    (tmp_path / "kubectl").chmod(0o755)
    keep = tmp_path / "kept"
    process = subprocess.Popen(
        [sys.executable, "-m", "roadworthy", "diagnose", "--kube", "app=x", "--keep", str(keep)],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        eventually((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode not in (0, 1)
        assert b"Traceback" not in errors
        eventually(lambda: gone(pid))
    finally:
        process.kill()
        process.wait()
