#!/usr/bin/env bash
# laptop: tiny as TP1, vLLM 0.32.0
# engine 0, host 0: node 0 of 1, answers HTTP
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

# The checkpoint: a hub id, or a folder that is the same on every host of the engine.
: "${ROADWORTHY_MODEL:?set it to the checkpoint folder on this host}"

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
# --gpu-memory-utilization: not used: the pool on a CPU is set by kv_cache_memory_bytes
# --kv-cache-dtype auto: the engine does it anyway: BF16, exact; fp8 would halve the cache and is yours to judge

args=(
  # what requests put into `model`
  --served-model-name tiny
  # requests in progress may end first
  --shutdown-timeout 120
  # the gateway on this host is the only client; widen it for one elsewhere
  --host 127.0.0.1
  # where the gateway finds this engine
  --port 8000
  # layout TP1: each layer over 1 GPUs
  --tensor-parallel-size 1
  # the engine's default on a CPU
  --block-size 128
  # the pool on a CPU is what is set here: 1.00 GiB
  --kv-cache-memory-bytes 1073741824
  # as the document says; the model knows 8,192
  --max-model-len 4096
  # keeps one step short on a CPU
  --max-num-batched-tokens 2048
  # about 0 requests in flight by Little's law; room for half as many again, up to a captured graph size; the
  # pool holds 8,191 of the workload's mean length; each also costs logits and graph memory
  --max-num-seqs 8
  # a misspelt VLLM_ variable stops the start; otherwise it is ignored
  --fail-on-environ-validation
)
# Where vllm is, when it is not on the path.
PATH="${ROADWORTHY_BIN:+$ROADWORTHY_BIN:}$PATH"
exec vllm serve "$ROADWORTHY_MODEL" "${args[@]}"
