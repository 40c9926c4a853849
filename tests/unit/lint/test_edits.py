"""What mending does to the lines around a setting: statements stay statements, remarks stay, nothing else moves."""

# ruff: noqa: E501 - a case is one line, before and after

from __future__ import annotations

import pytest

from roadworthy.lint.fix import fix_text

CASES = [
    pytest.param("if true; then\n  export NCCL_ALGO=Tree  # tree\nfi\n", "if true; then\n  :  # tree\nfi\n", id="sole statement"),
    pytest.param("A=(\n  --swap-space 4  # old\n  --max-num-seqs 4\n)\nvllm serve m \"${A[@]}\"\n", "A=(\n  # old\n  --max-num-seqs 4\n)\nvllm serve m \"${A[@]}\"\n", id="remark in an array"),
    pytest.param('[ -n "$X" ] && export NCCL_ALGO=Tree\n', '[ -n "$X" ] && :\n', id="behind and"),
    pytest.param("export NCCL_ALGO=Tree && vllm serve m\n", ": && vllm serve m\n", id="before and"),
    pytest.param("for i in 1 2; do export NCCL_PROTO=Simple; done\n", "for i in 1 2; do :; done\n", id="loop in a line"),
    pytest.param("foo() { export NCCL_ALGO=Tree; }\n", "foo() { :; }\n", id="function in a line"),
    pytest.param("case $x in\n  a) export NCCL_ALGO=Tree ;;\nesac\n", "case $x in\n  a) : ;;\nesac\n", id="case"),
    pytest.param("export A=1 \\\n  NCCL_ALGO=Tree \\\n  B=2\n", "export A=1 \\\n  B=2\n", id="export over lines"),
    pytest.param("export NCCL_ALGO=Tree NCCL_PROTO=Simple\necho hi\n", "echo hi\n", id="export of nothing else"),
    pytest.param("NCCL_ALGO=Tree vllm serve m\n", "vllm serve m\n", id="prefix"),
    pytest.param("docker run -e NCCL_ALGO=Tree \\\n  -e A=1 i vllm serve m --swap-space 3\n", "docker run \\\n  -e A=1 i vllm serve m\n", id="docker"),
    pytest.param("vllm serve m \\\n  --port 1 \\\n  --swap-space 4\necho\n", "vllm serve m \\\n  --port 1\necho\n", id="last of a continued line"),
    pytest.param("vllm serve m --swap-space=4 --port 1", "vllm serve m --port 1", id="no line end"),
    pytest.param("E=\"--swap-space 4 --port 1\"\nvllm serve m $E\n", "E=\"--port 1\"\nvllm serve m $E\n", id="first in quotes"),
    pytest.param("E='--swap-space 4'\nvllm serve m $E\n", "E=''\nvllm serve m $E\n", id="alone in quotes"),
    pytest.param("numactl -N 0 -m 0 \\\n  vllm serve m\n", "vllm serve m\n", id="wrapper"),
    pytest.param("FROM x\nENV NCCL_ALGO=Tree \\\n    NCCL_PROTO=Simple\nRUN a\n", "FROM x\nRUN a\n", id="ENV of nothing else"),
    pytest.param("[Service]\nEnvironment=\"NCCL_ALGO=Tree\" \"A=1\"\n", "[Service]\nEnvironment=\"A=1\"\n", id="unit"),
    pytest.param("args: [\"--swap-space\", \"4\", \"--port\", \"1\"]\nimage: vllm/vllm-openai:v0.33.0\n", "args: [\"--port\", \"1\"]\nimage: vllm/vllm-openai:v0.33.0\n", id="flow list"),
    pytest.param("args: [\"--port\", \"1\", \"--swap-space\", \"4\"]\nimage: vllm/vllm-openai:v0.33.0\n", "args: [\"--port\", \"1\"]\nimage: vllm/vllm-openai:v0.33.0\n", id="end of a flow list"),
    pytest.param("env:\n  - name: NCCL_ALGO\n    value: Tree\nimage: x\n", "image: x\n", id="the only variable of a list"),
    pytest.param("env:\n  # why\n  - name: NCCL_ALGO  # fewer hops\n    value: Tree\n  - name: A\n    value: b\n", "env:\n  # why\n  # fewer hops\n  - name: A\n    value: b\n", id="remark in a list"),
    pytest.param("environment:\n  NCCL_ALGO: Tree\n  A: b\n", "environment:\n  A: b\n", id="mapping"),
    pytest.param("env: [{name: NCCL_ALGO, value: Tree}, {name: A, value: b}]\n", "env: [{name: A, value: b}]\n", id="flow mappings"),
    pytest.param("model: m\nswap_space: 4\nport: 1\n", "model: m\nport: 1\n", id="configuration file"),
    pytest.param("model: m\ncuda-graph-max-batch-size: 64\nport: 1\n", "model: m\nmax-cudagraph-capture-size: 64\nport: 1\n", id="renamed key"),
    pytest.param("vllm serve m --cuda_graph_max_batch_size=64\n", "vllm serve m --max-cudagraph-capture-size=64\n", id="renamed flag"),
    pytest.param("export RAY_num_heartbeats_timeout=30 # slow\n", "export RAY_health_check_failure_threshold=10 # slow\n", id="renamed variable"),
    pytest.param("python3 -u -m vllm.entrypoints.openai.api_server --model m --port 1\n", "vllm serve m --port 1\n", id="entry point"),
    pytest.param("NCCL_SOCKET_IFNAME=\"eth0\" vllm serve m\n", "NCCL_SOCKET_IFNAME=\"=eth0\" vllm serve m\n", id="value in quotes"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_a_setting_goes_and_its_surroundings_stay(text: str, wanted: str) -> None:
    assert fix_text(text)[0] == wanted


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_with_the_line_ends_of_windows(text: str, wanted: str) -> None:
    assert fix_text(text.replace("\n", "\r\n"))[0] == wanted.replace("\n", "\r\n")
