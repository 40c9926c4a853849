#!/usr/bin/env bash
# llama-3.1-70b-8xa100: meta-llama/Llama-3.1-70B as TP8, vLLM 0.33.0
# engine 0, host 0: node 0 of 1, answers HTTP
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

# The checkpoint: a hub id, or a folder that is the same on every host of the engine.
if [[ -z "${ROADWORTHY_MODEL:-}" ]]; then ROADWORTHY_MODEL=meta-llama/Llama-3.1-70B; fi

# errors and the version, without the noise of INFO
export NCCL_DEBUG=WARN
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
# --kv-cache-dtype auto: the engine does it anyway: BF16, exact; fp8 would halve the cache and is yours to judge

args=(
  # what requests put into `model`
  --served-model-name meta-llama/Llama-3.1-70B
  # requests in progress may end first
  --shutdown-timeout 120
  # the gateway on this host is the only client; widen it for one elsewhere
  --host 127.0.0.1
  # where the gateway finds this engine
  --port 8000
  # layout TP8: each layer over 8 GPUs
  --tensor-parallel-size 8
  # the engine's default on GPUs
  --block-size 16
  # leaves 7.9 GiB for context, NCCL and kernel workspaces that start-up does not see
  --gpu-memory-utilization 0.9
  # as the document says; the model knows 131,072
  --max-model-len 32768
  # a prompt takes fewer steps than with vLLM's default of 2,048 on this GPU; smaller where the pool would not
  # hold a request
  --max-num-batched-tokens 8192
  # about 32 requests in flight by Little's law; room for half as many again, up to a captured graph size; the
  # pool holds 876 of the workload's mean length; each also costs logits and graph memory
  --max-num-seqs 56
  # a misspelt VLLM_ variable stops the start; otherwise it is ignored
  --fail-on-environ-validation
)
# Where vllm is, when it is not on the path.
PATH="${ROADWORTHY_BIN:+$ROADWORTHY_BIN:}$PATH"
exec vllm serve "$ROADWORTHY_MODEL" "${args[@]}"
