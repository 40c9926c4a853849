#!/usr/bin/env bash
# seven-tenants: deepseek-ai/DeepSeek-V4-Flash as 2 x TP4, vLLM 0.33.0
# engine 1, host 0: node 0 of 1, answers HTTP
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

# The checkpoint: a hub id, or a folder that is the same on every host of the engine.
if [[ -z "${ROADWORTHY_MODEL:-}" ]]; then ROADWORTHY_MODEL=deepseek-ai/DeepSeek-V4-Flash; fi

# errors and the version, without the noise of INFO
export NCCL_DEBUG=WARN
# this engine's share of the host's GPUs
export CUDA_VISIBLE_DEVICES="4,5,6,7"
# loading from shared storage outlasts the default of 600 s
export VLLM_ENGINE_READY_TIMEOUT_S=3600
# the engine reports nothing to the outside
export VLLM_NO_USAGE_STATS=1

# The key that requests must carry is a secret: VLLM_API_KEY comes from the environment or from a file. Without one,
# whoever reaches the port may ask.
if [[ -n "${ROADWORTHY_API_KEY_FILE:-}" ]]; then
  VLLM_API_KEY="$(<"$ROADWORTHY_API_KEY_FILE")"
  export VLLM_API_KEY
fi

# Settings that this line does without:
# --enable-prefix-caching: the engine does it anyway: turns of a conversation and system prompts share their
# prefix

args=(
  # what requests put into `model`
  --served-model-name deepseek-ai/DeepSeek-V4-Flash
  # requests in progress may end first
  --shutdown-timeout 120
  # the gateway on this host is the only client; widen it for one elsewhere
  --host 127.0.0.1
  # where the gateway finds this engine
  --port 8001
  # layout 2 x TP4: each layer over 4 GPUs
  --tensor-parallel-size 4
  # the block of V4's compressed pages
  --block-size 256
  # leaves 14.0 GiB for context, NCCL and kernel workspaces that start-up does not see
  --gpu-memory-utilization 0.9
  # V4's kernels on Hopper know only the FP8 cache
  --kv-cache-dtype fp8
  # as the document says; the model knows 1,048,576
  --max-model-len 65536
  # start-up charges each request 2 batches of these tokens for its windows and states, so a smaller budget
  # admits more requests and shortens the steps that decoding waits for
  --max-num-batched-tokens 4096
  # about 70 requests in flight by Little's law; room for half as many again, up to a captured graph size; the
  # pool holds 1,694 of the workload's mean length; each also costs logits and graph memory
  --max-num-seqs 112
  # V4 encodes chats with its own code, not with a chat template
  --tokenizer-mode deepseek_v4
  # parts the reasoning from the answer in responses
  --reasoning-parser deepseek_v4
  # reads the model's own form of tool calls
  --tool-call-parser deepseek_v4
  # lets the model decide when to call a tool
  --enable-auto-tool-choice
  # the recipe's choice: no kernel tuning while the engine starts
  --no-enable-flashinfer-autotune
  # a misspelt VLLM_ variable stops the start; otherwise it is ignored
  --fail-on-environ-validation
)
# Where vllm is, when it is not on the path.
PATH="${ROADWORTHY_BIN:+$ROADWORTHY_BIN:}$PATH"
exec vllm serve "$ROADWORTHY_MODEL" "${args[@]}"
