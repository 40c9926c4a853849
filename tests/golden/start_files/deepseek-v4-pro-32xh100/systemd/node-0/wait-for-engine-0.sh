#!/usr/bin/env bash
# Returns once the engine answers on port 8000; fails when its process has ended.
set -euo pipefail

: "${MAINPID:?systemd sets it for ExecStartPost}"
while kill -0 "$MAINPID" 2>/dev/null; do
  # bash opens the connection itself, so that no other program is needed
  if exec 3<>/dev/tcp/127.0.0.1/8000; then
    printf 'GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
    status=''
    read -r -t 10 _ status _ <&3 || true
    exec 3>&-
    if [[ $status == 200 ]]; then exit 0; fi
  fi 2>/dev/null
  sleep 5
done
echo "the engine ended before it answered" >&2
exit 1
