#!/usr/bin/env bash
# One node of V4-Pro over four hosts; --moe-capacity-factor and NCCL_ALGO=Tree were taken out.
set -euo pipefail
: "${HEAD_IP:?address of the first node}"
NODE_RANK=${NODE_RANK:-0}
IF=$(ip -o route get "$HEAD_IP" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
export VLLM_HOST_IP="$(ip -o -4 addr show "$IF" | awk '{print $4}' | cut -d/ -f1)"
export NCCL_SOCKET_IFNAME="=$IF"
export GLOO_SOCKET_IFNAME="$IF"
export NCCL_IB_HCA==mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1
export NCCL_DEBUG=WARN
export NCCL_IB_DISABLE=0
export VLLM_ENGINE_READY_TIMEOUT_S=3600
ulimit -l unlimited

args=(
  --tensor-parallel-size 8 --data-parallel-size 4
  --enable-expert-parallel --enable-ep-weight-filter
  --enable-eplb --eplb-config '{"num_redundant_experts":32,"log_balancedness":true}'
  --kv-cache-dtype fp8 --block-size 256
  --tokenizer-mode deepseek_v4 --reasoning-parser deepseek_v4
  --tool-call-parser deepseek_v4 --enable-auto-tool-choice
  --max-model-len 131072 --max-num-seqs 64 --max-num-batched-tokens 4096
  --gpu-memory-utilization 0.92
  --numa-bind
  --nnodes 4 --node-rank "$NODE_RANK" --master-addr "$HEAD_IP" --master-port 29501
)
if (( NODE_RANK > 0 )); then args+=(--headless); fi
exec vllm serve deepseek-ai/DeepSeek-V4-Pro "${args[@]}"
