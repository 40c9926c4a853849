"""Say which `vllm serve` lines vLLM's own parser and validators accept: accept.py [UNPACKED_WHEEL] < LINES

Reads one JSON list of ``{"arguments": ["serve", MODEL, …], "config": PATH_OF_A_CONFIG_JSON, "gpus": 8}`` and prints one
list of ``{"accepted": bool, "message": str}`` in the same order. MODEL is replaced by a folder that holds that
config.json and a stand-in tokenizer, since no weights are here; a line without ``config`` meets the parser only, the
others run in a child of their own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import serve_parser
import stand_in_gpu

MESSAGE_LENGTH = 400
REASONING_MARKS = ("<think>", "</think>", "<|open|>", "<|close|>", "<|sep|>")


def checked(lines: list[dict[str, Any]], parsers: Any) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="vllm-probe-") as scratch:
        os.environ["VLLM_CACHE_ROOT"] = scratch
        return [(in_child if "config" in line else one)(line, Path(scratch), parsers) for line in lines]


def in_child(line: dict[str, Any], scratch: Path, parsers: Any) -> dict[str, Any]:
    """The outcome, with whatever the line does to the process kept to a child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        outcome = one(line, scratch, parsers)
        os.write(write, json.dumps(outcome).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"accepted": False, "message": "the process ended"}


def one(line: dict[str, Any], scratch: Path, parsers: Any) -> dict[str, Any]:
    noise = io.StringIO()
    try:
        with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
            args = parsed(line["arguments"], parsers)
            if "config" in line:
                args.model = args.model_tag = str(checkpoint(Path(line["config"]), scratch))
                build(args, line.get("gpus", stand_in_gpu.GPUS))
    except SystemExit:  # argparse printed why
        said = [text for text in noise.getvalue().splitlines() if "error:" in text]
        return {"accepted": False, "message": short(said[-1] if said else noise.getvalue(), scratch)}
    except BaseException as error:
        return {"accepted": False, "message": short(f"{type(error).__name__}: {error}", scratch)}
    return {"accepted": True, "message": ""}


def parsed(arguments: list[str], parsers: Any) -> Any:
    """The line through the parser and the checks that follow it at once."""
    whole, _, command = parsers
    if arguments[:1] != ["serve"]:
        raise ValueError("the line does not begin with `serve`")
    args = whole.parse_args(arguments)
    command.validate(args)
    if args.headless and args.api_server_count:
        raise ValueError(f"--api-server-count={args.api_server_count} cannot be used with --headless")
    return args


def build(args: Any, gpus: int) -> None:
    """What ``vllm serve`` does from there up to the first worker."""
    import vllm
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.executor import Executor

    stand_in_gpu.set_gpus(gpus)
    engine = vllm.AsyncEngineArgs.from_cli_args(args)
    config = engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER, headless=bool(args.headless))
    if args.headless and engine.data_parallel_hybrid_lb:
        raise ValueError("data_parallel_hybrid_lb is not applicable in headless mode")
    Executor.get_class(config)


def checkpoint(config: Path, scratch: Path) -> Path:
    """A folder with ``config`` as its config.json, and what a tokenizer needs to be found."""
    folder = scratch / re.sub(r"\W+", "-", config.stem if config.stem != "config" else config.parent.name)
    if not folder.is_dir():
        folder.mkdir()
        shutil.copy(config, folder / "config.json")
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
        (folder / "preprocessor_config.json").write_text(json.dumps(image_processor(json.loads(config.read_text()))))
    return folder


def tokenizer() -> dict[str, Any]:
    """Printable ASCII by the letter, and the marks of the reasoning parsers as tokens of their own."""
    letters = {chr(code): code - 32 for code in range(32, 127)}
    special = [
        {
            "id": len(letters) + index, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
        for index, mark in enumerate(REASONING_MARKS)
    ]  # fmt: skip
    model = {"type": "BPE", "vocab": letters, "merges": [], "fuse_unk": False, "byte_fallback": False}
    return {"version": "1.0", "added_tokens": special, "model": model}


def architectures(config: Path) -> list[str]:
    return list(json.loads(config.read_text()).get("architectures", ()))


def image_processor(config: dict[str, Any]) -> dict[str, Any]:
    """Enough of a vision model's preprocessor for its class to be built; the limits in it matter to no validator."""
    vision = config.get("vision_config") or {}
    merge = vision.get("merge_kernel_size", [2, 2])
    media = {
        "patch_size": vision.get("patch_size", 14), "merge_kernel_size": merge, "temporal_merge_kernel_size": 4,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "in_patch_limit": 4096, "patch_limit_on_one_side": 512,
        "in_patch_limit_each_frame": None, "in_patch_limit_video": None, "fixed_output_tokens": None,
    }  # fmt: skip
    return {"media_proc_cfg": media}


def short(message: str, scratch: Path) -> str:
    """The message on one line, without the names of this run's folders."""
    text = " ".join(message.replace(str(scratch), "").split())
    return text[:MESSAGE_LENGTH]


def main() -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    lines = json.load(sys.stdin)
    stand_in_gpu.install(wheel=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    stdout, sys.stdout = sys.stdout, sys.stderr
    parsers = serve_parser.build()
    import vllm.model_executor.models.registry as registry

    registry._run_in_subprocess = lambda inspect: inspect()  # the stand-ins are in this process only
    for architecture in {name for line in lines if "config" in line for name in architectures(Path(line["config"]))}:
        with contextlib.suppress(Exception):  # a line that needs it says what is wrong
            registry.ModelRegistry.models[architecture].inspect_model_cls()
    json.dump(checked(lines, parsers), stdout)


if __name__ == "__main__":
    main()
