#!/usr/bin/env bash
# Puts the files beside it into their places on this host, as root. Starts nothing. A filled-in engine.env stays.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

install -D -m 0644 roadworthy.sysusers /usr/lib/sysusers.d/roadworthy.conf
systemd-sysusers roadworthy.conf
install -d -m 0755 /usr/local/lib/roadworthy/laptop
install -m 0755 engine-0.sh wait-for-engine-0.sh /usr/local/lib/roadworthy/laptop
install -d -m 0750 /etc/roadworthy/laptop
if [[ ! -e /etc/roadworthy/laptop/engine.env ]]; then
  install -m 0600 engine.env /etc/roadworthy/laptop
fi
install -m 0644 roadworthy-laptop-engine-0.service /etc/systemd/system/
systemctl daemon-reload
echo "fill in /etc/roadworthy/laptop/engine.env, then: systemctl enable --now roadworthy-laptop-engine-0.service"
