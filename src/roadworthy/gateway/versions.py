"""Which engine versions should not stand behind a gateway that strangers reach."""

from __future__ import annotations

import json
import re

LEAST = (0, 32, 0)
ADVISORIES = "CVE-2026-115911 and CVE-2026-115918, chat templates that a request can steer"

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def version_in(body: bytes) -> str:
    """The version in an engine's answer to ``/version``; empty when it says none."""
    try:
        version = json.loads(body)["version"]
    except (ValueError, KeyError, TypeError):
        return ""
    return version[:100] if isinstance(version, str) else ""


def version_warning(version: str) -> str:
    """What is wrong with running ``version``; empty when nothing is known against it, or it is no release's number."""
    found = _NUMBERS.match(version)
    if found is None or tuple(int(part or 0) for part in found.groups()) >= LEAST:
        return ""
    return f"vLLM {version} is below {'.'.join(map(str, LEAST))}, which mends {ADVISORIES}"
