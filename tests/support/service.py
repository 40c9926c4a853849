"""Whole commands as processes: started, read through their ready file, interrupted as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

START_LIMIT_S = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running `up` or `gateway`, and what its ready file says."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def data_url(self) -> str:
        return str(self.ready["data_url"])

    @property
    def admin_url(self) -> str:
        return str(self.ready["admin_url"])

    @property
    def key(self) -> str:
        return str(self.ready["tenants"][0]["key"])

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C, then exit code and standard error."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def roadworthy(*arguments: str) -> list[str]:
    """The command line of the installed program."""
    return [sys.executable, "-m", "roadworthy", *arguments]


@contextmanager
def serving(tmp_path: Path, *arguments: str) -> Iterator[Service]:
    """Run `roadworthy ARGUMENTS` until it is ready; killed at the end if the test has not stopped it."""
    ready_file = tmp_path / "ready.json"
    command = roadworthy(*arguments, "--ready-file", str(ready_file))
    if arguments[0] == "up":
        command += ["--log-folder", str(tmp_path / "logs")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not ready_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    pytest.fail(f"{' '.join(command)}: not ready\n{process.communicate()[1][-4000:]}")
                time.sleep(0.05)
            yield Service(process=process, ready=json.loads(ready_file.read_text()))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
