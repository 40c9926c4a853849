#!/usr/bin/env python3
"""Write the flags and environment variables of vLLM into the catalog: extract_flags.py [VERSION…] [--check]

0.32.0 is the installed engine (`make vllm`). 0.33.0 is the published wheel, downloaded without its requirements and
unpacked into build/vllm-0.33.0; its own parser runs on a stand-in node of eight H100s (scripts/vllm_probe), without
CUDA. With --check nothing is written and a difference is an error. Exit 3: the engine is not here.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CATALOG = ROOT / "src" / "roadworthy" / "catalog" / "flags"
VERSIONS = ("0.32.0", "0.33.0")


class NotHere(Exception):
    """The engine of that version cannot be had on this machine."""


def installed_version() -> str | None:
    try:
        return importlib.metadata.version("vllm").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def unpacked_wheel(version: str) -> Path:
    """The folder of the published wheel's Python files; downloaded and unpacked unless it is there."""
    folder = ROOT / "build" / f"vllm-{version}"
    if (folder / "vllm" / "__init__.py").is_file():
        return folder
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix=".vllm-wheel-") as scratch:
        print(f"downloading the wheel of vllm {version} (336 MB)", file=sys.stderr)
        command = [
            sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
            "--only-binary", ":all:", "--dest", scratch, f"vllm=={version}",
        ]  # fmt: skip
        done = subprocess.run(command, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            raise NotHere(f"vllm {version}: the wheel cannot be downloaded")
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheels[0]) as wheel:
            for member in wheel.infolist():
                if member.filename.endswith((".py", ".json", ".txt", "METADATA", "RECORD", "WHEEL", ".yaml", ".jinja")):
                    wheel.extract(member, unpacked)
        unpacked.rename(folder)
    return folder


def wheel_argument(version: str) -> list[str]:
    """What the probe is given to import that version: nothing for the installed one."""
    if installed_version() == version:
        return []
    if installed_version() is None:
        raise NotHere("no vLLM is installed: its requirements are needed to run any version's parser (make vllm)")
    return [str(unpacked_wheel(version))]


def extract(version: str) -> dict[str, Any]:
    """Flags and environment variables of ``version``, from its own code."""
    probe = ROOT / "scripts" / "vllm_probe" / "dump.py"
    command = [sys.executable, str(probe), *wheel_argument(version)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"vllm {version}: its parser did not build:\n{done.stderr[-4000:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    if document["version"] != version:
        raise NotHere(f"vllm {version}: found {document['version']} instead")
    return document


def stable_text(document: dict[str, Any]) -> str:
    """JSON with one flag or variable a line, sorted, so that two versions compare line by line."""
    parts = [f'"engine": {json.dumps(document["engine"])}', f'"version": {json.dumps(document["version"])}']
    for name in ("flags", "environment"):
        lines = [
            f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(document[name].items())
        ]
        parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def differences(committed: str, fresh: str) -> list[str]:
    before, after = set(committed.splitlines()), set(fresh.splitlines())
    return [f"- {line[:160]}" for line in sorted(before - after)] + [
        f"+ {line[:160]}" for line in sorted(after - before)
    ]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    arguments.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    given = arguments.parse_args()
    code = 0
    for version in given.versions:
        path = CATALOG / f"vllm-{version}.json"
        try:
            fresh = stable_text(extract(version))
        except NotHere as reason:
            print(f"error: {reason}", file=sys.stderr)
            return 3
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed == fresh:
            print(f"vllm {version}: as committed", file=sys.stderr)
        elif given.check:
            print(f"vllm {version}: {path.relative_to(ROOT)} is not what the engine has", file=sys.stderr)
            print("\n".join(differences(committed, fresh)[:40]), file=sys.stderr)
            code = 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(fresh, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
