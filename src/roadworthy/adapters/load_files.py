"""Results of earlier runs, ours or those of ``vllm bench serve --save-detailed``, read for comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roadworthy.adapters.files import read_text
from roadworthy.bench.compare import Measured
from roadworthy.core.errors import SpecError

MAX_RESULT_BYTES = 2**30
_COLUMNS = ("ttfts", "output_lens", "input_lens", "errors")


def read_result(path: Path) -> Measured:
    """The requests of the run in ``path``.

    Raises:
        SpecError: it is no result, or one without its requests.
        ProbeError: it cannot be read.
    """
    text = read_text(path, what="the result of a run", limit_bytes=MAX_RESULT_BYTES)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SpecError(f"{path}: not JSON: {error}", hint="wanted what `bench --out FILE` wrote") from None
    if not isinstance(document, dict):
        raise SpecError(f"{path}: {type(document).__name__}, wanted the result of a run")
    missing = [name for name in _COLUMNS if not isinstance(document.get(name), list)]
    if missing:
        raise SpecError(
            f"{path}: no {missing[0]} in it, so that single requests cannot be compared",
            hint="write results with `bench --out FILE`, `bench --json --detail`, or vllm's --save-detailed",
        )
    lengths = {len(document[name]) for name in _COLUMNS}
    if len(lengths) > 1 or lengths == {0}:
        raise SpecError(f"{path}: lists of {', '.join(map(str, sorted(lengths)))} requests, wanted one length from 1")
    try:
        return _measured(path, document)
    except (TypeError, ValueError, IndexError) as error:
        raise SpecError(f"{path}: not the result of a run: {error}", hint="is it an edited file?") from None


def _measured(path: Path, document: dict[str, Any]) -> Measured:
    ttfts_s = [float(value) for value in document["ttfts"]]
    rate = document.get("request_rate")
    return Measured.of_columns(
        path.name,
        model=str(document.get("model_id", "")),
        start_s=[float(value) for value in document.get("start_times") or range(len(ttfts_s))],
        input_tokens=[int(value) for value in document["input_lens"]],
        output_tokens=[int(value) for value in document["output_lens"]],
        ttft_s=ttfts_s,
        e2e_s=_latencies_s(document, ttfts_s),
        errors=[str(value or "") for value in document["errors"]],
        asked_rate_per_s=float(rate) if isinstance(rate, (int, float)) and rate > 0 else None,
        salt=str(document.get("salt", "")),
    )


def _latencies_s(document: dict[str, Any], ttfts_s: list[float]) -> list[float]:
    """Older results have no latencies; first token and gaps add up to them."""
    if document.get("latencies"):
        return [float(value) for value in document["latencies"]]
    return [ttft_s + sum(map(float, gaps)) for ttft_s, gaps in zip(ttfts_s, document["itls"], strict=True)]
