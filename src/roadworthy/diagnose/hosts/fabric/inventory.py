"""What a host has to measure with: RDMA ports that are up, tools, a Python with torch, GPUs. Asked by a script."""

from __future__ import annotations

import re
from shlex import quote
from types import MappingProxyType

from roadworthy.diagnose.hosts.fabric.values import GBIT, Inventory, Port

PROGRAMS = ("ib_write_bw", "ib_write_lat", "sendrecv_perf", "all_reduce_perf", "mpirun", "timeout")
FOLDERS = (
    "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/cuda/bin", "/opt/nccl-tests/build", "/opt/nccl_tests/build",
    "/usr/local/nccl-tests/build", "/root/nccl-tests/build", "/opt/amazon/openmpi/bin", "/usr/mpi/gcc/openmpi/bin",
)  # fmt: skip
"""Beside PATH: where images and drivers put perftest, nccl-tests and MPI."""
INTERPRETERS = ("python3", "/opt/venv/bin/python3", "/usr/local/bin/python3", "python")
HAS_TORCH = "import importlib.util as u,sys; sys.exit(0 if u.find_spec('torch') else 1)"

ASKS = """\
PATH="$PATH:{folders}"
for t in {programs}; do p=$(command -v "$t" 2>/dev/null) && echo "tool $t $p"; done
if command -v ib_write_bw >/dev/null 2>&1 && ! ib_write_bw --version >/dev/null 2>&1; then
  ib_write_bw --version 2>&1 | grep -q 'shared libraries' && echo "broken ib_write_bw"
fi
for p in {interpreters}; do
  q=$(command -v "$p" 2>/dev/null) || continue
  "$q" -c {has_torch} 2>/dev/null && {{ echo "torch $q"; break; }}
done
if command -v nvidia-smi >/dev/null 2>&1; then
  nvidia-smi -L 2>/dev/null | grep -c '^GPU ' | sed 's/^/gpus /'
  nvidia-smi topo -m 2>/dev/null | grep -qE '^GPU[0-9].*[[:space:]]NV[0-9]+' && echo nvlink
fi
for p in /sys/class/infiniband/*/ports/*; do
  [ -d "$p" ] || continue
  d=${{p%/ports/*}}
  echo "port ${{d##*/}} ${{p##*/}} $(sed 's/.*: *//' "$p/state") $(cut -d' ' -f1 "$p/rate") $(cat "$p/link_layer")"
  for g in "$p"/gids/*; do
    v=$(cat "$g" 2>/dev/null) || continue
    case "$v" in ''|0000:0000:0000:0000:0000:0000:0000:0000|fe80:*) continue;; esac
    echo "gid ${{d##*/}} ${{p##*/}} ${{g##*/}} $v $(cat "$p/gid_attrs/types/${{g##*/}}" 2>/dev/null)"
  done
done
echo asked"""


def inventory_script(python: str | None = None) -> str:
    """Shell text whose output :func:`parse_inventory` reads. ``python`` is tried before the usual interpreters."""
    interpreters = [python] if python else list(INTERPRETERS)
    return ASKS.format(
        folders=":".join(FOLDERS), programs=" ".join(PROGRAMS),
        interpreters=" ".join(quote(one) for one in interpreters), has_torch=quote(HAS_TORCH),
    )  # fmt: skip


def parse_inventory(host: str, text: str, *, hcas: tuple[str, ...] = ()) -> Inventory:
    """The inventory in ``text``. ``hcas`` keeps the ports of these devices alone (``mlx5_0`` or ``mlx5_0:1``), in this
    order. An answer that breaks off is an unanswered host."""
    lines = text.splitlines()
    tools, broken, python, gpus = {}, set(), "", 0
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "tool" and " " in rest:
            name, _, path = rest.partition(" ")
            tools[name] = path
        elif word == "broken":
            broken.add(rest)
        elif word == "torch":
            python = rest
        elif word == "gpus" and rest.isdigit():
            gpus = int(rest)
    return Inventory(
        host=host,
        ports=_chosen(_ports(lines), hcas),
        tools=MappingProxyType({name: path for name, path in tools.items() if name not in broken}),
        python=python,
        gpus=gpus,
        nvlink="nvlink" in lines,
        unanswered="" if "asked" in lines else "the answer breaks off",
    )


def _ports(lines: list[str]) -> list[Port]:
    gids: dict[tuple[str, str], int] = {}
    for line in lines:
        if found := re.match(r"gid (\S+) (\d+) (\d+) (\S+) (.*)$", line):
            device, port, index, _, kind = found.groups()
            if "v2" in kind.lower():
                gids[device, port] = min(int(index), gids.get((device, port), int(index)))
    ports = []
    for line in lines:
        if found := re.match(r"port (\S+) (\d+) (\S+) ([\d.]+) (\S+)$", line):
            device, port, state, rate, layer = found.groups()
            if state.upper() == "ACTIVE":
                ports.append(
                    Port(
                        device=device, port=int(port), rate_bytes_per_s=float(rate) * GBIT or None,
                        ethernet=layer == "Ethernet", gid_index=gids.get((device, port)),
                    )
                )  # fmt: skip
    return sorted(ports, key=lambda one: ([int(n) for n in re.findall(r"\d+", one.device)], one.device, one.port))


def _chosen(ports: list[Port], hcas: tuple[str, ...]) -> tuple[Port, ...]:
    if not hcas:
        return tuple(ports)
    chosen = []
    for hca in hcas:
        device, _, port = hca.partition(":")
        chosen += [one for one in ports if one.device == device and (not port or one.port == int(port))]
    return tuple(chosen)
