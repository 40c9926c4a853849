#!/usr/bin/env bash
# Lists, and with --remove removes, segments in /dev/shm whose owner is dead. Without --remove it changes nothing.
#
#   shm-janitor.sh [--remove] [--user NAME] [--min-age SECONDS] [--folder DIR] [--engines REGEX] [--ignore PID]...
#                  [--this-namespace]
#
# A segment goes only if all of this holds:
#   - its name is one that vLLM, PyTorch, NCCL or Python give: psm_*, nccl-*, sem.mp-*, torch_*
#   - it is a plain file with one name, and belongs to NAME (default: roadworthy)
#   - it has not been changed for SECONDS (default: 600), so that a starting engine's is never met
#   - no process of this host has it open or mapped, looked up twice, the second time just before it goes
#   - no engine runs (REGEX against the command lines), unless --engines ''
# --ignore names a process that may stay unseen, such as the init of a sandbox.
# Exit code: 0 done, 2 wrong use, 3 could not look at every process, so nothing was touched.
set -euo pipefail

remove=no
user=roadworthy
min_age=600
folder=/dev/shm
engines='(^|/)vllm( |$)|VLLM::|(^|/)raylet( |$)|(^|/)gcs_server( |$)|ray::'
this_namespace=no
ignored=' '

fail() {
  echo "error: $2" >&2
  exit "$1"
}

while (($#)); do
  case "$1" in
    --remove) remove=yes ;;
    --dry-run) remove=no ;;
    --this-namespace) this_namespace=yes ;;
    --user | --min-age | --folder | --engines | --ignore)
      (($# >= 2)) || fail 2 "$1 wants a value"
      case "$1" in
        --user) user="$2" ;;
        --min-age) min_age="$2" ;;
        --folder) folder="$2" ;;
        --engines) engines="$2" ;;
        --ignore) ignored+="$2 " ;;
      esac
      shift
      ;;
    *) fail 2 "$1: not an option (see the head of this file)" ;;
  esac
  shift
done
[[ $min_age =~ ^[0-9]+$ ]] || fail 2 "--min-age $min_age: wanted whole seconds"
[[ -d $folder ]] || fail 2 "--folder $folder: no such folder"
owner="$(id -u -- "$user" 2>/dev/null)" || fail 2 "--user $user: no such account"

# Processes of other containers are invisible from within one. The host's own namespace has a fixed number.
if [[ $this_namespace == no && "$(readlink /proc/self/ns/pid)" != 'pid:[4026531836]' ]]; then
  fail 3 "not in the host's process namespace: whoever maps a segment from outside cannot be seen (--this-namespace)"
fi

# The inode and the name of every file that a process maps or has open; fails when a process would not be looked at.
in_use() {
  local process maps
  for process in /proc/[0-9]*; do
    if ! maps="$(cat "$process/maps" 2>/dev/null)"; then
      # it may have ended meanwhile; a process that is there and closed to us must stop us
      if [[ -d $process && $ignored != *" ${process#/proc/} "* ]] && ! is_zombie "$process"; then return 1; fi
      continue
    fi
    awk '$5 > 0 { print $5; sub(/ \(deleted\)$/, ""); count = split($0, part, "/"); print part[count] }' <<<"$maps"
  done
  find /proc/[0-9]*/fd -maxdepth 1 -type l \( -lname '*psm_*' -o -lname '*nccl-*' -o -lname '*sem.mp-*' \
    -o -lname '*torch_*' \) -printf '%l\n' 2>/dev/null | sed 's/ (deleted)$//; s#.*/##' || true
}

is_zombie() {
  local state
  state="$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$1/status" 2>/dev/null)" || return 0
  [[ -z $state || $state == Z || $state == X ]]
}

engine_runs() {
  local process line
  [[ -n $engines ]] || return 1
  for process in /proc/[0-9]*; do
    case "${process#/proc/}" in "$$" | "$PPID" | "$BASHPID") continue ;; esac
    line="$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" || continue
    if [[ $line =~ $engines ]]; then
      echo "$line"
      return 0
    fi
  done
  return 1
}

candidates() {
  find "$folder" -maxdepth 1 -type f -links 1 -uid "$owner" \
    \( -name 'psm_*' -o -name 'nccl-*' -o -name 'sem.mp-*' -o -name 'torch_*' \) -printf '%i %T@ %C@ %s %p\0'
}

if running="$(engine_runs)"; then
  echo "an engine runs, so nothing is looked at: ${running:0:80}"
  exit 0
fi

now="$(date +%s)"
used="$(in_use)" || fail 3 "a process of this host would not be looked at: run this as root"
total=0
while IFS= read -r -d '' entry; do
  read -r inode modified changed size path <<<"$entry"
  name="${path##*/}"
  if ((now - ${modified%.*} < min_age || now - ${changed%.*} < min_age)); then
    echo "kept     $path (changed less than $min_age s ago)"
  elif grep -qxF -e "$inode" -e "$name" <<<"$used"; then
    echo "kept     $path (in use)"
  elif [[ $remove == no ]]; then
    echo "orphan   $path ($size bytes; --remove removes it)"
  else
    again="$(in_use)" || fail 3 "a process of this host would not be looked at: run this as root"
    if grep -qxF -e "$inode" -e "$name" <<<"$again"; then
      echo "kept     $path (in use by now)"
      continue
    fi
    rm -f -- "$path"
    total=$((total + size))
    echo "removed  $path ($size bytes)"
  fi
done < <(candidates)
if [[ $remove == yes ]]; then echo "removed $total bytes"; fi
