"""Expected values of vLLM's own classes and planner (tests/data/model_memory.json), one test case a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
MEMORY: dict[str, Any] = json.loads((DATA / "model_memory.json").read_text(encoding="utf-8"))
MEASURED: dict[str, Any] = json.loads((DATA / "gpu_measured.json").read_text(encoding="utf-8"))

OTHER_BACKEND = "FLASHINFER_MLA_SPARSE_DSV4"
"""A V4 attention backend of SM100 whose FP8 pages and unpadded sinks are not modelled."""

ROWS = {
    "layout_row": [row for row in MEMORY["layouts"] if row["runnable"]],
    "refused_row": [row for row in MEMORY["layouts"] if not row["runnable"]],
    "sequence_row": MEMORY["kv_per_sequence_tp8"],
    "allocator_row": MEMORY["allocator_runs"],
    "draft_row": MEMORY["mtp_per_rank"]["rows"],
    "feasibility_row": MEMORY["feasibility"],
    "scenario": MEMORY["brief_scenarios"],
    "component": [(name, part) for name, model in MEMORY["models"].items() for part in model["components"]],
    "model_name": list(MEMORY["models"]),
}


def _name(row: Any) -> str:
    if not isinstance(row, dict):
        return "-".join(row) if isinstance(row, tuple) else str(row)
    if "name" in row:
        return str(row["name"])
    words = [row["model"], row.get("gpu"), row.get("layout")]
    words += [f"{key}{row[key]}" for key in ("gpus", "tp", "pp", "dp", "tokens", "prompt") if key in row]
    words += ["ep"] if row.get("expert_parallel") else []
    words += [str(row[key]) for key in ("kv_cache_dtype", "prefix_caching", "mamba_ssm_cache_dtype") if key in row]
    return "-".join(str(word) for word in words if word)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, rows in ROWS.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, rows, ids=[_name(row) for row in rows])


@pytest.fixture(scope="session")
def memory() -> dict[str, Any]:
    return MEMORY


@pytest.fixture(scope="session")
def measured() -> dict[str, Any]:
    return MEASURED
