"""Where the data port and the documents' process meet: a socket that nobody but their user reaches."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from roadworthy.core.errors import ProbeError

PATHS = "/v1/documents"
"""Every path of documents begins with it."""

TENANT_HEADER = "x-roadworthy-tenant"
"""Who asks, as the data port found out. Never taken from a client: its headers are not passed on."""


def socket_of(home: Path) -> Path:
    """The same for every process that serves ``home``; short, since a socket's path may take 107 bytes only."""
    digest = hashlib.sha256(str(home.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"roadworthy-{os.getuid()}-{digest}" / "documents.sock"


def private_folder(path: Path) -> Path:
    """``path``, made for this user alone. Raises ProbeError where it is somebody else's, or open to others."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror or error}", hint="the gateway needs to write there") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ProbeError(
            f"{path}: not a folder of this user's alone", hint="remove it; it is made again as it has to be"
        )
    return path
