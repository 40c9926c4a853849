"""Certificates for tests of TLS, made by openssl when a test asks for them: none is in the repository."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """PEM files."""

    cert: Path
    key: Path


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(folder: Path, name: str = "ca") -> Certificate:
    """One that signs others."""
    made = Certificate(cert=folder / f"{name}.pem", key=folder / f"{name}.key")
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign",
        "-keyout", str(made.key), "-out", str(made.cert),
    )  # fmt: skip
    return made


def signed(folder: Path, by: Certificate, name: str) -> Certificate:
    """A certificate for 127.0.0.1, as a server or as a client."""
    made = Certificate(cert=folder / f"{name}.pem", key=folder / f"{name}.key")
    request = folder / f"{name}.csr"
    openssl(
        "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(request),
    )  # fmt: skip
    openssl(
        "x509", "-req", "-in", str(request), "-CA", str(by.cert), "-CAkey", str(by.key), "-CAcreateserial",
        "-days", "2", "-copy_extensions", "copy", "-out", str(made.cert),
    )  # fmt: skip
    return made
