#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
export NCCL_PROTO=Simple
srun --export=ALL,NCCL_ALGO=Tree --ntasks-per-node=1 vllm serve deepseek-ai/DeepSeek-V4-Pro \
    --tensor-parallel-size 8 --cuda-graph-max-batch-size 64
