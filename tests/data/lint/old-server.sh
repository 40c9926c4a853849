# one A100, five minutes
pip install vllm
python -m vllm.entrypoints.api_server \
  --model deepseek-ai/DeepSeek-V4-32B \
  --max-model-len 131072 \
  --enable-async-output-proc \
  --swap-space 16
python3 -m vllm.benchmarks.benchmark_serving --backend vllm --num-prompts 200
