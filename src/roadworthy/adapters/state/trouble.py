"""What a store that does not answer, is full or is locked is called, with the next step."""

from __future__ import annotations

import re

from roadworthy.core.errors import Temporary

_HINTS = (
    (
        r"database is locked|lock timeout|lock_timeout|LockNotAvailable",
        "another process holds the lock: end it, or wait",
    ),
    (r"disk is full|No space left|DiskFull|could not extend file|disk I/O error", "free space where the state lies"),
    (r"maxmemory", "raise the server's maxmemory: limits are not to be evicted"),
    (r"readonly|read-only", "make the file and its folder writable for this user"),
    (r"unable to open|no such table|does not exist", "the state was moved or deleted: put it back, or start again"),
    (r"malformed|not a database", "the file is damaged: restore it from a backup"),
    (r"[Pp]assword|[Aa]uthenticat|NOAUTH|WRONGPASS", "check user and password in the URL"),
    (r"[Tt]oo many (clients|connections)|remaining connection slots", "raise the server's max_connections"),
)
_HINT = "is the server running, and reachable from this host?"


def trouble(place: str, error: BaseException) -> Temporary:
    """``error`` of a driver at ``place`` (a URL without its password), as one line with a hint."""
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    words = lines[0].partition(" script: ")[0] if lines else type(cause).__name__  # Redis names the script it was in
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, f"{type(cause).__name__} {words}")), _HINT)
    return Temporary(f"{place}: {words}", hint=hint)
