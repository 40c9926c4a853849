"""What `roadworthy flags` prints, word for word. `UPDATE_GOLDEN=1 pytest tests/golden` rewrites it after a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from roadworthy.cli.flags import command

GOLDEN = Path(__file__).resolve().parent / "flags"
CASES = {
    "explained": ["--max-num-seqs", "-O", "--eplb-config.num_redundant_experts", "--disable-eplb"],
    "variables": ["NCCL_ALGO", "NCCL_IB_TC", "VLLM_HOST_IP", "RAY_health_check_timeout_ms", "CUDA_VISIBLE_DEVICES"],
    "list": ["--match", "parallel"],
    "difference": ["--diff", "0.32.0", "0.33.0"],
    "json": ["--json", "--moe-backend", "--swap-space", "NCCL_SOCKET_IFNAME"],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_output_is_as_recorded(name: str) -> None:
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"})
    result = runner.invoke(command, CASES[name])
    ended = "" if result.exception is None else f"\n{type(result.exception).__name__}: {result.exception}"
    ours = "\n".join(line.rstrip() for line in result.stdout.splitlines()) + f"{ended}\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(ours, encoding="utf-8")
    assert ours == file.read_text(encoding="utf-8")
