#!/usr/bin/env bash
# kimi-k3-32xh200: moonshotai/Kimi-K3 as TP8 DP4 EP32, vLLM 0.33.0
# engine 0, host 0: node 0 of 4, answers HTTP
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

die() {
  echo "error: $1" >&2
  exit 2
}
# The first address of a name; an address stands for itself.
address_of() { getent ahosts "$1" | awk 'NR == 1 { print $1 }'; }

# The checkpoint: a hub id, or a folder that is the same on every host of the engine.
if [[ -z "${ROADWORTHY_MODEL:-}" ]]; then ROADWORTHY_MODEL=moonshotai/Kimi-K3; fi

# The engine's first host, as the others reach it; the same value on all of them.
: "${ROADWORTHY_MASTER_ADDR:?set it to the address of the first host of this engine}"

# This host's own address on the network that the hosts share; it differs from host to host.
if [[ -z "${ROADWORTHY_NODE_ADDR:-}" ]]; then
  command -v ip >/dev/null || die "no ip here to find it with: set ROADWORTHY_NODE_ADDR and ROADWORTHY_INTERFACE"
  master_ip="$(address_of "$ROADWORTHY_MASTER_ADDR")" || die "$ROADWORTHY_MASTER_ADDR is not known here"
  ROADWORTHY_NODE_ADDR="$(ip -o route get "$master_ip" | sed -n 's/.* src \([^ ]*\).*/\1/p')"
  [[ -n "$ROADWORTHY_NODE_ADDR" ]] || die "no route to $ROADWORTHY_MASTER_ADDR: set ROADWORTHY_NODE_ADDR"
fi

# The interface of that address; NCCL and Gloo find each other through it.
if [[ -z "${ROADWORTHY_INTERFACE:-}" ]]; then
  command -v ip >/dev/null || die "no ip here to find it with: set ROADWORTHY_INTERFACE"
  own_ip="$(address_of "$ROADWORTHY_NODE_ADDR")" || die "$ROADWORTHY_NODE_ADDR is not known here"
  ROADWORTHY_INTERFACE="$(ip -o addr show to "$own_ip" | awk 'NR == 1 { print $2 }')"
  [[ -n "$ROADWORTHY_INTERFACE" ]] || die "no interface here has $ROADWORTHY_NODE_ADDR: set ROADWORTHY_INTERFACE"
fi

# this host's own address; left to itself vLLM follows the default route
export VLLM_HOST_IP="$ROADWORTHY_NODE_ADDR"
# Gloo carries the coordination between hosts on the CPU side
export GLOO_SOCKET_IFNAME="$ROADWORTHY_INTERFACE"
# where NCCL's ranks find each other; '=' is an exact match, without it names that begin so match too
export NCCL_SOCKET_IFNAME="=$ROADWORTHY_INTERFACE"
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

# RDMA pins memory. A low limit ends in failed registrations, or in NCCL over TCP.
if [[ "$(ulimit -l)" != unlimited ]]; then
  ulimit -l unlimited 2>/dev/null ||
    echo "warning: locked memory is limited to $(ulimit -l) KiB; the target host-prep raises it" >&2
fi

# Settings that this line does without:
# --block-size: the engine sets 768 tokens so that state and latent pages are equal
# --enable-prefix-caching: the engine does it anyway: turns of a conversation and system prompts share their
# prefix
# --kv-cache-dtype auto: the engine does it anyway: BF16, exact; fp8 would halve the cache and is yours to judge
# --mamba-ssm-cache-dtype auto: the engine does it anyway: float32 recurrent state, as the model was trained;
# bfloat16 halves it

args=(
  # what requests put into `model`
  --served-model-name moonshotai/Kimi-K3
  # requests in progress may end first
  --shutdown-timeout 120
  # the gateway calls from another host; keep the port off public networks
  --host 0.0.0.0
  # where the gateway finds this engine
  --port 8000
  # layout TP8 DP4 EP32: each layer over 8 GPUs
  --tensor-parallel-size 8
  # attention is copied, requests are dealt out to the ranks
  --data-parallel-size 4
  # whole experts over 32 GPUs; the flag takes no size, it spans tensor and data parallel ranks
  --enable-expert-parallel
  # vLLM's own multi-node start, without Ray
  --nnodes 4
  # which of the engine's hosts this is
  --node-rank 0
  # the engine's first host; the same on all of them
  --master-addr "$ROADWORTHY_MASTER_ADDR"
  # where the ranks meet
  --master-port 29501
  # leaves 14.0 GiB for context, NCCL and kernel workspaces that start-up does not see
  --gpu-memory-utilization 0.9
  # as the document says; the model knows 1,048,576
  --max-model-len 131072
  # vLLM's default for serving; smaller where the pool would not hold a request
  --max-num-batched-tokens 8192
  # about 27 requests in flight by Little's law; room for half as many again, up to a captured graph size; the
  # pool holds 42 of the workload's mean length; each also costs logits and graph memory
  --max-num-seqs 40
  # as the recipe has it; it runs code of the checkpoint, so pin a revision or serve a checked folder
  --trust-remote-code
  # parts the reasoning from the answer in responses
  --reasoning-parser kimi_k3
  # reads the model's own form of tool calls
  --tool-call-parser kimi_k3
  # lets the model decide when to call a tool
  --enable-auto-tool-choice
  # the recipe's choice: no kernel tuning while the engine starts
  --no-enable-flashinfer-autotune
  # Hopper has no FP4 tensor cores; the recipe's weight-only kernels
  --moe-backend marlin
  # the recipe's MLA kernels on Hopper
  --attention-backend FLASHMLA
  # the recipe of K3 on Hopper leaves all-reduce to NCCL
  --disable-custom-all-reduce
  # each rank reads only the tensors of its own experts, which spares the shared storage at start
  --enable-ep-weight-filter
  # a misspelt VLLM_ variable stops the start; otherwise it is ignored
  --fail-on-environ-validation
)
# Where vllm is, when it is not on the path.
PATH="${ROADWORTHY_BIN:+$ROADWORTHY_BIN:}$PATH"
exec vllm serve "$ROADWORTHY_MODEL" "${args[@]}"
