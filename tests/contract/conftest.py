"""Real servers for contract tests. One vLLM process serves a whole run; tests that kill an engine start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.vllm_process import RunningEngine, running_vllm

ENGINES_SPOKEN_TO = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def vllm_engine(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[RunningEngine]:
    """Real vLLM on the CPU, serving the tiny random-weight model as ``tiny``."""
    arguments = ["--kv-cache-memory-bytes", str(256 * 2**20), "--max-num-queued-reqs", "64"]
    with running_vllm(tmp_path_factory.mktemp("vllm"), arguments) as engine:
        line = f"vLLM {engine.version} at {engine.url} (real engine, CPU)"
        pytestconfig.stash.setdefault(ENGINES_SPOKEN_TO, []).append(line)
        yield engine


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the engines that the run spoke to, so that a reader knows which version the contract holds for."""
    for line in config.stash.get(ENGINES_SPOKEN_TO, []):
        terminalreporter.write_line(f"engine: {line}")
