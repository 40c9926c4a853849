#!/usr/bin/env bash
# deepseek-v4-pro-32xh100: deepseek-ai/DeepSeek-V4-Pro as 2 x TP8 PP2, vLLM 0.33.0
# Ray worker on host 1, for the engines of hosts 0, 1
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

die() {
  echo "error: $1" >&2
  exit 2
}
# The first address of a name; an address stands for itself.
address_of() { getent ahosts "$1" | awk 'NR == 1 { print $1 }'; }

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

# RDMA pins memory. A low limit ends in failed registrations, or in NCCL over TCP.
if [[ "$(ulimit -l)" != unlimited ]]; then
  ulimit -l unlimited 2>/dev/null ||
    echo "warning: locked memory is limited to $(ulimit -l) KiB; the target host-prep raises it" >&2
fi

args=(
  # the head, on the engine's first host
  --address "$ROADWORTHY_MASTER_ADDR:6379"
  # the same address as VLLM_HOST_IP; the first one of `hostname -I` may be a bridge or a storage NIC
  --node-ip-address "$ROADWORTHY_NODE_ADDR"
  # GPUs that Ray may hand out on this host
  --num-gpus 8
  # vLLM hardly uses it; the default is 30 % of memory
  --object-store-memory 2147483648
  # Ray reports nothing to the outside
  --disable-usage-stats
  # stays in the foreground, so that a supervisor sees it end
  --block
)
# Where ray is, when it is not on the path.
PATH="${ROADWORTHY_BIN:+$ROADWORTHY_BIN:}$PATH"
exec ray start "${args[@]}"
