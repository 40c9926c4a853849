"""A parser whose process ends over some files, as a fault in a library does; in a module that a worker can import."""

from __future__ import annotations

import os
import signal

from roadworthy.adapters.longdoc_parse import Parsed, ParseTask, parse


def dies(task: ParseTask) -> Parsed:
    if b"deadly" in task.path.read_bytes():
        os.kill(os.getpid(), signal.SIGKILL)
    return parse(task)
