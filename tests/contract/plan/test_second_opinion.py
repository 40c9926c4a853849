"""The real aiconfigurator-core, where the extra `perf` is installed (593 MB): it answers as the kept answers say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from roadworthy.adapters.second_opinion import PACKAGE, SecondOpinion
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from support.scripts import load_script

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="aiconfigurator-core is not installed (the extra perf, 593 MB)"
)
KEPT = json.loads((Path(__file__).resolve().parents[2] / "data" / "second_opinion.json").read_text())["tpot"]


@pytest.mark.parametrize("row", KEPT[::5], ids=lambda row: f"{row['model']}-{row['gpu']}-{row['sequences']}")
def test_it_answers_as_kept(row: dict[str, object]) -> None:
    script = load_script("second_opinion")
    model = model_by_id(row["model"], weights=row["weights"])  # type: ignore[arg-type]
    found = SecondOpinion(model, gpu_by_name(str(row["gpu"])), weights=row["weights"]).tpot(  # type: ignore[arg-type]
        script.layout_of(model, row["tp"], row["dp"], row["ep"]), sequences=row["sequences"],  # type: ignore[arg-type]
        prompt_tokens=row["prompt_tokens"], output_tokens=row["output_tokens"], batched_tokens=8192,  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.refused == row["refused"]
    assert found.tpot_s == (None if row["tpot_s"] is None else pytest.approx(row["tpot_s"], rel=1e-3))
