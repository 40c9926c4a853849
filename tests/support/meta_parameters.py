"""Counts the parameters of models that transformers builds on the meta device: a program of its own, for its imports.

Reads JSON from standard input, a list of config.json contents, and prints one count for each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def main() -> None:
    print("ANSWERS " + json.dumps([parameters(config) for config in json.load(sys.stdin)]))


def parameters(config: dict[str, Any]) -> int:
    import torch
    import transformers

    # quantised classes would count packed bytes; remote code is not run
    fields = {name: value for name, value in config.items() if name not in ("quantization_config", "auto_map")}
    read = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(read)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    main()
