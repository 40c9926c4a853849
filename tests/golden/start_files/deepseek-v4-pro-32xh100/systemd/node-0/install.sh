#!/usr/bin/env bash
# Puts the files beside it into their places on this host, as root. Starts nothing. A filled-in engine.env stays.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

install -D -m 0644 roadworthy.sysusers /usr/lib/sysusers.d/roadworthy.conf
systemd-sysusers roadworthy.conf
install -d -m 0755 /usr/local/lib/roadworthy/deepseek-v4-pro-32xh100
install -m 0755 engine-0.sh wait-for-engine-0.sh /usr/local/lib/roadworthy/deepseek-v4-pro-32xh100
install -d -m 0750 /etc/roadworthy/deepseek-v4-pro-32xh100
if [[ ! -e /etc/roadworthy/deepseek-v4-pro-32xh100/engine.env ]]; then
  install -m 0600 engine.env /etc/roadworthy/deepseek-v4-pro-32xh100
fi
install -m 0644 roadworthy-deepseek-v4-pro-32xh100-engine-0.service /etc/systemd/system/
systemctl daemon-reload
echo "fill in /etc/roadworthy/deepseek-v4-pro-32xh100/engine.env, then: systemctl enable --now roadworthy-deepseek-v4-pro-32xh100-engine-0.service"
