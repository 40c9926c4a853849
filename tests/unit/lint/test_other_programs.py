"""Flags and words of other programs are none of vLLM's business, however much they look like it."""

from __future__ import annotations

import pytest

from roadworthy.lint.run import lint_text

SILENT = [
    'PIP_ARGS="-r requirements.txt --index-url https://mirror.local/simple"\npip install $PIP_ARGS vllm\n',
    "docker run --device /dev/fuse --task x img\n",
    "tar -cf a.tar -n 4 x\nvllm serve m\n",
    "curl --max-time 5 http://llm:8000/health\n",
    "services:\n  db:\n    image: postgres:17\n    command: [postgres, -c, max_connections=200, --device, x]\n",
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: exporter\n      image: x/dcgm-exporter:4\n"
    "      args: [--collectors, /etc/x.csv, -r, local, --kubernetes]\n",
    "rsync -a --swap-space-file x y\n",
    "echo 'ray stop --force is not for shared hosts'\n",
    "# ray stop --force\n# export NCCL_ALGO=Tree\n# vllm serve m --swap-space 4\n",
    "grep -r 'NCCL_ALGO=Tree' /etc\n",
    "sed -i '/ray stop --force/d' start.sh\n",
    "image: vllm:latest_build\n",
    "FROM python:3.13-slim\nRUN pip install ray_utils array\n",
    "kubectl exec llm-0 -- ray status\n",
    "vllm-router --routing-logic session --session-key x-session-id\n",
    "torchrun --nproc-per-node 8 --nnodes 2 --node-rank 0 train.py --device cuda --task lm\n",
    "export RAY_HEAD_IP=10.0.0.1\nray start --address=$RAY_HEAD_IP:6379\n",
    "export VLLM_IMAGE=registry.local/llm:1\ndocker run $VLLM_IMAGE\n",
]


@pytest.mark.parametrize("text", SILENT)
def test_nothing_is_said(text: str) -> None:
    assert [(problem.line, problem.rule, problem.setting) for problem in lint_text(text).problems] == []
