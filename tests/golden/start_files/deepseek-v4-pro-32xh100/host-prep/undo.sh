#!/usr/bin/env bash
# Takes back what apply.sh did on this host: removes what it placed, puts back what it had replaced.
#
#   undo.sh [--dry-run] [--root DIR]
set -euo pipefail

fail() {
  echo "error: $1" >&2
  exit 2
}

root=
dry_run=no
while (($#)); do
  case "$1" in
    --dry-run) dry_run=yes ;;
    --root)
      (($# >= 2)) || fail "--root wants a value"
      root="${2%/}"
      shift
      ;;
    *) fail "$1: not an option (see the head of this file)" ;;
  esac
  shift
done
if [[ -z $root && $dry_run == no && "$(id -u)" != 0 ]]; then fail "run this as root, or with --dry-run"; fi

record="$root/var/lib/roadworthy/host-prep"
if [[ ! -e "$record/placed" ]]; then
  echo "nothing was applied here"
  exit 0
fi
timer=/etc/systemd/system/roadworthy-shm-janitor.timer
if [[ $dry_run == no && -z $root ]] && grep -qxF -- "$timer" "$record/placed"; then
  systemctl disable --now roadworthy-shm-janitor.timer
fi
while IFS= read -r path; do
  if [[ -e "$record/before$path" ]]; then
    echo "put back $path"
    if [[ $dry_run == no ]]; then mv -f -- "$record/before$path" "$root$path"; fi
  else
    echo "remove $path"
    if [[ $dry_run == no ]]; then rm -f -- "$root$path"; fi
  fi
done <"$record/placed"
if [[ $dry_run == yes ]]; then exit 0; fi
if [[ -e "$record/made" ]]; then
  # innermost first; a folder that holds something else by now stays
  tac -- "$record/made" | while IFS= read -r folder; do
    rmdir --ignore-fail-on-non-empty -- "$folder"
  done
fi
rm -rf -- "$record"
rmdir --ignore-fail-on-non-empty -- "$(dirname -- "$record")"
if [[ -z $root ]]; then systemctl daemon-reload; fi
