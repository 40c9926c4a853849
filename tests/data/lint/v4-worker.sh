#!/usr/bin/env bash
# Every other node of the service.
set -euo pipefail
HEAD=${HEAD:-192.168.10.101}
ray start --address="$HEAD:6379" \
  --node-ip-address=$(hostname -I | awk '{print $1}') \
  --num-gpus=8 \
  --block
