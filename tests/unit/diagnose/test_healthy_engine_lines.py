"""What a healthy vLLM prints, warnings included, is no cause: its own sources hold every line that it can print."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roadworthy.diagnose.examine import examine

HARMLESS = ("warning", "warning_once")
TRANSFERS = ("kv_transfer", "ec_transfer")
"""Folders whose warnings are about transfers that did fail: those lines may be blamed."""

SERVING = (
    'INFO:     Application startup complete.\nINFO:     127.0.0.1:41230 - "POST /v1/completions HTTP/1.1" 200 OK\n'
)


def engine_folder() -> Path:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed")
    return Path(found.origin).parent


def literal(node: ast.expr) -> str:
    """The text of a message's first argument; what it fills in is the number 3."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "3" for part in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return literal(left) + literal(right)
    return ""


def messages(path: Path) -> Iterator[str]:
    text = path.read_text()
    if ".warning" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in HARMLESS:
            said = re.sub(r"%[-\d.]*[sdrfx]", "3", literal(node.args[0]) if node.args else "").replace("\n", " ")
            yield f"(EngineCore_DP0 pid=80) WARNING 05-11 10:00:41 [{path.name}:{node.lineno}] {said}\n"


def test_no_line_of_a_healthy_engine_is_a_cause() -> None:
    folder = engine_folder()
    files = [path for path in sorted(folder.rglob("*.py")) if not set(path.parts) & set(TRANSFERS)]
    read = 0
    for path in files:
        if lines := list(messages(path)):
            read += len(lines)
            _, judged = examine({"engine.log": "".join(lines) + SERVING})
            blamed = [(one.code, one.evidence[0].text) for one in judged.findings]
            assert not blamed, f"{path.relative_to(folder)}: {blamed}"
    assert read > 500
