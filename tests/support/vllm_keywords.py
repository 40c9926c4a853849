"""How real vLLM takes keyword arguments, split as Ray Serve LLM splits them: a program of its own, for its imports.

Reads a JSON list of mappings and prints the problems of each.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}


def problems(keywords: dict[str, Any]) -> list[str]:
    """What vLLM's own argument classes have against ``keywords``; empty when they take them."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    frontend = {field.name for field in dataclasses.fields(FrontendArgs)}
    engine = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    unknown = [f"unknown: {name}" for name in keywords if name not in frontend | engine]
    if unknown:
        return unknown
    try:
        AsyncEngineArgs(model="m", **{name: value for name, value in keywords.items() if name in engine - frontend})
        FrontendArgs(**{name: value for name, value in keywords.items() if name in frontend})
    except (TypeError, ValueError) as error:
        return [f"{type(error).__name__}: {error}"]
    return []


if __name__ == "__main__":
    print("ANSWERS " + json.dumps([problems(case) for case in json.load(sys.stdin)]))
