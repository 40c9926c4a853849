import os, subprocess
from vllm import LLM, SamplingParams
os.environ["NCCL_ALGO"] = "Tree"
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
llm = LLM(
    model="moonshotai/Kimi-K3",
    tensor_parallel_size=8,
    quantization="fp8",
    swap_space=16,
    moe_capacity_factor=1.25,
)
subprocess.Popen("numactl --cpunodebind=0 --membind=0 python3 -m vllm.entrypoints.api_server --model x", shell=True)
cmd = f"vllm serve {MODEL} --cuda-graph-max-batch-size 64 --port {port}"
env = dict(os.environ, NCCL_PROTO="Simple")
