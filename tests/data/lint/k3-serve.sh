#!/bin/bash
MODEL=moonshotai/Kimi-K3
ENGINE_ARGS=(
  --distributed-executor-backend ray
  --tensor-parallel-size 8
  --pipeline-parallel-size 4
  # FlashKDA
  --kda-prefill-backend triton
  --quantization fp8
  --max-model-len 65536
  --gpu-memory-utilization 0.90
)
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
numactl --cpunodebind=0 --membind=0 \
  python3 -m vllm.entrypoints.openai.api_server \
  --model "$MODEL" \
  "${ENGINE_ARGS[@]}" \
  --port 8000
