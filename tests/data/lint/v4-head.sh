#!/bin/bash
# Head of a four-node DeepSeek-V4-Pro service, as guides have it: 4 x 8 H100.
set -e

export VLLM_HOST_IP=192.168.10.101
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7

# memory
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128

# NCCL over InfiniBand
export NCCL_IB_DISABLE=0
export NCCL_IB_HCA=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7
export NCCL_IB_GID_INDEX=3
export NCCL_IB_SL=3
export NCCL_CROSS_NIC=1
export NCCL_SOCKET_IFNAME=eth0
export NCCL_NET_GDR_LEVEL=5
export NCCL_ALGO=Tree      # fewer hops
export NCCL_PROTO=Simple
export NCCL_DEBUG=INFO

# Ray survives a slow node
export RAY_heartbeat_timeout_milliseconds=60000
export RAY_num_heartbeats_timeout=30

ray stop --force
ray start --head --port=6379 \
  --node-ip-address=192.168.10.101 \
  --num-gpus=8 \
  --object-store-memory=68719476736 \
  --block &

until ray status | grep -q "32.0/32.0 GPU\|0.0/32.0 GPU"; do sleep 5; done

vllm serve deepseek-ai/DeepSeek-V4-Pro \
  --distributed-executor-backend ray \
  --tensor-parallel-size 8 \
  --pipeline-parallel-size 4 \
  --quantization fp8 \
  --kv-cache-dtype fp8 \
  --max-model-len 131072 \
  --max-num-seqs 256 \
  --max-num-batched-tokens 8192 \
  --gpu-memory-utilization 0.92 \
  --enable-chunked-prefill \
  --enable-prefix-caching \
  --enable-expert-parallel \
  --moe-capacity-factor 1.25 \
  --moe-redundant-experts 4 \
  --moe-async-all-to-all \
  --cuda-graph-max-batch-size 64 \
  --trust-remote-code \
  --dtype auto \
  --disable-log-requests
