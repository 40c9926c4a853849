#!/usr/bin/env python3
"""Hold every rendered `vllm serve` line against vLLM 0.33.0 itself and record the outcome; --check only compares.

The published wheel's own parser and configuration validators run on a stand-in node (scripts/vllm_probe), with the real
config.json files that ROADWORTHY_TEST_DATA holds. The outcome goes to tests/data/vllm-0.33.0-lines.json, a digest for
each line: `make test` has no such wheel, so it compares the lines of today with that file, and a line that is not in it
fails there until this is run again; only lines that are new are asked. With --check all are asked and nothing is
written. Exit 1: a line is refused, or the file is stale.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from extract_flags import NotHere, wheel_argument  # noqa: E402

from support.vllm_lines import emitted_lines, write_tiny_config  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.vllm_lines import EmittedLine

VERSION = "0.33.0"
RECORD = ROOT / "tests" / "data" / f"vllm-{VERSION}-lines.json"


def outcomes(lines: Sequence[EmittedLine], configs: Path, wheel: Sequence[str]) -> list[dict[str, Any]]:
    """What the engine says of each line."""
    with tempfile.TemporaryDirectory() as scratch:
        tiny = write_tiny_config(Path(scratch))
        asked = json.dumps([line.probe(configs, tiny) for line in lines])
        command = [sys.executable, str(ROOT / "scripts" / "vllm_probe" / "accept.py"), *wheel]
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: the probe did not run:\n{done.stderr[-4000:]}")
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def recorded() -> dict[str, dict[str, Any]]:
    """The outcome of earlier runs, by digest."""
    found: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return found


def text_of(entries: dict[str, dict[str, Any]]) -> str:
    """One line of JSON for each rendered line, sorted by digest."""
    rows = [f"{json.dumps(digest)}: {json.dumps(entry)}" for digest, entry in sorted(entries.items())]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> int:
    data = os.environ.get("ROADWORTHY_TEST_DATA")
    configs = Path(data or "") / "facts" / "configs"
    if not data or not configs.is_dir():
        print("error: ROADWORTHY_TEST_DATA names no folder with facts/configs", file=sys.stderr)
        return 3
    try:
        wheel = wheel_argument(VERSION)
    except NotHere as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 3
    lines, before = emitted_lines(VERSION, configs), recorded()
    asked = [line for line in lines if "--check" in sys.argv or not before.get(line.digest, {}).get("accepted")]
    answers = outcomes(asked, configs, wheel) if asked else []
    entries = {line.digest: before[line.digest] for line in lines if line.digest in before}
    for line, answer in zip(asked, answers, strict=True):
        entries[line.digest] = {"config": line.config, **answer}
        if not answer["accepted"]:
            print(f"refused: vllm {' '.join(line.arguments)}\n  {answer['message']}", file=sys.stderr)
    refused = [digest for digest, entry in entries.items() if not entry["accepted"]]
    stale = entries != before
    if stale and "--check" not in sys.argv:
        RECORD.write_text(text_of(entries), encoding="utf-8")
        print(f"wrote {RECORD.relative_to(ROOT)}", file=sys.stderr)
    print(f"{len(lines)} lines, {len(asked)} asked now, {len(refused)} refused by vLLM {VERSION}", file=sys.stderr)
    return 1 if refused or (stale and "--check" in sys.argv) else 0


if __name__ == "__main__":
    sys.exit(main())
