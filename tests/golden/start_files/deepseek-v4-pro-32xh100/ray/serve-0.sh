#!/usr/bin/env bash
# deepseek-v4-pro-32xh100: deepseek-ai/DeepSeek-V4-Pro as 2 x TP8 PP2, vLLM 0.33.0
# engine 0, host 0: node 0 of 2, answers HTTP
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

die() {
  echo "error: $1" >&2
  exit 2
}
# The first address of a name; an address stands for itself.
address_of() { getent ahosts "$1" | awk 'NR == 1 { print $1 }'; }

# The checkpoint: a hub id, or a folder that is the same on every host of the engine.
if [[ -z "${ROADWORTHY_MODEL:-}" ]]; then ROADWORTHY_MODEL=deepseek-ai/DeepSeek-V4-Pro; fi

# The engine's first host, as the others reach it; the same value on all of them.
: "${ROADWORTHY_MASTER_ADDR:?set it to the address of the first host of this engine}"

# This host's own address on the network that the hosts share; it differs from host to host.
if [[ -z "${ROADWORTHY_NODE_ADDR:-}" ]]; then
  command -v ip >/dev/null || die "no ip here to find it with: set ROADWORTHY_NODE_ADDR and ROADWORTHY_INTERFACE"
  master_ip="$(address_of "$ROADWORTHY_MASTER_ADDR")" || die "$ROADWORTHY_MASTER_ADDR is not known here"
  ROADWORTHY_NODE_ADDR="$(ip -o route get "$master_ip" | sed -n 's/.* src \([^ ]*\).*/\1/p')"
  [[ -n "$ROADWORTHY_NODE_ADDR" ]] || die "no route to $ROADWORTHY_MASTER_ADDR: set ROADWORTHY_NODE_ADDR"
fi

# this engine's Ray cluster and no other that runs here
export RAY_ADDRESS="$ROADWORTHY_MASTER_ADDR:6379"
# this host's own address; left to itself vLLM follows the default route
export VLLM_HOST_IP="$ROADWORTHY_NODE_ADDR"
# loading from shared storage outlasts the default of 600 s
export VLLM_ENGINE_READY_TIMEOUT_S=3600
# a step of long prompts through a pipeline may outlast the default of 300 s
export VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800
# the engine reports nothing to the outside
export VLLM_NO_USAGE_STATS=1

# The key that requests must carry is a secret: VLLM_API_KEY comes from the environment or from a file. Without one,
# whoever reaches the port may ask.
if [[ -n "${ROADWORTHY_API_KEY_FILE:-}" ]]; then
  VLLM_API_KEY="$(<"$ROADWORTHY_API_KEY_FILE")"
  export VLLM_API_KEY
fi

# RDMA pins memory. A low limit ends in failed registrations, or in NCCL over TCP.
if [[ "$(ulimit -l)" != unlimited ]]; then
  ulimit -l unlimited 2>/dev/null ||
    echo "warning: locked memory is limited to $(ulimit -l) KiB; the target host-prep raises it" >&2
fi

# Settings that this line does without:
# --enable-prefix-caching: the engine does it anyway: turns of a conversation and system prompts share their
# prefix

args=(
  # what requests put into `model`
  --served-model-name deepseek-ai/DeepSeek-V4-Pro
  # requests in progress may end first
  --shutdown-timeout 120
  # the gateway calls from another host; keep the port off public networks
  --host 0.0.0.0
  # where the gateway finds this engine
  --port 8000
  # layout 2 x TP8 PP2: each layer over 8 GPUs
  --tensor-parallel-size 8
  # stages of 31 + 30 layers
  --pipeline-parallel-size 2
  # workers are Ray actors; Ray must be in the image
  --distributed-executor-backend ray
  # the block of V4's compressed pages
  --block-size 256
  # leaves 7.9 GiB for context, NCCL and kernel workspaces that start-up does not see
  --gpu-memory-utilization 0.9
  # V4's kernels on Hopper know only the FP8 cache
  --kv-cache-dtype fp8
  # as the document says; the model knows 1,048,576
  --max-model-len 32768
  # start-up charges each request 3 batches of these tokens for its windows and states, so a smaller budget
  # admits more requests and shortens the steps that decoding waits for
  --max-num-batched-tokens 4096
  # about 68 requests in flight by Little's law; room for twice as many, because prompts that meet slow all
  # batches of a pipeline and a limit would queue, up to a captured graph size; the pool holds 846 of the
  # workload's mean length; each also costs logits and graph memory
  --max-num-seqs 136
  # as the recipe has it; it runs code of the checkpoint, so pin a revision or serve a checked folder
  --trust-remote-code
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
