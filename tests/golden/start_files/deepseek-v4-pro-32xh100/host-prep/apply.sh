#!/usr/bin/env bash
# Places the files beside it on this host. Remembers what it replaced, so that undo.sh puts it back.
#
#   apply.sh [--dry-run] [--user NAME] [--ray-unit UNIT.service] [--janitor] [--root DIR]
#
#   --user      the account that engines run as (default: roadworthy)
#   --ray-unit  the unit that runs `ray start --block`, for its drop-in; left out, Ray is not touched
#   --janitor   also the timer that removes shared memory of dead engines every half hour
#   --root      another tree than /, for images
set -euo pipefail

fail() {
  echo "error: $1" >&2
  exit 2
}

root=
dry_run=no
user=roadworthy
ray_unit=
janitor=no
while (($#)); do
  case "$1" in
    --dry-run) dry_run=yes ;;
    --janitor) janitor=yes ;;
    --root | --user | --ray-unit)
      (($# >= 2)) || fail "$1 wants a value"
      case "$1" in
        --root) root="${2%/}" ;;
        --user) user="$2" ;;
        --ray-unit) ray_unit="$2" ;;
      esac
      shift
      ;;
    *) fail "$1: not an option (see the head of this file)" ;;
  esac
  shift
done
[[ $user =~ ^[a-z_][a-z0-9_-]{0,31}$ ]] || fail "--user $user: not the name of an account"
if [[ -n $ray_unit && ! $ray_unit =~ ^[A-Za-z0-9:_.@-]+\.service$ ]]; then
  fail "--ray-unit $ray_unit: not the name of a service"
fi
if [[ -z $root && $dry_run == no && "$(id -u)" != 0 ]]; then fail "run this as root, or with --dry-run"; fi

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
record="$root/var/lib/roadworthy/host-prep"
if [[ -e "$record/placed" ]]; then fail "already applied: run undo.sh first"; fi

# make_folder FOLDER: with its parents, each that was not there noted for undo.sh
make_folder() {
  if [[ -d $1 ]]; then return; fi
  make_folder "$(dirname -- "$1")"
  mkdir -- "$1"
  printf '%s\n' "$1" >>"$record/made"
}

# place SOURCE TARGET MODE: what stood there goes to the record first
place() {
  local target="$root$2"
  echo "place $2"
  if [[ $dry_run == yes ]]; then return; fi
  mkdir -p -- "$record/before$(dirname -- "$2")"
  if [[ -e $target ]]; then cp -a -- "$target" "$record/before$2"; fi
  printf '%s\n' "$2" >>"$record/placed"
  make_folder "$(dirname -- "$target")"
  sed "s/@USER@/$user/g" -- "$here/$1" >"$target.roadworthy"
  chmod "$3" -- "$target.roadworthy"
  mv -f -- "$target.roadworthy" "$target"
}

place limits.conf /etc/security/limits.d/90-roadworthy.conf 0644
place shm-janitor.sh /usr/local/lib/roadworthy/shm-janitor.sh 0755
if [[ $janitor == yes ]]; then
  place shm-janitor.service /etc/systemd/system/roadworthy-shm-janitor.service 0644
  place shm-janitor.timer /etc/systemd/system/roadworthy-shm-janitor.timer 0644
fi
if [[ -n $ray_unit ]]; then
  place ray-unit.conf "/etc/systemd/system/$ray_unit.d/50-roadworthy.conf" 0644
fi
if [[ $dry_run == no && -z $root ]]; then
  systemctl daemon-reload
  if [[ $janitor == yes ]]; then systemctl enable --now roadworthy-shm-janitor.timer; fi
  if [[ -n $ray_unit ]]; then echo "takes effect when $ray_unit starts next; nothing was restarted"; fi
fi
echo "limits count from the next login of $user"
