#!/usr/bin/env bash
# seven-tenants: deepseek-ai/DeepSeek-V4-Flash as 2 x TP4, vLLM 0.33.0
# the 2 engines of host 0
# Written by `roadworthy render`: change the document and render again rather than this file.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# Each engine is a process of its own. When this script is told to stop, it tells them and waits for all; an engine that
# ends by itself leaves the others running, and its exit code becomes this script's once all have ended.
children=()
told=no
trap 'told=yes; trap - TERM INT; kill -TERM "${children[@]}" 2>/dev/null || true' TERM INT
"$here"/node-0-engine-0.sh &
children+=("$!")
"$here"/node-0-engine-1.sh &
children+=("$!")
worst=0
for child in "${children[@]}"; do
  before=$told
  code=0
  wait "$child" || code=$?
  if [[ $told != "$before" ]]; then
    # the signal ended `wait`, not the child: wait for the child itself (127: it had ended just then)
    again=0
    wait "$child" 2>/dev/null || again=$?
    if ((again != 127)); then code=$again; fi
  fi
  if ((code > worst)); then worst=$code; fi
done
exit "$worst"
