"""Target ``systemd``: for each host its units, its scripts, the variables that an operator fills in, and an installer.

A unit starts the same script as the target ``vllm``: one place where quoting matters, and what an operator tries by
hand is what runs at boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.emit import field
from roadworthy.render.engine_environment import READY_TIMEOUT_S
from roadworthy.render.engine_lines import STOP_SECONDS, Launch, ServeLine, launch
from roadworthy.render.names import object_name
from roadworthy.render.scripts import engine_script
from roadworthy.render.shell import comment, plain_line, word
from roadworthy.render.systemd_readme import readme
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.render.values import Emitted, RenderInput

USER = "roadworthy"
START_MARGIN_S, STOP_MARGIN_S = 300, 60


def systemd_target(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``node-N/`` for each host and ``README.md``."""
    plan = launch(inputs)
    hosts = sorted({line.host for line in plan.lines})
    files = [file for host in hosts for file in _host(inputs, plan, host)]
    return (*files, Artifact(path="README.md", text=readme(inputs, plan)))


def unit_name(inputs: RenderInput, line: ServeLine) -> str:
    """``roadworthy-NAME-engine-0.service``."""
    return f"{USER}-{object_name(inputs.deployment.name)}-engine-{line.replica}.service"


def library_folder(inputs: RenderInput) -> str:
    """Where the installer puts scripts on a host."""
    return f"/usr/local/lib/{USER}/{object_name(inputs.deployment.name)}"


def settings_folder(inputs: RenderInput) -> str:
    """Where a host keeps what no document holds: addresses, the key."""
    return f"/etc/{USER}/{object_name(inputs.deployment.name)}"


def _host(inputs: RenderInput, plan: Launch, host: int) -> Iterator[Artifact]:
    lines = plan.on_host(host)
    for line in lines:
        unit, settings = _unit(inputs, line)
        yield Artifact(
            path=f"node-{host}/engine-{line.replica}.sh", text=engine_script(inputs, plan, line), mode=0o755, node=host,
            settings=(*line.variables, *line.arguments),
        )  # fmt: skip
        yield Artifact(path=f"node-{host}/{unit_name(inputs, line)}", text=unit, node=host, settings=settings)
        if line.serves:
            name = f"node-{host}/wait-for-engine-{line.replica}.sh"
            yield Artifact(path=name, text=_wait(line), mode=0o755, node=host)
    yield Artifact(path=f"node-{host}/engine.env", text=_variables(lines), mode=0o600, node=host)
    yield Artifact(path=f"node-{host}/{USER}.sysusers", text=_SYSUSERS, node=host)
    yield Artifact(path=f"node-{host}/install.sh", text=_install(inputs, lines), mode=0o755, node=host)


_SYSUSERS = f"""\
# The account that engines run as: no shell, no password.
u {USER} - "vLLM engines" /var/lib/{USER}
"""


def _unit(inputs: RenderInput, line: ServeLine) -> tuple[str, tuple[Emitted, ...]]:
    """The unit's text, and its settings for the table."""
    sections = {"Unit": _about(inputs, line), "Service": _service(inputs, line), "Install": _INSTALL}
    text = [comment("Written by `roadworthy render`: change the document and render again rather than this file.")]
    for section, settings in sections.items():
        text.append(f"\n[{section}]")
        for setting in settings:
            text += [comment(setting.why), f"{setting.name}={_value(setting)}"]
    return "\n".join(text) + "\n", tuple(setting for settings in sections.values() for setting in settings)


def _value(setting: Emitted) -> str:
    """A value as a unit file has it: one line, no specifier, no continuation."""
    text = plain_line("" if setting.value is None else str(setting.value))
    return text.replace("%", "%%").replace("\\", "\\\\") if setting.name == "Description" else text


def _about(inputs: RenderInput, line: ServeLine) -> tuple[Emitted, ...]:
    what = f"vLLM engine {line.replica} of {inputs.deployment.name}, node {line.node_rank} of {line.nodes}"
    return (
        field("Description", what, "what `systemctl status` shows"),
        field(
            "After", "network-online.target nvidia-persistenced.service nvidia-fabricmanager.service",
            "the ranks meet over the network, and on NVSwitch hosts CUDA starts only once the fabric is up",
            "host.fabricmanager",
        ),
        field("Wants", "network-online.target", "waits for addresses, not only for the link"),
        field("StartLimitIntervalSec", 7200, "counts restarts over two hours, since one load takes up to one"),
        field("StartLimitBurst", 4, "a start that keeps failing stops, and is seen, instead of loading for ever"),
    )  # fmt: skip


def _service(inputs: RenderInput, line: ServeLine) -> tuple[Emitted, ...]:
    folder = library_folder(inputs)
    stop = inputs.deployment.engine.settings.get("shutdown_timeout")
    stop_s = int(stop) if isinstance(stop, (int, float)) else STOP_SECONDS
    waits = (
        (
            field(
                "ExecStartPost", f"/usr/bin/env bash {folder}/wait-for-engine-{line.replica}.sh",
                "the unit counts as started once the engine answers, so what comes after it finds it ready",
            ),
        )
        if line.serves
        else ()
    )  # fmt: skip
    return (
        field("Type", "exec", "the script becomes `vllm serve`; vLLM sends systemd no signal of its own"),
        field("ExecStart", f"/usr/bin/env bash {folder}/engine-{line.replica}.sh", "the script beside this unit"),
        *waits,
        field(
            "EnvironmentFile", f"-{settings_folder(inputs)}/engine.env",
            "addresses of this host and the key; readable by root alone, and not in the unit",
        ),
        *_patience(stop_s),
        *_account(),
        *_limits(),
        *_hardening(),
    )  # fmt: skip


def _patience(stop_s: int) -> tuple[Emitted, ...]:
    return (
        field(
            "TimeoutStartSec", READY_TIMEOUT_S + START_MARGIN_S,
            "loading a checkpoint takes tens of minutes; the engine itself gives up before this", "env.timeouts",
        ),
        field("TimeoutStopSec", stop_s + STOP_MARGIN_S, f"{stop_s} s for requests in progress, then what is left"),
        field("KillMode", "mixed", "the server is told to stop and tells its workers; what remains is killed"),
        field("Restart", "on-failure", "a lost rank ends the engine; only a new start brings it back"),
        field("RestartSec", 20, "lets the other hosts of the engine notice and end first"),
        field("RestartPreventExitStatus", "2 127", "wrong arguments, a missing address or program stay wrong"),
    )  # fmt: skip


def _account() -> tuple[Emitted, ...]:
    return (
        field("User", USER, "no rights beyond GPUs and its folders"),
        field("StateDirectory", USER, "home of the account: compile caches survive restarts"),
        field("CacheDirectory", USER, "checkpoints that the engine fetches itself"),
        field("Environment", f"HOME=/var/lib/{USER} HF_HOME=/var/cache/{USER}/huggingface", "where those folders are"),
        field("WorkingDirectory", f"/var/lib/{USER}", "a place that the account may write"),
    )


def _limits() -> tuple[Emitted, ...]:
    return (
        field("LimitMEMLOCK", "infinity", "RDMA and pinned buffers fail under a limit", "host.memlock"),
        field("LimitNOFILE", 1_048_576, "sockets of ranks and clients, and shards of the checkpoint"),
        field("TasksMax", "infinity", "threads of all workers count together"),
        field(
            "OOMScoreAdjust", 200,
            "when the host runs out of memory the engine goes before the daemons that keep the host reachable",
            "ray.oom_score_adj",
        ),
        field("OOMPolicy", "stop", "an engine that lost a process is lost: end the rest and start again"),
    )  # fmt: skip


def _hardening() -> tuple[Emitted, ...]:
    return (
        field("NoNewPrivileges", "yes", "nothing the engine starts gains rights"),
        field("ProtectSystem", "strict", "the system is read-only but for the folders above"),
        field("ProtectHome", "read-only", "checkpoints below /home stay readable"),
        field("PrivateTmp", "yes", "kernels compiled to /tmp are not shared with other users"),
        field("ProtectKernelTunables", "yes", "reads /sys and /proc, writes neither"),
        field("ProtectKernelModules", "yes", "drivers are loaded before the engine starts"),
        field("ProtectControlGroups", "yes", "no use of them"),
        field("RestrictSUIDSGID", "yes", "creates no such files"),
        field("LockPersonality", "yes", "no use of it"),
        field("SystemCallArchitectures", "native", "no 32-bit calls"),
        field(
            "DevicePolicy", "auto",
            "GPUs and RDMA devices stay open: PrivateDevices=, ProtectClock= and a DeviceAllow= list would close them",
        ),
        field("MemoryDenyWriteExecute", "no", "kernels are compiled while the engine runs"),
    )  # fmt: skip


_INSTALL = (field("WantedBy", "multi-user.target", "starts at boot once enabled"),)


def _wait(line: ServeLine) -> str:
    port = line.place.port
    host = next((str(setting.value) for setting in line.arguments if setting.name == "--host"), "127.0.0.1")
    address = "127.0.0.1" if host == "0.0.0.0" else host
    return f"""\
#!/usr/bin/env bash
# Returns once the engine answers on port {port}; fails when its process has ended.
set -euo pipefail

: "${{MAINPID:?systemd sets it for ExecStartPost}}"
while kill -0 "$MAINPID" 2>/dev/null; do
  # bash opens the connection itself, so that no other program is needed
  if exec 3<>/dev/tcp/{address}/{port}; then
    printf 'GET /health HTTP/1.1\\r\\nHost: {address}\\r\\nConnection: close\\r\\n\\r\\n' >&3
    status=''
    read -r -t 10 _ status _ <&3 || true
    exec 3>&-
    if [[ $status == 200 ]]; then exit 0; fi
  fi 2>/dev/null
  sleep 5
done
echo "the engine ended before it answered" >&2
exit 1
"""


def _variables(lines: tuple[ServeLine, ...]) -> str:
    """``engine.env``: a line for every variable that the scripts take, filled in where the document says it."""
    known = {name: value for line in lines for name, value in line.known.items()}
    used = {setting.value for line in lines for setting in (*line.arguments, *line.variables)}
    used |= {line.model for line in lines}
    rows = [
        comment("Read by systemd as root. NAME=value, no shell. Uncomment what you set; secrets belong here."),
        comment("The key that requests must carry:"),
        "#VLLM_API_KEY=",
        *((comment("For a hub id that asks for one:"), "#HF_TOKEN=") if _from_a_hub(lines[0].model) else ()),
        comment("Where `vllm` is, when not on the path of services:"),
        "#ROADWORTHY_BIN=/opt/vllm/bin",
    ]
    for name, variable, about in _ASKED:
        if name not in used:
            continue
        value = known.get(name, "")
        state = " (the document says it)" if value else ""
        rows += [comment(f"{about}{state}:"), f"#{variable}={value}"]
    needed = AtStart.MODEL in used
    about = "The checkpoint folder on this host; needed" if needed else "A folder in place of what the document names"
    rows += [comment(f"{about}:"), "#ROADWORTHY_MODEL="]
    return "\n".join(rows) + "\n"


_ASKED = (
    (AtStart.MASTER_ADDRESS, "ROADWORTHY_MASTER_ADDR", "The engine's first host, the same on all its hosts"),
    (AtStart.OWN_ADDRESS, "ROADWORTHY_NODE_ADDR", "This host's own address; found from the route when left out"),
    (AtStart.INTERFACE, "ROADWORTHY_INTERFACE", "The interface of that address; found from it when left out"),
)


def _from_a_hub(model: str) -> bool:
    return model != AtStart.MODEL and not model.startswith("/")


def _install(inputs: RenderInput, lines: tuple[ServeLine, ...]) -> str:
    scripts = " ".join(
        word(name)
        for line in lines
        for name in (f"engine-{line.replica}.sh", *((f"wait-for-engine-{line.replica}.sh",) if line.serves else ()))
    )
    units = " ".join(word(unit_name(inputs, line)) for line in lines)
    return f"""\
#!/usr/bin/env bash
# Puts the files beside it into their places on this host, as root. Starts nothing. A filled-in engine.env stays.
set -euo pipefail
cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")"

install -D -m 0644 {USER}.sysusers /usr/lib/sysusers.d/{USER}.conf
systemd-sysusers {USER}.conf
install -d -m 0755 {word(library_folder(inputs))}
install -m 0755 {scripts} {word(library_folder(inputs))}
install -d -m 0750 {word(settings_folder(inputs))}
if [[ ! -e {word(settings_folder(inputs) + "/engine.env")} ]]; then
  install -m 0600 engine.env {word(settings_folder(inputs))}
fi
install -m 0644 {units} /etc/systemd/system/
systemctl daemon-reload
echo "fill in {settings_folder(inputs)}/engine.env, then: systemctl enable --now {units}"
"""
