"""Builds vLLM's own model classes on the meta device and counts their bytes: a program of its own, for its imports.

Reads JSON from standard input, a list of config.json contents, and prints parameter and buffer bytes of one rank for
each. No kernel runs, so the MXFP4 experts are given the backend that vLLM tries first on Hopper.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    with tempfile.TemporaryDirectory() as folder:
        configs = json.load(sys.stdin)
        made = [config_of(config, Path(folder) / str(index)) for index, config in enumerate(configs)]
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(made[0]):
            init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
            initialize_model_parallel(1, 1)
        answers = [weights_of(config) for config in made]
    print("ANSWERS " + json.dumps(answers))


def config_of(config: dict[str, Any], folder: Path) -> Any:
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, VllmConfig

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return VllmConfig(
        model_config=ModelConfig(model=str(folder), skip_tokenizer_init=True, max_model_len=4096, dtype="bfloat16"),
        cache_config=CacheConfig(block_size=128),
        device_config=DeviceConfig("cpu"),
    )


def weights_of(config: Any) -> dict[str, int]:
    import torch
    import vllm.model_executor.layers.quantization.mxfp4 as mxfp4
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
    from vllm.model_executor.models.registry import ModelRegistry

    mxfp4.select_mxfp4_moe_backend = lambda moe: (Mxfp4MoeBackend.TRITON, None)
    names = config.model_config.architectures
    model_class, _ = ModelRegistry.resolve_model_cls(names, model_config=config.model_config)
    torch.set_default_dtype(torch.bfloat16)
    with set_current_vllm_config(config), torch.device("meta"):
        model = model_class(vllm_config=config)
    torch.set_default_dtype(torch.float32)
    return {
        "parameter_bytes": sum(each.numel() * each.element_size() for each in model.parameters()),
        "buffer_bytes": sum(each.numel() * each.element_size() for each in model.buffers()),
    }


if __name__ == "__main__":
    main()
