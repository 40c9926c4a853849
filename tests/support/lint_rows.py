"""Every row of the truth table and how linting treats it: files that break it, files that must stay silent, or why no
file can hold it.

A ``Row`` says one of three things. ``false`` are files with ``@@`` in front of the setting that must be reported under
the row's id; ``silent`` are files about the same thing in which the row's rule must not speak. ``docs`` says why the
row names nothing that a file can contain.
"""

# ruff: noqa: E501 - whole files in one string each; a table is read across

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from roadworthy.catalog.truth import truth_rows
from support.lint_shapes import K3, V4

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``flags`` and ``variables`` are false settings that go through every form of :mod:`support.lint_shapes`."""

    flags: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    model: str = V4
    false: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    docs: str = ""
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


def serve(flags: str, model: str = V4) -> str:
    """A short command line; the table's own lines carry more."""
    return f"vllm serve {model} --tensor-parallel-size 8 --max-num-seqs 16 {flags}\n"


def _pod(spec: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: llm\nspec:\n{spec}"


def _deployment(container: str, spec: str = "") -> str:
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: llm\nspec:\n  template:\n    spec:\n"
        f"{spec}      containers:\n{container}"
    )


CLUSTER = """\
apiVersion: ray.io/v1
@kind@kind: RayCluster
metadata:
  name: llm
spec:
  @version@rayVersion: '2.60.0'
  headGroupSpec:
    rayStartParams:
      @gpus@num-gpus: '8'
    template:
      spec:
        @containers@containers:
          - @name@name: ray-head
            @image@image: registry.local/vllm-ray:0.33.0-2.60.0
            env:
              - @env@name: NCCL_DEBUG
                value: WARN
            resources:
              @limits@limits:
                cpu: "64"
                memory: 512Gi
                nvidia.com/gpu: "8"
              requests:
                @memory@memory: 256Gi
                nvidia.com/gpu: "8"
  workerGroupSpecs:
    - groupName: gpu
      replicas: 3
      minReplicas: 3
      maxReplicas: 3
      rayStartParams: {}
      template:
        spec:
          containers:
            - name: ray-worker
              image: registry.local/vllm-ray:0.33.0-2.60.0
              resources:
                limits:
                  cpu: "64"
                  memory: 512Gi
                  nvidia.com/gpu: "8"
"""
"""A cluster as guides have it; ``@name@`` are places, of which one becomes ``@@``."""

GOOD_CLUSTER = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: llm
  labels:
    kueue.x-k8s.io/queue-name: gpus
spec:
  rayVersion: '2.60.0'
  headGroupSpec:
    rayStartParams:
      num-gpus: '8'
    template: &pod
      metadata:
        annotations:
          k8s.v1.cni.cncf.io/networks: rail0,rail1,rail2,rail3,rail4,rail5,rail6,rail7
      spec:
        nodeSelector:
          nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
        containers:
          - name: ray-head
            image: registry.local/vllm-ray:0.33.0-2.60.0
            command: ["/bin/bash", "-c"]
            args:
              - |
                ray start --head --port=6379 --num-gpus=8
                vllm serve deepseek-ai/DeepSeek-V4-Pro \\
                  --distributed-executor-backend ray \\
                  --tensor-parallel-size 8 \\
                  --data-parallel-backend ray \\
                  --data-parallel-size 4 \\
                  --data-parallel-size-local 1 \\
                  --enable-expert-parallel \\
                  --max-num-seqs 64
            env:
              - name: NCCL_SOCKET_IFNAME
                value: "=eth0"
            securityContext:
              capabilities:
                add: [IPC_LOCK]
            startupProbe:
              httpGet: {path: /health, port: 8000}
              periodSeconds: 10
              failureThreshold: 360
            resources:
              limits: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", rdma/ib: "8"}
              requests: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", rdma/ib: "8"}
            volumeMounts:
              - {name: shm, mountPath: /dev/shm}
        volumes:
          - name: shm
            emptyDir: {medium: Memory, sizeLimit: 128Gi}
  workerGroupSpecs:
    - groupName: gpu
      replicas: 3
      minReplicas: 3
      maxReplicas: 3
      rayStartParams: {}
      template:
        metadata:
          annotations:
            k8s.v1.cni.cncf.io/networks: rail0,rail1,rail2,rail3,rail4,rail5,rail6,rail7
        spec:
          containers:
            - name: ray-worker
              image: registry.local/vllm-ray:0.33.0-2.60.0
              env:
                - name: NCCL_SOCKET_IFNAME
                  value: "=eth0"
              securityContext:
                capabilities:
                  add: [IPC_LOCK]
              resources:
                limits: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", rdma/ib: "8"}
"""


def cluster(place: str) -> str:
    """The guides' cluster with the mark at ``place``."""
    import re

    return re.sub(r"@(\w+)@", lambda match: "@@" if match.group(1) == place else "", CLUSTER)


SHOW = "no file holds it: it is a statement about how the engine works"

ROWS: dict[str, Row] = {
    # -- vLLM flags
    "vllm.moe-capacity-factor": Row(
        flags=("--moe-capacity-factor 1.25", "--moe_capacity_factor=1.25", "--expert-capacity-factor 1.5"),
        silent=(serve("--max-num-batched-tokens 8192"), "# --moe-capacity-factor 1.25 does not exist\n" + serve("")),
    ),
    "vllm.moe-redundant-experts": Row(
        flags=("--moe-redundant-experts 4", "--num-redundant-experts 4"),
        false=(
            serve("--data-parallel-size 4 --enable-expert-parallel --enable-eplb @@--eplb-config '{\"num_redundant_experts\": 4}'"),
            serve("--data-parallel-size 4 --enable-expert-parallel --enable-eplb @@--eplb-config.num_redundant_experts 4"),
        ),
        silent=(
            serve("--data-parallel-size 4 --enable-expert-parallel --enable-eplb --eplb-config '{\"num_redundant_experts\": 32}'"),
            serve("--data-parallel-size 2 --enable-expert-parallel --enable-eplb --eplb-config.num_redundant_experts 16"),
            serve("--enable-expert-parallel --enable-eplb --eplb-config '{\"num_redundant_experts\": 8}'"),
        ),
    ),
    "vllm.moe-async-all-to-all": Row(
        flags=("--moe-async-all-to-all",),
        silent=(serve("--enable-expert-parallel --enable-dbo --all2all-backend deepep_low_latency"),),
    ),
    "vllm.enable-expert-parallel": Row(silent=(serve("--enable-expert-parallel"), serve("-ep"), serve("--no-enable-expert-parallel"))),
    "vllm.topology-tp8-pp2-ep2": Row(
        flags=("--expert-parallel-size 2", "--ep-size 2"),
        false=(
            f"from vllm import LLM\n\nllm = LLM({V4!r}, tensor_parallel_size=8, @@expert_parallel_size=2)\n",
            f"model: {V4}\ntensor-parallel-size: 8\n@@expert-parallel-size: 2\n",
        ),
        silent=(serve("--pipeline-parallel-size 2 --data-parallel-size 2 --enable-expert-parallel --nnodes 4 --node-rank 0"),),
    ),
    "vllm.pp-on-v4": Row(
        flags=("--pipeline-parallel-size 4",),
        silent=(serve("--pipeline-parallel-size 4 --nnodes 4 --node-rank 0", K3), serve("--data-parallel-size 4 --nnodes 4"), serve("--pipeline-parallel-size 1")),
    ),
    "vllm.tp-limit-v4": Row(
        false=(
            f"vllm serve {V4} @@--tensor-parallel-size 32 --nnodes 4 --node-rank 0\n",
            f"vllm serve {V4} --nnodes 4 \\\n  @@-tp 32\n",
            f"vllm serve {V4} @@--tensor-parallel-size 12\n",
            f"model: {V4}\n@@tensor-parallel-size: 32\n",
            "vllm serve $MODEL @@--tensor-parallel-size 32 --nnodes 4 --node-rank 0\n",
        ),
        silent=(
            f"vllm serve {V4} --tensor-parallel-size 16 --enable-expert-parallel --nnodes 2 --node-rank 1 --headless\n",
            *(f"vllm serve {V4} --tensor-parallel-size {tp}\n" for tp in (1, 2, 4, 8)),
            f"vllm serve {K3} --tensor-parallel-size 32 --enable-expert-parallel --nnodes 4\n",
        ),
    ),
    "vllm.tp-limit-k3": Row(
        false=(
            f"vllm serve {K3} @@--tensor-parallel-size 5\n",
            f"vllm serve {K3} --nnodes 2 @@--tensor-parallel-size 16\n",
            f"vllm serve {K3} --nnodes 4 --node-rank 0 \\\n  @@--tensor-parallel-size=32\n",
        ),
        silent=(
            f"vllm serve {K3} --nnodes 2 --tensor-parallel-size 16 --enable-expert-parallel\n",
            f"vllm serve {K3} --tensor-parallel-size 8\n",
            f"vllm serve {V4} --tensor-parallel-size 16 --nnodes 2\n",
        ),
    ),
    "vllm.cuda-graph-max-batch-size": Row(
        flags=("--cuda-graph-max-batch-size 64", "--cuda-graph-sizes 64", "--max-seq-len-to-capture 8192"),
        silent=(serve("--max-cudagraph-capture-size 64"), serve("--cudagraph-capture-sizes 1 2 4 8 16 32 64")),
    ),
    "vllm.max-num-seqs": Row(silent=tuple(f"vllm serve {V4} --tensor-parallel-size 8 --max-num-seqs {n}\n" for n in (16, 128, 256))),
    "vllm.kda-prefill-backend": Row(
        flags=("--kda-prefill-backend triton",),
        model=K3,
        false=(serve("@@--kda-prefill-backend flashinfer # 16 x H200", K3),),
        silent=(serve("--kda-prefill-backend auto", K3), serve("--kda-prefill-backend flashkda", K3), "# on B200\n" + serve("--kda-prefill-backend flashinfer", K3)),
    ),
    "vllm.quantization-fp8": Row(
        flags=("--quantization fp8", "-q fp8"),
        false=(serve("@@--quantization fp8", K3), serve('@@--quantization fp8', '"$MODEL"')),
        silent=(serve("--quantization fp8", "meta-llama/Llama-3.1-70B-Instruct"), serve("--quantization deepseek_v4_fp8")),
    ),
    "vllm.kv-cache-dtype-fp8": Row(
        flags=("--kv-cache-dtype nvfp4", "--kv-cache-dtype bfloat16"),
        false=(serve("@@--kv-cache-dtype fp8", K3), serve("@@--kv-cache-dtype fp8", "$MODEL"), "# H200\n" + serve("@@--kv-cache-dtype fp8", K3)),
        silent=(serve("--kv-cache-dtype fp8"), serve("--kv-cache-dtype auto"), serve("--kv-cache-dtype auto", K3), serve("--kv-cache-dtype fp8", "meta-llama/Llama-3.1-8B")),
    ),
    "vllm.fp8-kv-prereq": Row(
        variables=(("NVIDIA_REQUIRE_CUDA", "cuda>=12.2 driver>=525"),),
        false=(
            "need=525.60.13\n".replace("need", "@@need", 1).replace("@@need=", "need=@@"),
            f"apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector:\n    @@nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB\n  containers:\n    - name: v\n      image: vllm/vllm-openai:v0.33.0\n      args: [--model, {V4}]\n",
        ),
        silent=(
            "min_driver=580.65.06\n",
            f"apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector:\n    nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3\n  containers:\n    - name: v\n      image: vllm/vllm-openai:v0.33.0\n      args: [--model, {V4}]\n",
            "export NVIDIA_REQUIRE_CUDA='cuda>=13.0'\n",
        ),
    ),
    "vllm.enable-async-output-proc": Row(
        flags=("--enable-async-output-proc", "--disable-async-output-proc"),
        silent=(serve("--async-scheduling"), serve("--no-async-scheduling")),
    ),
    "vllm.enable-chunked-prefill": Row(
        silent=(serve("--enable-chunked-prefill"), serve("--enable-chunked-prefill", K3), serve("--no-enable-chunked-prefill", "meta-llama/Llama-3.1-8B")),
        false=(serve("@@--no-enable-chunked-prefill", K3),),
    ),
    "vllm.max-num-batched-tokens": Row(silent=(serve("--max-num-batched-tokens 4096"), serve("--max-num-batched-tokens 8192"), serve("--max-num-batched-tokens 8k"))),
    "vllm.disable-log-requests": Row(
        flags=("--disable-log-requests",),
        false=("image=vllm/vllm-openai:v0.32.0\n" + serve("@@--disable-log-requests"), "# vLLM 0.32.0\n" + serve("@@--disable-log-requests")),
        silent=("# vLLM 0.33.0\n" + serve("--disable-log-requests"), serve("--enable-log-requests"), serve("--no-enable-log-requests")),
    ),
    "vllm.distributed-executor-backend-ray": Row(
        flags=("--distributed-executor-backend ray",),
        false=(serve("--nnodes 4 --node-rank 0 @@--distributed-executor-backend ray"), "ray start --head\n" + serve("--nnodes 4 @@--distributed-executor-backend=ray")),
        silent=("ray start --head --port=6379\n" + serve("--distributed-executor-backend ray"), serve("--distributed-executor-backend mp"), GOOD_CLUSTER),
    ),
    "vllm.nnodes-mp": Row(
        false=(serve("@@--pipeline-parallel-size 4"), serve("--pipeline-parallel-size 4 @@--nnodes 3 --node-rank 0")),
        silent=(
            serve("--pipeline-parallel-size 4 --nnodes 4 --node-rank 0 --master-addr 10.0.0.1 --master-port 29501"),
            serve("--pipeline-parallel-size 4 --nnodes 4 --node-rank 3 --master-addr 10.0.0.1 --master-port 29501 --headless"),
            serve("--pipeline-parallel-size 4 --distributed-executor-backend ray"),
            serve(""),
        ),
    ),
    "vllm.data-parallel-flags": Row(
        false=(
            serve("--data-parallel-size 16 --data-parallel-size-local 8 @@--data-parallel-hybrid-lb --headless"),
            serve("--data-parallel-size 16 @@--data-parallel-hybrid-lb"),
            serve("--data-parallel-size 4 --nnodes 4 @@--data-parallel-backend ray"),
        ),
        silent=(
            serve("--data-parallel-size 4 --nnodes 4 --node-rank 1 --headless"),
            serve("--data-parallel-size 4 --data-parallel-size-local 1 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345 --data-parallel-start-rank 1 --headless"),
            serve("--data-parallel-size 16 --data-parallel-size-local 8 --data-parallel-hybrid-lb"),
            serve("--data-parallel-size 4 --data-parallel-external-lb --nnodes 4 --node-rank 0"),
        ),
    ),
    "vllm.ray-dp": Row(
        false=(serve("--pipeline-parallel-size 2 @@--data-parallel-backend ray --data-parallel-size 2"),),
        silent=(serve("--distributed-executor-backend ray --data-parallel-backend ray --data-parallel-size 4 --data-parallel-size-local 1"),),
    ),
    "vllm.trust-remote-code": Row(
        flags=("--trust-remote-code",),
        silent=(serve("--trust-remote-code --revision 0a1b2c3"), serve("--trust-remote-code", "/models/DeepSeek-V4-Pro"), serve("")),
    ),
    "vllm.dtype-auto": Row(silent=(serve("--dtype auto"), serve("--dtype bfloat16"))),
    "vllm.gpu-memory-utilization": Row(silent=tuple(serve(f"--gpu-memory-utilization {share}") for share in ("0.90", "0.92", "0.95", "0.97"))),
    "vllm.max-model-len": Row(silent=tuple(serve(f"--max-model-len {length}") for length in ("32768", "65536", "131072", "1m", "auto"))),
    "vllm.block-size-256": Row(false=(serve("@@--block-size 16"),), silent=(serve("--block-size 256"), serve("--block-size 16", "meta-llama/Llama-3.1-8B"))),
    "vllm.reasoning-tool-parsers": Row(
        silent=(
            serve("--tokenizer-mode deepseek_v4 --reasoning-parser deepseek_v4 --tool-call-parser deepseek_v4 --enable-auto-tool-choice"),
            serve("--reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --enable-auto-tool-choice", K3),
        )
    ),
    "vllm.moe-backend-hopper": Row(
        flags=("--moe-backend deep_gemm_mega_moe",),
        false=("# H200\n" + serve("@@--moe-backend deep_gemm_mega_moe", K3), serve("@@--moe-backend marlin"), serve("@@--moe-backend marlin", "$MODEL")),
        silent=(serve("--moe-backend marlin", K3), serve("--moe-backend auto"), "# B200\n" + serve("--moe-backend deep_gemm_mega_moe")),
    ),
    "vllm.attention-backend-k3": Row(
        false=(serve("@@--attention-backend FLASHMLA_SPARSE"),),
        silent=(serve("--attention-backend FLASHMLA", K3),),
    ),
    "vllm.disable-custom-all-reduce": Row(
        flags=("--disable-custom-all-reduce",),
        false=(serve("@@--disable-custom-all-reduce", "$MODEL"),),
        silent=("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + serve("--disable-custom-all-reduce"), serve("--disable-custom-all-reduce", K3)),
    ),
    "vllm.prefix-caching-hybrid": Row(
        flags=("--mamba-cache-mode all",),
        model=K3,
        silent=(
            serve("--enable-prefix-caching"),
            serve("--no-enable-prefix-caching", K3),
            serve("--mamba-cache-mode align", K3),
            serve("--mamba-block-size 256", K3),
        ),
    ),
    "vllm.mamba-ssm-cache-dtype": Row(silent=tuple(serve(f"--mamba-ssm-cache-dtype {dtype}", K3) for dtype in ("auto", "float32", "bfloat16"))),
    "vllm.cpu-offload": Row(
        flags=("--gpu-layers 20", "--cpu-only-layers 10", "--num-cpu-layers 30"),
        silent=(serve("--cpu-offload-gb 10"), serve("--offload-backend prefetch --offload-group-size 8 --offload-num-in-group 2")),
    ),
    "vllm.kv-offloading": Row(
        flags=("--kv-cache-offload 64", "--kv-cache-on-cpu", "--cpu-kv-cache-gb 64"),
        false=(serve("--kv-offloading-size 64 @@--kv-offloading-backend lmcache", K3),),
        silent=(serve("--kv-offloading-size 200"), serve("--kv-offloading-size 200 --kv-offloading-backend native", K3), serve("--kv-offloading-size 64 --kv-offloading-backend lmcache")),
    ),
    "vllm.eplb-config": Row(
        silent=(
            serve('--enable-expert-parallel --enable-eplb --eplb-config \'{"window_size":1000,"step_interval":3000,"log_balancedness":true,"use_async":true}\''),
            serve("--enable-expert-parallel --enable-eplb --eplb-config.log_balancedness true"),
        )
    ),
    "vllm.dbo": Row(
        false=(serve("@@--enable-dbo"), serve("--all2all-backend deepep_v2 @@--enable-dbo")),
        silent=tuple(
            serve(f"--enable-dbo --dbo-decode-token-threshold 32 --dbo-prefill-token-threshold 512 --all2all-backend {backend}")
            for backend in ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")
        ),
    ),
    "vllm.all2all-backend": Row(
        flags=("--all2all-backend naive", "--all2all-backend pplx"),
        false=(serve("--data-parallel-size 4 --nnodes 4 @@--all2all-backend flashinfer_nvlink_one_sided"),),
        silent=(serve("--all2all-backend allgather_reducescatter"), serve("--all2all-backend deepep_v2", K3), serve("--all2all-backend flashinfer_nvlink_one_sided")),
    ),
    "vllm.numa-bind": Row(
        false=(
            f"@@numactl --cpunodebind=0 vllm serve {V4} --tensor-parallel-size 8\n",
            f"#!/bin/bash\nexec @@numactl --interleave=all \\\n  python3 -m vllm.entrypoints.openai.api_server --model {V4}\n",
            f"[Service]\nExecStart=@@/usr/bin/numactl -N 1 /usr/bin/vllm serve {V4}\n",
            "ray start --head\n" + serve("--distributed-executor-backend ray @@--numa-bind"),
            f"@@numactl --cpunodebind=0,1 --membind=0,1 vllm serve {V4} --tensor-parallel-size 8\n",
        ),
        silent=(serve("--numa-bind"), serve("--numa-bind --numa-bind-nodes 0 0 0 0 1 1 1 1"), "numactl --hardware\n" + serve("")),
    ),
    "vllm.enable-ep-weight-filter": Row(silent=(serve("--enable-expert-parallel --enable-ep-weight-filter"),)),
    "vllm.speculative": Row(
        false=(
            serve("--pipeline-parallel-size 2 --nnodes 2 @@--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":2}'"),
            serve("@@--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":2}'", K3),
            serve("@@--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":2}'", V4 + "-0813"),
            serve("@@--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":2}'", "$MODEL"),
        ),
        silent=(
            serve("--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":2}'"),
            serve("--speculative-config '{\"method\":\"dspark\",\"num_speculative_tokens\":7}'", V4 + "-0813"),
            serve("--speculative-config '{\"method\":\"ngram\",\"num_speculative_tokens\":4}'", "meta-llama/Llama-3.1-8B"),
        ),
    ),
    "vllm.model-ids": Row(
        false=(
            "vllm serve @@deepseek-ai/DeepSeek-V4-32B --max-model-len 131072\n",
            "services:\n  llm:\n    image: vllm/vllm-openai:v0.33.0\n    command: --model @@DeepSeek-V4-32B\n",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: v\n      image: vllm/vllm-openai:v0.33.0\n      args:\n        - --model\n        - @@deepseek-ai/DeepSeek-V4-32B\n",
            "python3 -m vllm.entrypoints.openai.api_server \\\n  @@--model=deepseek-ai/DeepSeek-V4-32B\n",
        ),
        silent=(f"vllm serve {V4}\n", f"vllm serve {V4}-0813\n", f"vllm serve {K3}\n"),
    ),
    "vllm.admission-and-priority": Row(
        flags=("--tenant-memory-quota 8", "--enable-priority-queue", "--kv-cache-gc-interval 60", "--dynamic-batch-shrink"),
        false=("curl -X POST http://127.0.0.1:8000@@/force_gc\n", "*/5 * * * * curl -sX POST http://llm:8000@@/v1/force_gc\n"),
        silent=(serve("--scheduling-policy priority --max-num-queued-reqs 256 --max-num-queued-tokens 1000000"),),
    ),
    "vllm.fail-on-environ-validation": Row(silent=(serve("--fail-on-environ-validation"),)),
    "vllm.abbreviated-flags": Row(
        flags=("--tensor-parallel 8", "--max-num-batched 4096", "--gpu-memory-util 0.9"),
        silent=(serve("-dp 4"), f"vllm serve {V4} -tp 8 -pp 4 -dp 1 --nnodes 4\n"),
    ),
    "vllm.obsolete-flags": Row(
        flags=(
            "--swap-space 16", "--num-scheduler-steps 8", "--use-v2-block-manager", "--worker-use-ray", "--engine-use-ray", "--device cuda",
            "--guided-decoding-backend xgrammar", "--max-num-partial-prefills 4",
        ),
        silent=("docker run --device /dev/infiniband/uverbs0 --gpus all vllm/vllm-openai:v0.33.0 --model " + V4 + "\n", serve("")),
    ),
    # -- modules and lines
    "entry.api_server": Row(
        false=(
            f"@@python -m vllm.entrypoints.api_server --model {V4}\n".replace("@@python -m ", "python -m @@"),
            f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: v\n      image: x/y:1\n      command:\n        - python3\n        - -m\n        - @@vllm.entrypoints.api_server\n      args: [--model, {V4}]\n",
            f"[Service]\nExecStart=/usr/bin/python3 -m @@vllm.entrypoints.api_server --model {V4}\n",
            f"services:\n  llm:\n    image: x/y:1\n    command: python3 -m @@vllm.entrypoints.api_server --model {V4}\n",
            f'import subprocess\n\nsubprocess.run(["python", "-m", @@"vllm.entrypoints.api_server", "--model", "{V4}"])\n',
        ),
        silent=(serve(""), f"python3 -m vllm.entrypoints.openai.api_server --model {V4}\n"),
    ),
    "entry.openai.api_server": Row(
        false=(
            f"python3 -m @@vllm.entrypoints.openai.api_server --model {V4}\n",
            f"[Service]\nExecStart=/usr/bin/python3 -m @@vllm.entrypoints.openai.api_server --model {V4}\n",
            f"services:\n  llm:\n    image: x/y:1\n    entrypoint: [python3, -m, @@vllm.entrypoints.openai.api_server]\n    command: [--model, {V4}]\n",
        ),
        silent=(serve(""),),
    ),
    "entry.vllm_serve": Row(silent=(f"vllm serve {V4}\n", f"vllm serve {V4} --tensor-parallel-size 16 --headless --nnodes 2 --node-rank 1\n")),
    "bench.module": Row(
        false=(
            "python3 -m @@vllm.benchmarks.benchmark_serving --backend openai-chat --num-prompts 100\n",
            "python3 @@benchmarks/benchmark_serving.py --backend vllm\n",
            "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n        - name: b\n          image: x/y:1\n          command: [python3, -m, @@vllm.benchmarks.benchmark_serving]\n",
        ),
        silent=("vllm bench serve --backend openai-chat --endpoint /v1/chat/completions --num-prompts 100 --request-rate 4 --goodput ttft:2000\n",),
    ),
    # -- environment
    "env.VLLM_HOST_IP": Row(
        variables=(("VLLM_HOST_IP", "192.168.10.101"),),
        false=("export @@VLLM_HOST_IP=$(hostname -I | awk '{print $1}')\n",),
        silent=(
            'export VLLM_HOST_IP="$NODE_IP"\n',
            "export VLLM_HOST_IP=10.0.0.7\n" + serve("--pipeline-parallel-size 4 --nnodes 4 --node-rank 2 --headless"),
            _pod("  containers:\n    - name: v\n      image: x/y:1\n      env:\n        - name: VLLM_HOST_IP\n          valueFrom:\n            fieldRef:\n              fieldPath: status.podIP\n"),
        ),
    ),
    "env.CUDA_VISIBLE_DEVICES": Row(
        variables=(("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3")),
        silent=("CUDA_VISIBLE_DEVICES=0 vllm serve tiny-model\n", "export CUDA_VISIBLE_DEVICES=0,1\nvllm serve Qwen/Qwen3-8B --tensor-parallel-size 2\n", 'export CUDA_VISIBLE_DEVICES="$GPUS"\n'),
    ),
    "env.ray-propagation": Row(
        false=("export @@NCCL_IB_HCA==mlx5_0:1\n" + serve("--distributed-executor-backend ray"), cluster("env")),
        silent=("export NCCL_IB_HCA==mlx5_0:1\nray start --head\n" + serve("--distributed-executor-backend ray"), "export NCCL_IB_HCA==mlx5_0:1\n" + serve(""), GOOD_CLUSTER),
    ),
    "torch.expandable-segments": Row(
        variables=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), ("PYTORCH_ALLOC_CONF", "expandable_segments:True")),
        false=(
            "export @@PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + serve(""),
            "export @@PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + serve("--disable-custom-all-reduce --kv-offloading-size 64", K3),
            "export @@PYTORCH_ALLOC_CONF=expandable_segments:True\n" + serve("--disable-custom-all-reduce --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'", K3),
        ),
        silent=(
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + serve("--disable-custom-all-reduce", K3),
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n" + serve(""),
            "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n" + serve(""),
        ),
    ),
    "torch.max_split_size_mb": Row(
        variables=(("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,expandable_segments:True"),),
        silent=("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n" + serve(""),),
    ),
    "torch.PYTORCH_ALLOC_CONF": Row(
        variables=(("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8"),),
        silent=("export PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.8\ntorchrun train.py\n", "export PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8\n" + serve("")),
    ),
    "env.timeouts": Row(silent=("export VLLM_ENGINE_READY_TIMEOUT_S=3600\nexport VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800\n" + serve("--distributed-timeout-seconds 3600"),)),
    "env.gloo": Row(silent=("export GLOO_SOCKET_IFNAME=bond0\nexport NCCL_SOCKET_IFNAME==bond0\n" + serve(""),)),
    "env.ray-dag-vars": Row(
        variables=(
            ("VLLM_USE_RAY_COMPILED_DAG", "1"), ("VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE", "nccl"), ("VLLM_USE_RAY_SPMD_WORKER", "1"),
            ("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "1"),
        ),
        silent=("# vLLM 0.32.0\nexport VLLM_USE_RAY_V2_EXECUTOR_BACKEND=1\n", "export VLLM_RAY_DP_PACK_STRATEGY=strict\n"),
    ),
    "env.numa-spawn": Row(
        variables=(("VLLM_WORKER_MULTIPROC_METHOD", "fork"),),
        false=("export @@VLLM_WORKER_MULTIPROC_METHOD=fork\n" + serve("--numa-bind"),),
        silent=("export VLLM_WORKER_MULTIPROC_METHOD=spawn\n" + serve("--numa-bind"), "export VLLM_WORKER_MULTIPROC_METHOD=fork\n" + serve("")),
    ),
    # -- NCCL
    "nccl.NET_GDR_LEVEL": Row(
        variables=(("NCCL_NET_GDR_LEVEL", "5"), ("NCCL_NET_GDR_LEVEL", "SYS")),
        silent=("export NCCL_NET_GDR_LEVEL=PXB\n", "export NCCL_NET_GDR_LEVEL=PIX\n", "export NCCL_NET_GDR_LEVEL=2\n"),
    ),
    "nccl.TOPO_DUMP_FILE": Row(silent=("export NCCL_TOPO_DUMP_FILE=/tmp/topo.xml\nall_reduce_perf -b 8 -e 4G -f 2 -g 1\n",)),
    "nccl.SET_STACK_SIZE": Row(variables=(("NCCL_SET_STACK_SIZE", "1"),), silent=("export NCCL_SET_STACK_SIZE=0\n",)),
    "nccl.IB_GID_INDEX": Row(
        variables=(("NCCL_IB_GID_INDEX", "3"),),
        silent=("export NCCL_IB_GID_INDEX=-1\n", 'export NCCL_IB_GID_INDEX="$(gid_of mlx5_0)"\n', "export NCCL_IB_ADDR_RANGE=10.1.0.0/16\nexport NCCL_IB_ROCE_VERSION_NUM=2\n"),
    ),
    "nccl.IB_SL": Row(variables=(("NCCL_IB_SL", "3"),), silent=("export NCCL_IB_SL=0\n", "export NCCL_IB_TC=106\n")),
    "nccl.CROSS_NIC": Row(variables=(("NCCL_CROSS_NIC", "1"),), silent=("export NCCL_CROSS_NIC=0\n", "export NCCL_CROSS_NIC=2\n")),
    "nccl.IB_HCA": Row(
        variables=(("NCCL_IB_HCA", "mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"), ("NCCL_IB_HCA", "mlx5_0")),
        silent=("export NCCL_IB_HCA==mlx5_0:1,mlx5_3:1\n", 'export NCCL_IB_HCA="=mlx5_0,mlx5_1"\n', "export NCCL_IB_HCA=^=mlx5_bond_0\n"),
    ),
    "nccl.IB_DISABLE": Row(silent=("export NCCL_IB_DISABLE=0\n", "export NCCL_IB_DISABLE=1\n")),
    "nccl.ALGO": Row(
        variables=(("NCCL_ALGO", "Tree"), ("NCCL_ALGO", "tree"), ("NCCL_ALGO", "Trees")),
        silent=("export NCCL_ALGO=Ring\n", "export NCCL_ALGO='allreduce:tree'\n", "export NCCL_ALGO=Tree,Ring\n", "export NCCL_ALGO=^Tree\n"),
    ),
    "nccl.PROTO": Row(variables=(("NCCL_PROTO", "Simple"), ("NCCL_PROTO", "SIMPLE")), silent=("export NCCL_PROTO=LL,LL128,Simple\n", "export NCCL_PROTO=^LL128\n")),
    "nccl.SOCKET_IFNAME": Row(
        variables=(("NCCL_SOCKET_IFNAME", "eth0"),),
        silent=("export NCCL_SOCKET_IFNAME==eth0\n", "export NCCL_SOCKET_IFNAME==bond0\n", "export NCCL_SOCKET_IFNAME=^docker0,lo\n", 'export NCCL_SOCKET_IFNAME="=$IF"\n'),
    ),
    "nccl.DEBUG": Row(
        variables=(("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG", "TRACE")),
        false=("export @@NCCL_DEBUG=INFO\n" + serve(""),),
        silent=(
            "export NCCL_DEBUG=WARN\n" + serve(""),
            "export NCCL_DEBUG=VERSION\n",
            "export NCCL_DEBUG=INFO\nexport NCCL_DEBUG_SUBSYS=INIT,ENV,NET\nmpirun -np 16 all_reduce_perf -b 8 -e 4G -f 2 -g 1\n",
        ),
    ),
    "nccl.DMABUF": Row(variables=(("NCCL_DMABUF_ENABLE", "0"),), silent=("modprobe nvidia_peermem\nexport NCCL_DMABUF_ENABLE=0\n", "export NCCL_DMABUF_ENABLE=1\n")),
    "nccl.version": Row(silent=("python3 -c 'import torch; print(torch.cuda.nccl.version())'\n",)),
    "nccl.watchdog": Row(silent=(serve("--distributed-timeout-seconds 1800"), "py-spy dump --pid 1234\nib_write_bw -d mlx5_0 --use_cuda=0 --use_cuda_dmabuf -a\n")),
    # -- fabric and firmware
    "fw.PFC_DEADLOCK_DETECTION_EN": Row(
        false=(
            "mstconfig -d 0000:1a:00.0 -y set @@PFC_DEADLOCK_DETECTION_EN=1\n",
            "for bdf in 1a:00.0 3b:00.0; do\n  mstconfig -d $bdf -y set \\\n    @@PFC_DEADLOCK_DETECTION_EN=1 PFC_DEADLOCK_DETECTION_TIMER=100\ndone\n",
            "mlxconfig -d /dev/mst/mt4129_pciconf0 set @@PFC_DEADLOCK_DETECTION_TIMER=100\n",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  prep.sh: |\n    mstconfig -d 1a:00.0 -y set @@PFC_DEADLOCK_DETECTION_EN=1\n",
            "[Service]\nExecStartPre=/usr/bin/mstconfig -d 1a:00.0 -y set @@PFC_DEADLOCK_DETECTION_EN=1\n",
        ),
        silent=("ethtool --set-tunable ens1f0 pfc-prevention-tout 100\n", "mstconfig -d 0000:1a:00.0 query NUM_OF_PFC\n"),
    ),
    "fw.mst-device-path": Row(
        false=(
            "for dev in @@/dev/mst/*_pciconf0; do\n  mstconfig -d $dev query\ndone\n",
            "mstconfig @@-d /dev/mst/mt4129_pciconf0 query\n",
        ),
        silent=("mstconfig -d 0000:1a:00.0 query\n", "mst start\nmlxconfig -d /dev/mst/mt4129_pciconf0 query\n"),
    ),
    "fw.real-names": Row(silent=("mstconfig -d 0000:1a:00.0 query LINK_TYPE_P1 ROCE_CC_ALGORITHM_P1 ROCE_CC_PRIO_MASK_P1 CNP_DSCP_P1 PCI_WR_ORDERING ATS_ENABLED MAX_ACC_OUT_READ DCBX_WILLING_P1\n",)),
    "sysctl.tcp_ecn": Row(
        false=(
            "sysctl -w @@net.ipv4.tcp_ecn=1\n",
            "#!/bin/bash\nset -e\nsudo sysctl -w vm.swappiness=1 @@net.ipv4.tcp_ecn=1\n",
            "net.core.rmem_max = 1\n@@net.ipv4.tcp_ecn = 1\n",
            "# prep\n@@echo 1 > /proc/sys/net/ipv4/tcp_ecn\n",
            "echo '@@net.ipv4.tcp_ecn=1' >> /etc/sysctl.d/90-roce.conf\n",
            "services:\n  llm:\n    image: x/y:1\n    sysctls:\n      @@net.ipv4.tcp_ecn: 1\n",
            "services:\n  llm:\n    image: x/y:1\n    sysctls:\n      - @@net.ipv4.tcp_ecn=1\n",
            "apiVersion: v1\nkind: Pod\nspec:\n  securityContext:\n    sysctls:\n      - @@name: net.ipv4.tcp_ecn\n        value: \"1\"\n  containers: []\n",
            "docker run @@--sysctl net.ipv4.tcp_ecn=1 x/y:1 vllm serve m\n",
            "cat > /etc/sysctl.d/9.conf <<EOF\nnet.core.wmem_max = 1\n@@net.ipv4.tcp_ecn = 1\nEOF\n",
            "[Service]\nExecStart=/sbin/sysctl -w @@net.ipv4.tcp_ecn=1\n",
        ),
        silent=("net.ipv4.tcp_ecn = 2\n", "sysctl -w net.ipv4.tcp_ecn=0\n", "sysctl net.ipv4.tcp_ecn\n", "net.ipv4.tcp_rmem = 4096 87380 1\n"),
    ),
    "roce.dcqcn": Row(
        false=("ibstat\necho 1 > @@/sys/class/net/ens1f0/ecn/roce_np/enable/3\n",),
        silent=("mlnx_qos -i ens1f0 --trust dscp\necho 1 > /sys/class/net/ens1f0/ecn/roce_np/enable/3\necho 1 > /sys/class/net/ens1f0/ecn/roce_rp/enable/3\n",),
    ),
    "roce.mlnx_qos": Row(
        false=("@@mlnx_qos -i ens1f0 --pfc 0,0,0,1,0,0,0,0\n",),
        silent=("mlnx_qos -i ens1f0 --trust dscp\nmlnx_qos -i ens1f0 --pfc 0,0,0,1,0,0,0,0\n", "mlnx_qos -i ens1f0\n"),
    ),
    "roce.cma_roce_tos": Row(
        false=("@@cma_roce_tos -d mlx5_0 -t 106\n",),
        silent=("cma_roce_tos -d mlx5_0 -t 106\nexport NCCL_IB_TC=106\n", "export NCCL_IB_TC=106\nexport UCX_IB_TRAFFIC_CLASS=106\n"),
    ),
    "fabric.pfc-on-ib": Row(
        false=("mlnx_qos -i @@ib0 --pfc 0,0,0,1,0,0,0,0\n", "lldptool -T -i @@ib0 -V PFC enabled=3\n", "ethtool -A @@ib0 rx on tx on\n", "dcb pfc set dev @@ibp65s0 prio-pfc 3:on\n"),
        silent=("mlnx_qos -i ens1f0 --trust dscp\nmlnx_qos -i ens1f0 --pfc 0,0,0,1,0,0,0,0\n",),
    ),
    "fabric.dmesg-0x4": Row(
        false=(
            "dmesg | grep 'mlx5_core.*@@async event 0x4'\n",
            "groups:\n  - name: nic\n    rules:\n      - alert: PortStalled\n        expr: 'log_lines{text=~\".*@@async event 0x4.*\"} > 0'\n",
            "*/1 * * * * dmesg | grep -c 'mlx5_core: @@async event 0x4'\n",
        ),
        silent=("dmesg | grep -E 'Xid|CQ error|health poll'\n", "dmesg | grep 'async event 0x9'\n"),
    ),
    # -- host
    "host.numa-sysfs": Row(
        false=(
            "for dev in $(ibstat -l); do\n  cat @@/sys/class/net/${dev}/device/numa_node\ndone\n",
            "cat @@/sys/class/net/mlx5_0/device/numa_node\n",
            "ibstat -l | while read dev; do\n  echo $dev $(cat @@/sys/class/net/$dev/device/numa_node)\ndone\n",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  numa.sh: |\n    for d in mlx5_0 mlx5_1; do\n      cat @@/sys/class/net/$d/device/numa_node\n    done\n",
        ),
        silent=("for dev in $(ibstat -l); do\n  cat /sys/class/infiniband/${dev}/device/numa_node\ndone\n", "cat /sys/class/net/eth0/device/numa_node\n", "for nic in ens1f0 ens2f0; do cat /sys/class/net/$nic/device/numa_node; done\n"),
    ),
    "host.numactl-wrapper": Row(
        false=(
            f"@@numactl --cpunodebind=0 --membind=0 python3 -m vllm.entrypoints.openai.api_server --model {V4}\n",
            f"#!/bin/bash\nsudo @@numactl -N 0 -m 0 vllm serve {V4} \\\n  --tensor-parallel-size 8\n",
            f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: v\n      image: x/y:1\n      command:\n        - @@numactl\n        - --cpunodebind=0\n        - --membind=0\n        - vllm\n        - serve\n        - {V4}\n",
            f"[Service]\nExecStart=@@/usr/bin/numactl --membind=0 /opt/vllm/bin/vllm serve {V4}\n",
            f"services:\n  llm:\n    image: x/y:1\n    command: @@numactl --cpunodebind=0 --membind=0 vllm serve {V4}\n",
        ),
        silent=(
            serve("--numa-bind"), "numactl --hardware\n", "numactl --cpunodebind=0 --membind=0 stream\n",
            f"numactl --membind=0,1 vllm serve {V4}\n",
        ),
    ),
    "host.gpu-nic-numbering": Row(
        false=(
            "export @@NCCL_IB_HCA=mlx5_$LOCAL_RANK\n",
            "CUDA_VISIBLE_DEVICES=0,1,2,3 @@NCCL_IB_HCA=mlx5_0,mlx5_1,mlx5_2,mlx5_3 ./run.sh\n",
            "numa0:\n  @@gpu0: mlx5_0\n  gpu4: mlx5_7\n",
        ),
        silent=("nvidia-smi topo -m\n", "numa0:\n  gpu0: mlx5_3\n"),
    ),
    "host.nvidia-smi-topo": Row(silent=("nvidia-smi\nnvidia-smi topo -m\n",)),
    "host.ibstat": Row(silent=("ibstat | grep -E 'State: Active|Rate: 400'\n",)),
    "host.ib_write_bw": Row(silent=("ib_write_bw -d mlx5_0 --use_cuda=0 --use_cuda_dmabuf -a 10.0.0.2\nib_write_lat -d mlx5_0 10.0.0.2\n",)),
    "host.nccl-tests": Row(silent=("mpirun -np 32 all_reduce_perf -b 8 -e 4G -f 2 -g 1\nmpirun -np 32 alltoall_perf -b 8 -e 4G -f 2 -g 1\n",)),
    "host.gid-table": Row(
        variables=(("UCX_IB_GID_INDEX", "3"),),
        false=("cat @@/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3\n", "ib_write_bw -d mlx5_0 @@-x 3 10.0.0.2\n"),
        silent=("cat /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/*\n", "show_gids\n", "ib_write_bw -d mlx5_0 -x $gid 10.0.0.2\n"),
    ),
    "host.mtu": Row(
        false=("# RoCE rail\nshow_gids mlx5_0\nip link set dev ens1f0 @@mtu 1500\n",),
        silent=("show_gids mlx5_0\nip link set dev ens1f0 mtu 9000\n", "ip link set dev eth0 mtu 1500\n"),
    ),
    "host.acs-iommu": Row(
        false=('GRUB_CMDLINE_LINUX="quiet @@intel_iommu=on"\n', "for bdf in $(bridges); do\n  @@setpci -s $bdf ECAP_ACS+6.w=0000\ndone\n"),
        silent=('GRUB_CMDLINE_LINUX="intel_iommu=on iommu=pt"\n', "lspci -vvv | grep ACSCtl\n"),
    ),
    "host.peermem": Row(false=("modprobe @@nv_peer_mem\n",), silent=("modprobe nvidia_peermem\n", "lsmod | grep nvidia_peermem\n")),
    "host.fabricmanager": Row(silent=("systemctl is-active nvidia-fabricmanager\n", "[Unit]\nAfter=nvidia-fabricmanager.service\n[Service]\nExecStart=/usr/bin/true\n")),
    "host.memlock": Row(silent=("* soft memlock unlimited\n* hard memlock unlimited\n", "[Service]\nLimitMEMLOCK=infinity\nExecStart=/usr/bin/true\n", "ulimit -l unlimited\n", "docker run --ulimit memlock=-1 x/y:1 vllm serve m\n")),
    "host.shm-64g": Row(
        false=("docker run @@--shm-size=64g x/y:1 vllm serve m\n", "docker run --gpus all \\\n  @@--shm-size 128gb \\\n  x/y:1\n", "services:\n  llm:\n    image: x/y:1\n    @@shm_size: 64gb\n"),
        silent=("docker run --shm-size=32g x/y:1 vllm serve m\n", "services:\n  llm:\n    image: x/y:1\n    shm_size: 16gb\n"),
    ),
    "host.ipcs-gc": Row(
        false=(
            "@@ipcs -m | awk '$6==0 {print $2}' | xargs ipcrm -m\n",
            "#!/bin/bash\nwhile true; do\n  @@ipcs -m | awk 'NR>3 && $6==0 {print $2}' | xargs -r -n1 ipcrm -m\n  sleep 60\ndone\n",
            "*/5 * * * * @@ipcs -m | awk '$6==0{print $2}' | xargs -r ipcrm -m\n",
            "[Service]\nExecStart=/bin/sh -c \"@@ipcs -m | awk '$$6==0' | xargs ipcrm -m\"\n",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: gc\n      image: x/y:1\n      command: [sh, -c]\n      args:\n        - |\n          @@ipcs -m | awk '$6==0 {print $2}' | xargs ipcrm -m\n",
            "@@ipcrm --all=shm\n",
        ),
        silent=("ipcs -m\n", "find /dev/shm -user vllm -name 'psm_*' -delete\n"),
    ),
    # -- Ray
    "ray.heartbeat_timeout": Row(
        variables=(("RAY_heartbeat_timeout_milliseconds", "60000"),),
        silent=("export RAY_health_check_timeout_ms=30000\nray start --head\n",),
    ),
    "ray.num_heartbeats_timeout": Row(
        variables=(("RAY_num_heartbeats_timeout", "30"),),
        false=("ray start --head --system-config='{\"@@num_heartbeats_timeout\": 30}'\n",),
        silent=("export RAY_health_check_failure_threshold=10\nexport RAY_health_check_period_ms=3000\nexport RAY_health_check_initial_delay_ms=5000\nray start --head\n",),
    ),
    "ray.oom_score_adj": Row(
        false=(
            "@@pgrep -f 'raylet|gcs_server' | while read pid; do echo -1000 > /proc/$pid/oom_score_adj; done\n",
            "for pid in $(pgrep -f raylet); do\n  @@echo -1000 > /proc/$pid/oom_score_adj\ndone\n",
            "for pid in $(pgrep -f 'raylet|gcs_server'); do\n  @@echo -1000 | sudo tee /proc/$pid/oom_score_adj\ndone\n",
            "[Service]\nExecStart=/usr/bin/ray start --head --block\n@@OOMScoreAdjust=-1000\n",
        ),
        silent=("[Service]\nExecStart=/usr/bin/ray start --head --block\nOOMScoreAdjust=-500\n", "cat /proc/1234/oom_score_adj\n"),
    ),
    "ray.memory-monitor": Row(
        variables=(("RAY_memory_usage_threshold", "0.8"),),
        silent=("export RAY_memory_monitor_refresh_ms=0\nray start --head\n", "export RAY_memory_usage_threshold=0.95\n"),
    ),
    "ray.start-head": Row(
        false=(
            "ray start --head --port=6379 --num-gpus=8 @@--object-store-memory=68719476736 --block\n",
            "ray start --head \\\n  --port=6379 \\\n  @@--object-store-memory 68719476736 \\\n  --block\n",
            "ray start --head @@--dashboard-host=0.0.0.0\n",
            "apiVersion: ray.io/v1\nkind: RayCluster\nspec:\n  headGroupSpec:\n    rayStartParams:\n      @@object-store-memory: '68719476736'\n",
            "[Service]\nExecStart=/usr/bin/ray start --head @@--object-store-memory=68719476736 --block\n",
        ),
        silent=(
            "ray start --head --port=6379 --node-ip-address=10.0.0.1 --num-gpus=8 --block --disable-usage-stats --dashboard-host 127.0.0.1\n",
            "ray start --head --object-store-memory=2147483648\n",
            "ray start --address=10.0.0.1:6379 --num-gpus=8 --block\n",
        ),
    ),
    "ray.start-worker-ip": Row(
        false=(
            "ray start --address=10.0.0.1:6379 @@--node-ip-address=$(hostname -I | awk '{print $1}') --block\n",
            "ray start --address=10.0.0.1:6379 \\\n  @@--node-ip-address=\"$(hostname -I | awk '{print $1}')\" \\\n  --block\n",
            "IP=$(hostname -I | cut -d' ' -f1)\nray start --address=10.0.0.1:6379 @@--node-ip-address=$IP\n",
            "[Service]\nExecStart=/bin/bash -c \"ray start --address=10.0.0.1:6379 @@--node-ip-address=$(hostname -I | awk '{print $1}') --block\"\n",
        ),
        silent=("ray start --address=10.0.0.1:6379 --node-ip-address=10.0.0.2\n", 'ray start --address=10.0.0.1:6379 --node-ip-address="$VLLM_HOST_IP"\n'),
    ),
    "ray.stop-force": Row(
        false=("ray stop @@--force\nray start --head\n", "#!/bin/bash\nset -e\nray stop @@-f || true\n", "ssh node2 'ray stop @@--force'\n"),
        silent=("ray stop\n", "docker exec ray ray stop --force\n", "[Service]\nExecStart=/usr/bin/ray start --head --block\nExecStop=/usr/bin/ray stop --force\n"),
    ),
    "ray.status": Row(silent=("ray status\nray list nodes\n",)),
    "ray.version": Row(
        false=("FROM vllm/vllm-openai:v0.33.0\nRUN pip install @@ray[default]\n", "pip install -U '@@ray[default]>=2.40'\n", cluster("image").replace("registry.local/vllm-ray:0.33.0-2.60.0", "vllm/vllm-openai:v0.33.0")),
        silent=('FROM vllm/vllm-openai:v0.33.0\nRUN pip install "ray[default]==2.60.0"\n', GOOD_CLUSTER),
    ),
    "ray.driver-node": Row(
        false=("ray start --head @@--num-gpus=0\n" + serve("--distributed-executor-backend ray"),),
        silent=("ray start --head --num-gpus=8\n" + serve("--distributed-executor-backend ray"), "ray start --head --num-gpus=0\n"),
    ),
    # -- Kubernetes
    "k8s.raycluster": Row(false=(cluster("kind"),), silent=(GOOD_CLUSTER,)),
    "k8s.rayVersion": Row(
        false=(cluster("version").replace("'2.60.0'", "'2.38.0'"), "apiVersion: ray.io/v1\nkind: RayCluster\nspec:\n  @@rayVersion: '2.60.0'\n  headGroupSpec:\n    template:\n      spec:\n        containers:\n          - name: h\n            image: rayproject/ray:2.55.1-gpu\n"),
        silent=(GOOD_CLUSTER,),
    ),
    "k8s.image-v0.6.3": Row(
        false=(
            cluster("image").replace("image: registry.local/vllm-ray:0.33.0-2.60.0", "image: vllm/vllm-openai:v0.6.3").replace("@@image:", "image: @@", 1).replace("image: @@ vllm", "image: @@vllm"),
            f"docker run --gpus all @@vllm/vllm-openai:v0.6.3 --model {V4}\n",
            f"services:\n  llm:\n    image: @@vllm/vllm-openai:v0.6.3\n    command: --model {V4}\n",
            "FROM @@vllm/vllm-openai:v0.6.3\n",
            f"docker run vllm/vllm-openai:v0.26.0 --model {K3}\n".replace("vllm/", "@@vllm/", 1),
        ),
        silent=(f"docker run vllm/vllm-openai:v0.33.0 --model {V4}\n", f"docker run vllm/vllm-openai:v0.27.1 --model {K3}\n", "FROM vllm/vllm-openai:v0.33.0\n"),
    ),
    "k8s.head-8-gpu": Row(
        false=("apiVersion: ray.io/v1\nkind: RayCluster\nspec:\n  headGroupSpec:\n    rayStartParams:\n      @@num-gpus: 8\n", cluster("gpus").replace("spec:\n", "spec:\n  enableInTreeAutoscaling: true\n", 1)),
        silent=(GOOD_CLUSTER, cluster("kind").replace("@@", "")),
    ),
    "k8s.resources": Row(false=(cluster("memory"),), silent=(GOOD_CLUSTER,)),
    "k8s.shm": Row(silent=(_pod("  containers:\n    - name: v\n      image: x/y:1\n      volumeMounts:\n        - {name: shm, mountPath: /dev/shm}\n  volumes:\n    - name: shm\n      emptyDir:\n        medium: Memory\n        sizeLimit: 128Gi\n"),)),
    "k8s.rdma-missing": Row(false=(cluster("limits"),), silent=(GOOD_CLUSTER, _deployment("        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          resources:\n            limits: {nvidia.com/gpu: 8}\n"))),
    "k8s.ipc-lock": Row(false=(cluster("name"),), silent=(GOOD_CLUSTER,)),
    "k8s.hostNetwork": Row(
        false=(cluster("containers"), _pod("  @@hostNetwork: true\n  containers:\n    - name: v\n      image: x/y:1\n")),
        silent=(_pod("  hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet\n  containers:\n    - name: v\n      image: x/y:1\n"), GOOD_CLUSTER),
    ),
    "k8s.nodeSelector": Row(
        false=(_pod("  nodeSelector:\n    @@node.kubernetes.io/instance-type: hgx-h100-8gpu\n  containers: []\n"),),
        silent=(_pod("  nodeSelector:\n    nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3\n  containers: []\n"), _pod("  nodeSelector:\n    node.kubernetes.io/instance-type: p5.48xlarge\n  containers: []\n")),
    ),
    "k8s.gang": Row(false=(cluster("kind"),), silent=(GOOD_CLUSTER,)),
    "k8s.probes": Row(
        false=(
            _deployment(f"        - @@name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, {V4}]\n          resources:\n            limits: {{nvidia.com/gpu: 8}}\n"),
            _deployment(f"        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, {V4}]\n          @@startupProbe:\n            httpGet: {{path: /health, port: 8000}}\n            periodSeconds: 10\n            failureThreshold: 60\n"),
            _deployment(f"        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, {V4}, --nnodes, '2', --headless]\n          @@livenessProbe:\n            httpGet: {{path: /health, port: 8000}}\n"),
        ),
        silent=(_deployment(f"        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, {V4}]\n          startupProbe:\n            httpGet: {{path: /health, port: 8000}}\n            periodSeconds: 10\n            failureThreshold: 360\n"), GOOD_CLUSTER),
    ),
    "k8s.pvc-nfs": Row(
        false=(_pod("  containers:\n    - name: v\n      image: x/y:1\n      volumeMounts:\n        - {name: weights, mountPath: /root/.cache/huggingface}\n  volumes:\n    - name: weights\n      persistentVolumeClaim:\n        @@claimName: nfs-model-weights-pvc\n"),),
        silent=(_pod("  containers:\n    - name: v\n      image: x/y:1\n      volumeMounts:\n        - {name: weights, mountPath: /models}\n  volumes:\n    - name: weights\n      hostPath: {path: /nvme/models}\n"),),
    ),
    "k8s.autoscale": Row(silent=(GOOD_CLUSTER,)),
    "k8s.lws-env": Row(silent=(serve("--data-parallel-size 4 --nnodes $(LWS_GROUP_SIZE) --node-rank $(LWS_WORKER_INDEX) --master-addr $(LWS_LEADER_ADDRESS)"),)),
    # -- gateway
    "gw.kda-drift": Row(docs="a claim about what routing does to answers; no setting makes or prevents it"),
    "gw.kda-redis": Row(
        flags=("--kda-redis-url redis://10.0.0.9:6379", "--kda-state-backend redis"),
        model=K3,
        variables=(("KDA_STATE_REDIS_URL", "redis://10.0.0.9:6379"),),
        silent=(serve("--kv-offloading-size 200", K3), "export REDIS_URL=redis://10.0.0.9:6379\n"),
    ),
    "gw.session-affinity": Row(
        false=(
            "upstream llm {\n  @@hash $http_x_session_id consistent;\n  server 10.0.0.1:8000;\n}\n",
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nspec:\n  trafficPolicy:\n    loadBalancer:\n      @@consistentHash:\n        httpHeaderName: x-session-id\n",
        ),
        silent=("upstream llm {\n  hash $http_x_session_id consistent;\n  server 10.0.0.1:8000;\n  server 10.0.0.2:8000;\n}\n",),
    ),
    "gw.gateway-api": Row(
        false=(
            "apiVersion: networking.k8s.io/v1\n@@kind: Ingress\nmetadata:\n  name: llm\nspec:\n  ingressClassName: nginx\n",
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  annotations:\n    @@nginx.ingress.kubernetes.io/proxy-buffering: 'off'\n",
        ),
        silent=("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: llm\n", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec:\n  ingressClassName: traefik\n"),
    ),
    "gw.production-stack-router": Row(silent=("vllm-router --routing-logic session --session-key x-session-id\n",)),
    "gw.stream-sticky-packets": Row(flags=("--sse-timestamps",), silent=("server {\n  proxy_buffering off;\n}\n",)),
    # -- metrics
    "metric.default-exporter": Row(
        false=("curl -s localhost:8000/metrics | grep @@vllm:prefill_decode_split_total\n",),
        silent=("groups:\n  - rules:\n      - expr: vllm:kv_cache_usage_perc > 0.9\n      - expr: rate(vllm:num_preemptions_total[5m]) > 0\n      - expr: histogram_quantile(0.99, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))\n",),
    ),
    "metric.hit-rate": Row(
        false=("groups:\n  - rules:\n      - alert: ColdCache\n        expr: @@vllm_kv_cache_hit_rate < 0.2\n", '{"panels": [{"targets": [{"expr": "@@vllm_kv_cache_hit_rate"}]}]}\n', "curl -s localhost:8000/metrics | grep @@vllm_kv_cache_hit_rate\n"),
        silent=("groups:\n  - rules:\n      - expr: rate(vllm:prefix_cache_hits_total[5m]) / rate(vllm:prefix_cache_queries_total[5m])\n",),
    ),
    "metric.decode-p99": Row(
        false=("groups:\n  - rules:\n      - expr: @@vllm_decode_latency_p99_ms > 100\n", "groups:\n  - rules:\n      - expr: rate(@@vllm:time_per_output_token_seconds_bucket[5m])\n"),
        silent=("groups:\n  - rules:\n      - expr: histogram_quantile(0.99, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket[5m])))\n      - expr: rate(vllm:request_time_per_output_token_seconds_sum[5m])\n",),
    ),
    "metric.fragmentation": Row(
        false=("groups:\n  - rules:\n      - expr: @@vllm_gpu_memory_fragmentation_ratio > 0.5\n", "value=$(curl -s localhost:8000/metrics | grep @@vllm_gpu_memory_fragmentation_ratio)\n"),
        silent=("groups:\n  - rules:\n      - expr: vllm:kv_cache_usage_perc > 0.95\n",),
    ),
    "metric.old-names": Row(
        false=("groups:\n  - rules:\n      - expr: @@vllm:gpu_cache_usage_perc > 0.9\n", "triggers:\n  - type: prometheus\n    metadata:\n      query: sum(rate(@@vllm:gpu_prefix_cache_hits_total[5m]))\n"),
        silent=("groups:\n  - rules:\n      - expr: vllm:kv_cache_usage_perc > 0.9\n",),
    ),
    "metric.expert-histogram": Row(
        false=("groups:\n  - rules:\n      - expr: @@vllm_expert_token_histogram_bucket\n", "groups:\n  - rules:\n      - expr: rate(@@vllm:expert_tokens_total[5m])\n"),
        silent=(serve("--enable-expert-parallel --enable-eplb --eplb-config.log_balancedness true --enable-return-routed-experts"),),
    ),
    "metric.ray": Row(
        false=("groups:\n  - rules:\n      - expr: @@ray_vllm_num_requests_running > 10\n",),
        silent=("groups:\n  - rules:\n      - expr: vllm:num_requests_running > 10\n      - expr: ray_node_mem_used > 1\n",),
    ),
    # -- procedures
    "proc.flash_attn-patch": Row(
        false=(
            "sed -i 's/get_kv_cache/get_kv_cache_window/' /opt/venv/lib/python3.12/site-packages/@@vllm/attention/backends/flash_attn.py\n",
            "FROM vllm/vllm-openai:v0.33.0\nCOPY flash_attn.py /usr/lib/python3/site-packages/@@vllm/attention/backends/flash_attn.py\n",
            "from @@vllm.attention.backends.flash_attn import get_kv_cache\n",
        ),
        silent=("python3 -c 'import vllm.v1.attention.backends.flash_attn'\n",),
    ),
    "proc.zrd": Row(
        false=("pip install @@zrd\n", "git clone https://git.example/placeholder/@@zrd.git\n", "import @@zrd\n".replace("import @@zrd", "@@import zrd")),
        silent=("pip install ray==2.60.0\n",),
    ),
    "proc.allreduce-roles": Row(docs=SHOW),
    "proc.pp-activation": Row(silent=(serve("--pipeline-parallel-size 4 --nnodes 4 --node-rank 0", K3), serve("--data-parallel-size 4 --enable-expert-parallel --nnodes 4"))),
    "proc.single-a100": Row(
        false=(_deployment(f"        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, {V4}]\n          resources:\n            limits:\n              @@nvidia.com/gpu: 1\n"),),
        silent=(_deployment(f"        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, {V4}]\n          resources:\n            limits:\n              nvidia.com/gpu: 8\n"), _deployment("        - name: v\n          image: vllm/vllm-openai:v0.33.0\n          args: [--model, Qwen/Qwen3-8B]\n          resources:\n            limits:\n              nvidia.com/gpu: 1\n")),
    ),
    "proc.dynamic-k3-hosts": Row(
        false=("# 4 x 8 H100\n" + serve("--data-parallel-size 4 --enable-expert-parallel --nnodes 4 --node-rank 0 --max-model-len 131072", K3).replace("--max-num-seqs 16", "@@--max-num-seqs 512"),),
        silent=("# 4 x 8 H200\n" + serve("--data-parallel-size 4 --enable-expert-parallel --nnodes 4 --max-model-len 131072", K3), "# 8 x 8 H100\n" + serve("--data-parallel-size 8 --enable-expert-parallel --nnodes 8", K3)),
    ),
    "cmd.brief.v4-ray": Row(
        false=(
            f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nray start --head\n@@vllm serve {V4} \\\n  --distributed-executor-backend ray \\\n  --tensor-parallel-size 8 \\\n  --pipeline-parallel-size 4 \\\n  --quantization fp8 \\\n  --disable-log-requests\n",
        ),
        silent=("ray start --head\n" + serve("--distributed-executor-backend ray --pipeline-parallel-size 4"),),
    ),
    "cmd.brief.k3-ray": Row(
        false=(f"ray start --head\n@@vllm serve {K3} --distributed-executor-backend ray --tensor-parallel-size 8 --pipeline-parallel-size 4 --kda-prefill-backend triton\n",),
        silent=("ray start --head\n" + serve("--distributed-executor-backend ray --pipeline-parallel-size 4 --max-num-batched-tokens 4096", K3),),
    ),
    "cmd.brief.api_server": Row(
        false=("@@python -m vllm.entrypoints.api_server --model DeepSeek-V4-32B --enable-async-output-proc\n",),
        silent=(serve(""),),
    ),
}  # fmt: skip


def _command_rows() -> dict[str, Row]:
    """The checked lines of the table, as scripts: nothing in them is wrong."""
    rows: dict[str, Row] = {}
    for row in truth_rows().values():
        if row.kind == "command_line" and row.id not in ROWS:
            lines = [line.partition(": ")[2] for line in row.emit.splitlines()]
            rows[row.id] = Row(silent=tuple(f"#!/bin/bash\n{line}\n" for line in lines))
    return rows


ROWS |= _command_rows()
