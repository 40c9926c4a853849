"""What a capture asks a host, as one POSIX shell script that runs the same here, over ssh and in a pod.

Every question has a time limit. A tool that is not there is told apart from one that found nothing: "could not look" is
never "fine". The script changes nothing on the host.

In a pod the host's root is mounted at ``$ROADWORTHY_ROOT``. Questions about the host are asked in there; those about
what an engine's pod would get (limits, shared memory, packages) in the pod; and a tool that the image lacks is the
host's. ``$ROADWORTHY_NODE`` names the host in the output, so that one log may hold many.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

BEGIN, END = "@@@ begin", "@@@ end"
NODE, WHOLE = "@@@ host", "@@@ whole"
ROOT_VARIABLE, NODE_VARIABLE = "ROADWORTHY_ROOT", "ROADWORTHY_NODE"
LINES_MOST = 20_000
"""Of one answer; `lspci -vvv` of a large host has about 10,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One command of a capture.

    Args:
        file: name of the answer in the capture folder.
        run: shell text; several commands may stand in it.
        tool: program that must be there, empty for shell and /proc alone.
        about: what it is asked for, in the words of the report.
        of_host: it is the host's matter, wherever the script runs: in a pod it is asked in the host's root.
    """

    file: str
    run: str
    about: str
    tool: str = ""
    limit_s: int = 10
    of_host: bool = False


def _question(file: str, run: str, about: str, *, tool: str = "", limit_s: int = 10, of_host: bool = False) -> Question:
    return Question(file=file, run=run, about=about, tool=tool, limit_s=limit_s, of_host=of_host)


QUESTIONS = (
    _question("host.txt", "uname -a; cat /etc/os-release 2>/dev/null | head -4; nproc", "kernel and processors", of_host=True),
    _question("date.txt", "date -u +%s.%N", "clock"),
    # GPUs
    _question("nvidia-smi.txt", "nvidia-smi", "GPUs, driver, memory, processes", tool="nvidia-smi", limit_s=20),
    _question("nvidia-smi-q.txt", "nvidia-smi -q", "ECC, remapped rows, clocks, fabric", tool="nvidia-smi", limit_s=30),
    _question("nvidia-smi-topo.txt", "nvidia-smi topo -m", "topology of GPUs and NICs", tool="nvidia-smi", limit_s=20),
    _question("nvidia-smi-nvlink.txt", "nvidia-smi nvlink --status; nvidia-smi nvlink -e", "NVLink", tool="nvidia-smi", limit_s=20),
    _question(
        "nvidia-smi.csv",
        "nvidia-smi --query-gpu=index,utilization.gpu,power.draw,power.limit,clocks.sm,temperature.gpu,"
        "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,pci.bus_id --format=csv",
        "PCIe links, clocks, power", tool="nvidia-smi", limit_s=20,
    ),
    _question("proc-version.txt", "cat /proc/driver/nvidia/version", "kernel module of the driver", tool=""),
    _question(
        "fabric-manager.txt", "systemctl status nvidia-fabricmanager --no-pager --lines 20", "Fabric Manager", tool="systemctl",
        of_host=True,
    ),
    _question(
        "gpu-numa.txt",
        "for d in /sys/bus/pci/devices/*; do "
        'case "$(cat "$d/vendor" 2>/dev/null):$(cat "$d/class" 2>/dev/null)" in 0x10de:0x03*) '
        'echo "gpu ${d##*/} numa_node: $(cat "$d/numa_node")";; esac; done',
        "NUMA node of each GPU",
    ),
    # NICs and RDMA
    _question("ibstat.txt", "ibstat", "InfiniBand and RoCE ports", tool="ibstat"),
    _question(
        "rdma.txt",
        "for p in /sys/class/infiniband/*/ports/*; do [ -d \"$p\" ] || continue; d=${p%/ports/*}; d=${d##*/}; "
        "printf 'CA '\"'\"'%s'\"'\"'\\n\\tState: %s\\n\\tPhysical state: %s\\n\\tRate: %s\\n\\tLink layer: %s\\n\\tnuma_node: %s\\n\\tnetdev: %s\\n\\tnetdev_mtu: %s\\n' "
        '"$d" "$(sed "s/.*: //" "$p/state")" "$(sed "s/.*: //" "$p/phys_state")" "$(cut -d" " -f1 "$p/rate")" '
        '"$(cat "$p/link_layer")" "$(cat "/sys/class/infiniband/$d/device/numa_node")" '
        '"$(ls "/sys/class/infiniband/$d/device/net" 2>/dev/null | head -n 1)" '
        '"$(cat "/sys/class/infiniband/$d"/device/net/*/mtu 2>/dev/null | head -n 1)"; done',
        "RDMA ports by sysfs",
    ),
    _question(
        "gids.txt",
        "for p in /sys/class/infiniband/*/ports/*; do [ -d \"$p\" ] || continue; for g in \"$p\"/gids/*; do "
        'v=$(cat "$g"); case "$v" in 0000:0000:0000:0000:0000:0000:0000:0000|"") continue;; esac; '
        'i=${g##*/}; echo "$g $v"; echo "$p/gid_attrs/types/$i $(cat "$p/gid_attrs/types/$i" 2>/dev/null)"; done; done',
        "GIDs", limit_s=20,
    ),
    _question(
        "hw_counters.txt",
        "grep -H . /sys/class/infiniband/*/ports/*/counters/* /sys/class/infiniband/*/ports/*/hw_counters/* 2>/dev/null | "
        "sed 's/:\\([0-9]*\\)$/ \\1/'",
        "port counters", limit_s=20,
    ),
    _question(
        "ethtool.txt",
        "for n in /sys/class/net/*; do i=${n##*/}; [ -e \"$n/device\" ] || continue; ethtool \"$i\"; "
        "ethtool -S \"$i\" 2>/dev/null | grep -E 'discard|pause|prio[0-9]_|out_of_buffer|drop' | head -80; done",
        "link speed, drops, pause", tool="ethtool", limit_s=30,
    ),
    _question(
        "mlnx_qos.txt", "for n in /sys/class/net/*; do [ -e \"$n/device/infiniband\" ] && mlnx_qos -i \"${n##*/}\"; done; :",
        "PFC, trust and DSCP", tool="mlnx_qos", limit_s=20,
    ),
    _question("ecn.txt", "grep -H . /sys/class/net/*/ecn/roce_*/enable/*", "ECN of RoCE"),
    _question("ip-addr.txt", "ip addr", "addresses", tool="ip"),
    _question("ip-link.txt", "ip -d link", "MTU and state of interfaces", tool="ip"),
    _question("infiniband-devices.txt", "ls -l /dev/infiniband", "RDMA devices", of_host=True),
    # topology and PCIe
    _question("lscpu.txt", "lscpu", "sockets and NUMA nodes", tool="lscpu"),
    _question("lspci.txt", "lspci -vvv", "ACS and PCIe links", tool="lspci", limit_s=30),
    _question("cmdline.txt", "cat /proc/cmdline", "IOMMU of the kernel command line"),
    _question("lsmod.txt", "cat /proc/modules", "peer memory module"),
    _question("module-versions.txt", "cat /sys/module/nvidia_peermem/version /sys/module/nvidia/version", "driver modules"),
    # limits, memory, disks
    _question("limits.txt", "cat /proc/self/limits; [ -z \"$ROADWORTHY_ROOT\" ] || grep CapEff /proc/self/status", "locked memory and open files"),
    _question("df.txt", "df -h", "disks and /dev/shm", tool="df"),
    _question("ls-shm.txt", "ls -la /dev/shm; df -h /dev/shm", "left-over shared memory"),
    _question("shm-owners.txt", "fuser -v /dev/shm/* 2>&1 | head -200", "owners of shared memory", tool="fuser", limit_s=20),
    _question("meminfo.txt", "cat /proc/meminfo", "memory and huge pages"),
    _question("free.txt", "free -g", "free memory", tool="free"),
    _question(
        "cgroup.txt",
        "for f in cpu.max cpu.stat memory.max memory.events pids.max; do "
        "[ -r /sys/fs/cgroup/$f ] && { echo \"# $f\"; cat /sys/fs/cgroup/$f; }; done; :",
        "limits of the container",
    ),
    _question("mounts.txt", "cat /proc/mounts", "file system of the weights"),
    _question(
        "sysctl.txt",
        "for k in vm.overcommit_memory vm.max_map_count vm.nr_hugepages net.core.rmem_max net.core.wmem_max "
        "net.ipv4.ip_local_port_range kernel.numa_balancing fs.file-max; do "
        "echo \"$k = $(cat /proc/sys/$(echo $k | tr . /) 2>/dev/null)\"; done",
        "kernel settings",
    ),
    # clocks, processes, versions
    _question("chronyc.txt", "chronyc tracking", "clock offset", tool="chronyc", of_host=True),
    _question("timedatectl.txt", "timedatectl", "clock synchronisation", tool="timedatectl", of_host=True),
    _question("ps.txt", "ps -eo pid,ppid,stat,etime,cmd | grep -E 'PID|vllm|VLLM|sglang|ray::|raylet|gcs_server' | grep -v grep | sed -E 's/(--?[A-Za-z-]*(key|token|secret|password)[A-Za-z-]*[= ])[^ ]+/\\1***/g'", "engines that run", tool="ps", of_host=True),
    _question("ports.txt", "ss -ltn", "ports in use", tool="ss"),
    _question("dmesg.txt", "dmesg -T 2>/dev/null | tail -n 5000", "kernel messages", tool="dmesg", of_host=True),
    _question(
        "pip-list.txt",
        "for p in python3 /opt/venv/bin/python; do command -v $p >/dev/null && $p -m pip list 2>/dev/null | "
        "grep -iE '^(torch|vllm|ray|transformers|nvidia-nccl|nixl|flashinfer|sglang)'; done; :",
        "versions of engine and libraries", limit_s=30,
    ),
    _question(
        "env.txt", "env | grep -E '^(NCCL|GLOO|VLLM|RAY|UCX|CUDA_VISIBLE|NVIDIA_VISIBLE|HF_HUB_OFFLINE|HF_ENDPOINT)' | grep -viE 'key|token|secret|password'; :",
        "settings of the environment",
    ),
)  # fmt: skip


def capture_script(*, weights: str | None = None) -> str:
    """The script whose output :func:`parse_capture` reads.

    Args:
        weights: folder of the weights, to read 256 MB of one file and say how fast; None leaves that out.
    """
    questions = [*QUESTIONS, *([_weights(weights)] if weights else [])]
    return "\n".join([HEAD, *(_asked(one) for one in questions), f'[ -z "$NODE" ] || echo "{WHOLE}"', "exit 0", ""])


HEAD = f"""\
#!/bin/sh
# Asks this host what a model service needs to know of it. Changes nothing.
PATH="$PATH:/usr/sbin:/sbin"
ROOT="${ROOT_VARIABLE}" NODE="${NODE_VARIABLE}"
[ -z "$NODE" ] || echo "{NODE} $NODE"
here() {{ [ -z "$1" ] || command -v "$1" >/dev/null 2>&1; }}
there() {{ [ -n "$ROOT" ] && chroot "$ROOT" sh -c 'PATH="$PATH:/usr/sbin:/sbin"; [ -z "$1" ] || command -v "$1"' sh "$1" >/dev/null 2>&1; }}
ask() {{
  echo "{BEGIN} $1"
  in_root=
  if [ "$5" = host ] && there "$3"; then in_root="chroot $ROOT"
  elif here "$3"; then :
  elif there "$3"; then in_root="chroot $ROOT"
  else
    echo "{END} $1 missing"
    return
  fi
  limited=; command -v timeout >/dev/null 2>&1 && limited="timeout -k 2 $2"
  $limited $in_root sh -c "$4" 2>&1 | head -n {LINES_MOST}
  echo "{END} $1 done"
}}"""


def _asked(one: Question) -> str:
    # the status of a pipe is that of `head`, so a time-out is told by a mark of its own
    run = f"( {one.run} ); echo '@@@ rc '$?"
    return f"ask {quote(one.file)} {one.limit_s} {quote(one.tool)} {quote(run)} {'host' if one.of_host else 'any'}"


def _weights(folder: str) -> Question:
    run = (
        f"f=$(find {quote(folder)} -name '*.safetensors' -type f 2>/dev/null | head -n 1); "
        'if [ -n "$f" ]; then dd if="$f" of=/dev/null bs=16M count=16 iflag=direct 2>&1 || '
        "dd if=\"$f\" of=/dev/null bs=16M count=16; else echo 'no *.safetensors there'; fi"
    )
    return Question(file="weights-read.txt", run=run, about="read speed of the weights", limit_s=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. ``status`` is ``answered``, ``missing`` (no such tool), ``timed out`` or ``failed`` (the command
    ended with an error; its text may still say something)."""

    file: str
    text: str
    status: str


def parse_capture(output: str) -> tuple[Answer, ...]:
    """Answers in the order asked. An answer without an end, because the connection broke, is ``timed out``."""
    answers: list[Answer] = []
    name = ""
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith(BEGIN + " "):
            name, lines = line[len(BEGIN) + 1 :].strip(), []
        elif line.startswith(f"{END} {name} ") and name:
            answers.append(_answer(name, lines, ended=line.rsplit(" ", 1)[1]))
            name = ""
        elif name:
            lines.append(line)
    if name:
        answers.append(_answer(name, lines, ended="broken"))
    return tuple(answers)


def _answer(name: str, lines: list[str], *, ended: str) -> Answer:
    code = next((line.rsplit(" ", 1)[1] for line in reversed(lines) if line.startswith("@@@ rc ")), None)
    kept = [line for line in lines if not line.startswith("@@@ rc ")]
    text = "\n".join(kept) + ("\n" if kept else "")
    if ended == "missing":
        return Answer(file=name, text="", status="missing")
    if code is None:
        return Answer(file=name, text=text, status="timed out")
    return Answer(file=name, text=text, status="answered" if code == "0" else "failed")
