"""Pieces that every start script has: the head, what is filled in at start, the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.shell import comment, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roadworthy.render.engine_lines import ServeLine
    from roadworthy.render.values import Emitted, RenderInput

MADE_BY = "Written by `roadworthy render`: change the document and render again rather than this file."

_DIE = """\
die() {
  echo "error: $1" >&2
  exit 2
}
# The first address of a name; an address stands for itself.
address_of() { getent ahosts "$1" | awk 'NR == 1 { print $1 }'; }
"""


def header(inputs: RenderInput, title: str) -> str:
    """Shebang, what the script is, strict mode."""
    deployment = inputs.deployment
    about = (
        f"{deployment.name}: {deployment.model.served_name} as {inputs.chosen.layout.label}, "
        f"vLLM {deployment.engine.version}"
    )
    return "\n".join(["#!/usr/bin/env bash", comment(about), comment(title), comment(MADE_BY), "set -euo pipefail", ""])


def settle(line: ServeLine) -> str:
    """Gives every value of :class:`AtStart` that the line uses a variable: what the caller set, or else the default."""
    return settle_host((*line.arguments, *line.variables), line.known, model=line.model)


def settle_host(settings: Iterable[Emitted], known: Mapping[AtStart, str], *, model: str | None) -> str:
    """Like :func:`settle`, for any settings of one host; ``model`` None where no model is loaded."""
    needed = {setting.value for setting in settings if isinstance(setting.value, AtStart)}
    found = needed & {AtStart.OWN_ADDRESS, AtStart.INTERFACE, AtStart.EXACT_INTERFACE}
    own = known.get(AtStart.OWN_ADDRESS, "")
    parts = [_DIE] if found else []
    if model is not None:
        parts.append(_model(model))
    if needed & {AtStart.MASTER_ADDRESS, AtStart.RAY_ADDRESS} or (found and not own):
        parts.append(master_address(known.get(AtStart.MASTER_ADDRESS, "")))
    if found:
        parts.append(own_address(own))
    if found - {AtStart.OWN_ADDRESS}:
        parts.append(interface(known.get(AtStart.INTERFACE, "")))
    return "\n".join(parts)


def _model(model: str) -> str:
    about = comment("The checkpoint: a hub id, or a folder that is the same on every host of the engine.")
    if model == AtStart.MODEL:
        return f"{about}\n{required('ROADWORTHY_MODEL', 'the checkpoint folder on this host')}"
    return f"{about}\n{default('ROADWORTHY_MODEL', model)}"


def master_address(known: str) -> str:
    """Where the first host of the engine is; asked for when the document does not say."""
    about = comment("The engine's first host, as the others reach it; the same value on all of them.")
    if known:
        return f"{about}\n{default('ROADWORTHY_MASTER_ADDR', known)}"
    return f"{about}\n{required('ROADWORTHY_MASTER_ADDR', 'the address of the first host of this engine')}"


def own_address(known: str) -> str:
    """This host's own address: as known, or the one that the route to the engine's first host leaves from."""
    about = comment("This host's own address on the network that the hosts share; it differs from host to host.")
    if known:
        return f"{about}\n{default('ROADWORTHY_NODE_ADDR', known)}"
    return (
        about
        + """
if [[ -z "${ROADWORTHY_NODE_ADDR:-}" ]]; then
  command -v ip >/dev/null || die "no ip here to find it with: set ROADWORTHY_NODE_ADDR and ROADWORTHY_INTERFACE"
  master_ip="$(address_of "$ROADWORTHY_MASTER_ADDR")" || die "$ROADWORTHY_MASTER_ADDR is not known here"
  ROADWORTHY_NODE_ADDR="$(ip -o route get "$master_ip" | sed -n 's/.* src \\([^ ]*\\).*/\\1/p')"
  [[ -n "$ROADWORTHY_NODE_ADDR" ]] || die "no route to $ROADWORTHY_MASTER_ADDR: set ROADWORTHY_NODE_ADDR"
fi
"""
    )


def interface(known: str) -> str:
    """The interface that holds the host's own address."""
    about = comment("The interface of that address; NCCL and Gloo find each other through it.")
    if known:
        return f"{about}\n{default('ROADWORTHY_INTERFACE', known)}"
    return (
        about
        + """
if [[ -z "${ROADWORTHY_INTERFACE:-}" ]]; then
  command -v ip >/dev/null || die "no ip here to find it with: set ROADWORTHY_INTERFACE"
  own_ip="$(address_of "$ROADWORTHY_NODE_ADDR")" || die "$ROADWORTHY_NODE_ADDR is not known here"
  ROADWORTHY_INTERFACE="$(ip -o addr show to "$own_ip" | awk 'NR == 1 { print $2 }')"
  [[ -n "$ROADWORTHY_INTERFACE" ]] || die "no interface here has $ROADWORTHY_NODE_ADDR: set ROADWORTHY_INTERFACE"
fi
"""
    )


def default(name: str, value: str) -> str:
    """``name`` keeps what the caller set; otherwise it is ``value``, whatever characters that holds."""
    return f'if [[ -z "${{{name}:-}}" ]]; then {name}={word(value)}; fi\n'


def required(name: str, what: str) -> str:
    """The script stops with a message unless the caller set ``name``."""
    return f': "${{{name}:?set it to {what}}}"\n'


def environment(variables: Iterable[Emitted]) -> str:
    """``export`` lines, each under its reason."""
    return "\n".join(_exports(variables)) + "\n"


def _exports(variables: Iterable[Emitted]) -> Iterator[str]:
    for setting in variables:
        yield comment(setting.why)
        yield f"export {setting.name}={word(setting.value)}"


def api_key() -> str:
    """Takes the engine's key from a file that the caller names; it is never in the script."""
    return """\
# The key that requests must carry is a secret: VLLM_API_KEY comes from the environment or from a file. Without one,
# whoever reaches the port may ask.
if [[ -n "${ROADWORTHY_API_KEY_FILE:-}" ]]; then
  VLLM_API_KEY="$(<"$ROADWORTHY_API_KEY_FILE")"
  export VLLM_API_KEY
fi
"""


def search_path(program: str) -> str:
    """Puts the folder that the caller names in front of the search path."""
    return f'# Where {program} is, when it is not on the path.\nPATH="${{ROADWORTHY_BIN:+$ROADWORTHY_BIN:}}$PATH"\n'


def memory_lock() -> str:
    """Says so when RDMA could not register memory."""
    return """\
# RDMA pins memory. A low limit ends in failed registrations, or in NCCL over TCP.
if [[ "$(ulimit -l)" != unlimited ]]; then
  ulimit -l unlimited 2>/dev/null ||
    echo "warning: locked memory is limited to $(ulimit -l) KiB; the target host-prep raises it" >&2
fi
"""
