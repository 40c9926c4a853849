#!/usr/bin/env bash
set -Eeuo pipefail
readonly TP=${TP:-32}
common_args() {
  local -a a=(--tensor-parallel-size "$TP" --enable-async-output-proc)
  printf '%s\n' "${a[@]}"
}
declare -A E=([NCCL_ALGO]=Tree)
start() {
  local extra="--swap-space 4"
  env -i PATH="$PATH" NCCL_PROTO=Simple nohup python3 -u -m vllm.entrypoints.openai.api_server --model deepseek-ai/DeepSeek-V4-Pro $(common_args) $extra --tensor-parallel-size "$TP" >/var/log/x.log 2>&1 &
}
case "$1" in
  start) start ;;
  stop) ray stop --force ;;
esac
export -f start
if ! ray status; then ray start --head --system-config='{"num_heartbeats_timeout":30}'; fi
