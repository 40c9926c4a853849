docker run -d --name llm \
  --gpus all --ipc=host --network=host --privileged \
  --shm-size 64g \
  --ulimit memlock=-1 \
  -e NCCL_ALGO=Tree -e "NCCL_PROTO=Simple" \
  --env=RAY_num_heartbeats_timeout=30 \
  -v /models:/models \
  vllm/vllm-openai:v0.6.3 \
  --model /models/DeepSeek-V4-Pro \
  --tensor-parallel-size=32 --nnodes=4 \
  --num-scheduler-steps=8
