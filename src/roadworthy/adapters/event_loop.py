"""What every process with many sockets sets up first: the fast loop, and all the descriptors it may have."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def raise_descriptor_limit() -> None:
    """Take all the file descriptors that the system lets us have: every stream in flight holds one."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some containers refuse; then fewer streams fit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
