"""A second opinion on decode speed from `aiconfigurator-core` (extra ``perf``, Apache-2.0, NVIDIA).

It adds up kernel times that it measured for vLLM 0.24, which is another way to the same number than our roofline. Asked
for the time per output token alone: its memory, its time to first token and its pipelines (which assume that layers
divide evenly) are not to be trusted, so a layout with stages is not asked about.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.catalog.models import known_models
from roadworthy.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import Layout
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Weights

PACKAGE, VERSION, TABLES = "aiconfigurator_core", "0.12.0", "0.24.0"
"""The distribution is `aiconfigurator-core`; its vLLM tables are those of 0.24.0."""
SYSTEMS = {
    "H100-80GB": "h100_sxm", "H200-141GB": "h200_sxm", "B200-180GB": "b200_sxm",
}  # fmt: skip
"""Its name of each GPU of the catalog that it has tables of vLLM 0.24 for."""
_QUANTISED: dict[Weights, tuple[str | None, str | None]] = {
    "native": (None, None), "fp8": ("fp8_block", "fp8_block"), "bf16": ("bfloat16", "bfloat16"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """``tpot_s`` None where it has none; ``refused`` then says why, in words for the operator."""

    tpot_s: float | None = None
    refused: str = ""


def require_second_opinion() -> None:
    """Raise Unsupported, with what to install, unless the package is here in the version that was tried."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise Unsupported(
            "a second opinion needs aiconfigurator-core, not installed here (593 MB, x86-64)",
            hint="pip install 'roadworthy[perf]'",
        )
    from importlib.metadata import version

    found = version("aiconfigurator-core")
    if found != VERSION:
        raise Unsupported(
            f"aiconfigurator-core {found} is installed, the adapter knows {VERSION}",
            hint=f"pip install aiconfigurator-core=={VERSION}",
        )


class SecondOpinion:
    """What the other estimator says of one model on one kind of GPU.

    Raises:
        Unsupported: not installed, or another version.
    """

    def __init__(self, model: ModelSpec, gpu: Gpu, *, weights: Weights = "native") -> None:
        require_second_opinion()
        self._gpu, self._model, self._weights = gpu, model, weights
        self._repository = next((known.repository for known in known_models() if known.id == model.id), "")
        self._system = SYSTEMS.get(gpu.id, "")

    def tpot(
        self, layout: Layout, *, sequences: int, prompt_tokens: int, output_tokens: int, batched_tokens: int,
        cached_tokens: int = 0,
    ) -> Opinion:  # fmt: skip
        """The mean time per output token with ``sequences`` in flight on each data-parallel rank.

        Args:
            prompt_tokens, output_tokens: means of one request.
            batched_tokens: token budget of a step.
            cached_tokens: of the mean prompt, found in the prefix cache.
        """
        refused = self._why_not_asked(layout)
        if refused:
            return Opinion(refused=refused)
        with _quiet():
            try:
                asked = {
                    "batch_size": max(1, sequences), "isl": max(1, prompt_tokens), "osl": max(2, output_tokens),
                    "prefix": min(cached_tokens, max(0, prompt_tokens - 1)),
                }  # fmt: skip
                milliseconds = self._asked(layout, asked, batched_tokens)
            except Exception as error:  # its errors share no root; every one means that it has no answer
                return Opinion(refused=self._told(error))
        return Opinion(tpot_s=milliseconds / 1e3)

    def _why_not_asked(self, layout: Layout) -> str:
        if layout.pp > 1:
            return "its pipelines assume that layers divide evenly: not asked"
        if not self._system:
            return f"it has no tables of vLLM {TABLES} for {self._gpu.id}"
        if not self._repository or not _ships(self._repository):
            return f"it does not know {self._model.id}"
        return ""

    def _told(self, error: Exception) -> str:
        if type(error).__name__ == "PerfDataNotAvailableError" or "data missing" in str(error):
            what = f"{self._model.id}'s {'native ' if self._weights == 'native' else ''}weights"
            if self._weights == "native" and self._model.family == "deepseek_v4":
                return (
                    f"it refuses {self._model.id} with native FP4 experts on {self._gpu.id}: it measured no such "
                    "kernel there; with model.weights: fp8 it has an opinion, of another checkpoint"
                )
            return f"it measured no kernels for {what} on {self._gpu.id} in this split"
        return f"it fails: {type(error).__name__}: {str(error).splitlines()[0][:160]}"

    def _asked(self, layout: Layout, asked: Mapping[str, int], batched_tokens: int) -> float:
        from importlib import import_module

        sdk = f"{PACKAGE}.sdk"
        config, common = import_module(f"{sdk}.config"), import_module(f"{sdk}.common")
        linear, experts = _QUANTISED[self._weights]
        moe: dict[str, Any] = {}
        if any(hasattr(layer.mlp, "experts") for layer in self._model.layers):
            moe = {"moe_ep_size": layout.ep, "moe_tp_size": 1 if layout.ep > 1 else layout.tp * layout.dp}
        wanted = config.ModelConfig(
            tp_size=layout.tp,
            pp_size=1,
            attention_dp_size=layout.dp,
            gemm_quant_mode=common.GEMMQuantMode[linear] if linear else None,
            moe_quant_mode=common.MoEQuantMode[experts] if experts else None,
            **moe,
        )
        model = import_module(f"{sdk}.models").get_model(self._repository, wanted, "vllm")
        database = import_module(f"{sdk}.perf_database").get_database(self._system, "vllm", TABLES)
        backend = import_module(f"{sdk}.backends.factory").get_backend("vllm")
        summary = backend.run_agg(model, database, config.RuntimeConfig(**asked), ctx_tokens=batched_tokens)
        return float(summary.get_summary_df().iloc[0]["tpot"])


def _ships(repository: str) -> bool:
    """Whether the wheel has the model's config; for any other it would ask the network."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None  # the package is required before
    folders = spec.submodule_search_locations or ()
    name = repository.replace("/", "--") + "_config.json"
    return any((Path(folder) / "model_configs" / name).is_file() for folder in folders)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Its progress and its warnings of tables taken from other engines go nowhere; our output stays one document."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
