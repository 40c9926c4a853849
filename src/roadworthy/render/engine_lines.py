"""The start of every engine of a plan, host by host: the whole `vllm serve` line and its environment, each setting with
its reason. Every target starts engines with these lines and writes them in its own form.

How several hosts form one engine follows vLLM's own multi-node start (`--nnodes`, `--node-rank`, `--master-addr`): the
same line on every host, `--headless` on all but the first. Tensor, pipeline and data parallelism all go through it; a
data-parallel rank is derived from the node rank. With Ray there is one line, on the first host.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from roadworthy.catalog.models import known_models
from roadworthy.core.errors import Infeasible
from roadworthy.render.at_start import AtStart
from roadworthy.render.emit import flag
from roadworthy.render.engine_environment import engine_variables
from roadworthy.render.flag_check import require_flags
from roadworthy.render.model_flags import model_flags
from roadworthy.render.numa import numa_flags
from roadworthy.render.placement import EnginePlace, place_engines
from roadworthy.render.unusable import why_unusable
from roadworthy.spec.values import looks_like_a_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.render.values import Emitted, RenderInput
    from roadworthy.spec.values import Scalar

Backend = Literal["mp", "ray"]

DP_RPC_PORT = 13345
STOP_SECONDS = 120
"""How long requests in progress may take to end when an engine is told to stop."""

_OURS = frozenset(
    {
        "nnodes", "node_rank", "master_addr", "headless", "data_parallel_rank", "data_parallel_start_rank",
        "data_parallel_size_local", "data_parallel_address", "data_parallel_backend", "distributed_executor_backend",
        "data_parallel_multi_port_external_lb", "grpc",
    }
)  # fmt: skip
"""Settings whose value follows from the place of each host; the document's own is left out, with a remark."""
SECRETS = {"hf_token": "HF_TOKEN", "api_key": "VLLM_API_KEY"}
"""Settings that hold a secret, and the variable that the engine reads instead."""
_PLACED = frozenset({"master_port", "data_parallel_rpc_port", "numa_bind", "shutdown_timeout"})
"""Settings of the document that a line takes up in a place of its own."""
_BALANCERS = ("data_parallel_external_lb", "data_parallel_hybrid_lb")
_ENGINE_DEFAULTS = {"enable_prefix_caching": True, "mamba_ssm_cache_dtype": "auto", "kv_cache_dtype": "auto"}
"""What vLLM does anyway; a line without them says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLine:
    """One `vllm serve` on one host.

    Args:
        replica: which independent engine it belongs to.
        host: rank of the host in the cluster.
        node_rank: rank of the host in its engine; ``nodes`` hosts make up the engine.
        head: it is the engine's first host.
        serves: it answers HTTP on ``place.port``; the others only compute.
        model: hub id or folder, or ``AtStart.MODEL``.
        arguments: flags after the model, in a stable order; words by :func:`words`.
        variables: environment of this host.
        known: what the document says of the values filled in at start; a target may offer them as defaults.
    """

    replica: int
    host: int
    node_rank: int
    nodes: int
    head: bool
    serves: bool
    model: str
    place: EnginePlace
    arguments: tuple[Emitted, ...]
    variables: tuple[Emitted, ...]
    known: Mapping[AtStart, str]

    @property
    def argv(self) -> tuple[str, ...]:
        """``serve MODEL --flag value …``; items that are :class:`AtStart` are still to be filled in."""
        return ("serve", self.model, *(word for setting in self.arguments for word in words(setting)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Every line of a deployment, and what of the document's settings no line carries, with the reason."""

    lines: tuple[ServeLine, ...]
    left_out: tuple[Emitted, ...]

    def on_host(self, host: int) -> tuple[ServeLine, ...]:
        return tuple(line for line in self.lines if line.host == host)

    @property
    def endpoints(self) -> tuple[ServeLine, ...]:
        """The lines that answer HTTP: what a gateway or a balancer spreads requests over."""
        return tuple(line for line in self.lines if line.serves)


def words(setting: Emitted) -> tuple[str, ...]:
    """The words of one flag on a command line; a flag that takes several values gives each as a word of its own.

    A value that begins with a dash is joined by ``=``, or the parser would take it for a flag.
    """
    if setting.value is None:
        return (setting.name,)
    if isinstance(setting.value, AtStart):
        return (setting.name, setting.value)
    text = str(setting.value)
    if setting.name in _SEVERAL:
        return (setting.name, *text.split())
    return (f"{setting.name}={text}",) if text.startswith("-") else (setting.name, text)


_SEVERAL = frozenset({"--numa-bind-nodes", "--numa-bind-cpus", "--cudagraph-capture-sizes"})


def launch(inputs: RenderInput, *, backend: Backend = "mp") -> Launch:
    """The lines of every engine, in order of replica and node rank.

    Args:
        backend: ``mp``, vLLM's own multi-node start, or ``ray``: one line for each engine, on its first host.

    Raises:
        Infeasible: the layout does not go evenly over the hosts.
        Unsupported: the engine version does not take one of the flags, or its flags are not known here.
    """
    lines: list[ServeLine] = []
    for place in place_engines(inputs):
        hosts = place.hosts if backend == "mp" else place.hosts[:1]
        lines += [_line(inputs, place, node_rank, backend) for node_rank in range(len(hosts))]
    once = {(one.name, one.value): one for line in lines for one in line.arguments}
    require_flags(inputs.deployment.engine.version, once.values())
    return Launch(lines=tuple(lines), left_out=tuple(_left_out(inputs, place_engines(inputs)[0], backend)))


def model_argument(inputs: RenderInput) -> str:
    """What `vllm serve` is told to load: a hub id, an absolute folder, or ``AtStart.MODEL`` for any other path."""
    config = inputs.deployment.model.config
    if looks_like_a_path(config):
        folder = (config.rsplit("/", 1)[0] or "/") if config.endswith(".json") else config
        return folder if config.startswith("/") else AtStart.MODEL
    for known in known_models():
        names = {name.lower() for name in (known.id, known.repository, *known.aliases)}
        if config.lower() in names:
            if known.id == "tiny":
                return AtStart.MODEL
            return config if "/" in config else known.repository
    return AtStart.MODEL


def _line(inputs: RenderInput, place: EnginePlace, node_rank: int, backend: Backend) -> ServeLine:
    head = node_rank == 0
    style = _balancing(inputs, place, backend)
    serves = head or style != "internal"
    arguments = (
        flag("--served-model-name", inputs.deployment.model.served_name, "what requests put into `model`"),
        *_listening(inputs, place, serves=serves),
        *_degrees(inputs),
        *(_ray_flags(inputs) if backend == "ray" else _node_flags(inputs, place, node_rank, style)),
        *_settings(inputs, place, backend, serves=serves),
        *_model_flags(inputs),
        *(numa_flags(inputs, place) if backend == "mp" else ()),
        flag("--fail-on-environ-validation", None, "a misspelt VLLM_ variable stops the start; otherwise it is ignored",
              "vllm.fail-on-environ-validation"),
    )  # fmt: skip
    return ServeLine(
        replica=place.replica,
        host=place.hosts[node_rank],
        node_rank=node_rank,
        nodes=len(place.hosts),
        head=head,
        serves=serves,
        model=model_argument(inputs),
        place=place,
        arguments=arguments,
        variables=engine_variables(inputs, place, host=place.hosts[node_rank], ray=backend == "ray"),
        known=known_at_start(inputs, place, host=place.hosts[node_rank]),
    )


def known_at_start(inputs: RenderInput, place: EnginePlace, *, host: int) -> Mapping[AtStart, str]:
    """What the document says of ``host`` and of the engine's first host; left out is what it does not say."""
    cluster, master = inputs.deployment.cluster, place.address
    if not master and inputs.chosen.layout.replicas == 1:
        master = str(inputs.deployment.engine.settings.get("master_addr") or "")
    known = {AtStart.MASTER_ADDRESS: cluster.hosts[place.head].address if cluster.hosts else master}
    if cluster.hosts:
        known[AtStart.OWN_ADDRESS] = cluster.hosts[host].address
    elif host == place.head:
        known[AtStart.OWN_ADDRESS] = master
    known[AtStart.INTERFACE] = (cluster.hosts[host].interface if cluster.hosts else None) or cluster.interface or ""
    return MappingProxyType({name: value for name, value in known.items() if value})


def _listening(inputs: RenderInput, place: EnginePlace, *, serves: bool) -> Iterator[Emitted]:
    stop = inputs.deployment.engine.settings.get("shutdown_timeout")
    yield flag("--shutdown-timeout", STOP_SECONDS if stop is None else stop, "requests in progress may end first")
    if not serves:
        return
    if inputs.deployment.cluster.nodes == 1 and not place.address:
        yield flag("--host", "127.0.0.1", "the gateway on this host is the only client; widen it for one elsewhere")
    else:
        yield flag("--host", "0.0.0.0", "the gateway calls from another host; keep the port off public networks")
    yield flag("--port", place.port, "where the gateway finds this engine")


def _degrees(inputs: RenderInput) -> Iterator[Emitted]:
    layout = inputs.chosen.layout
    yield flag("--tensor-parallel-size", layout.tp, f"layout {layout.label}: each layer over {layout.tp} GPUs", "plan")
    if layout.pp > 1:
        stages = " + ".join(str(layers) for layers in layout.stage_layers)
        yield flag("--pipeline-parallel-size", layout.pp, f"stages of {stages} layers", "plan")
    if layout.dp > 1:
        yield flag(
            "--data-parallel-size", layout.dp, "attention is copied, requests are dealt out to the ranks", "plan"
        )
    if layout.ep > 1:
        yield flag(
            "--enable-expert-parallel", None,
            f"whole experts over {layout.ep} GPUs; the flag takes no size, it spans tensor and data parallel ranks",
            "vllm.enable-expert-parallel",
        )  # fmt: skip


Balancing = Literal["internal", "external", "hybrid"]


def _balancing(inputs: RenderInput, place: EnginePlace, backend: Backend) -> Balancing:
    """Who spreads requests over data-parallel ranks: the engine, or the balancer in front of several of its hosts."""
    layout, hosts = inputs.chosen.layout, len(place.hosts)
    asked = {name for name in _BALANCERS if inputs.deployment.engine.settings.get(name) is True}
    if not asked or layout.dp == 1 or hosts == 1 or backend == "ray":
        return "internal"
    if "data_parallel_external_lb" in asked:
        if hosts % layout.dp:
            raise Infeasible(
                f"data_parallel_external_lb with {layout.label}: each of {hosts} hosts would hold several ranks",
                hint="data_parallel_hybrid_lb serves on every host and spreads over the ranks within it",
            )
        return "external"
    if layout.dp % hosts:
        raise Infeasible(
            f"data_parallel_hybrid_lb with {layout.label}: a data-parallel rank spans several of {hosts} hosts",
            hint="leave it out, or use data_parallel_external_lb",
        )
    return "hybrid"


def _node_flags(inputs: RenderInput, place: EnginePlace, node_rank: int, style: Balancing) -> Iterator[Emitted]:
    if len(place.hosts) == 1:
        return
    layout = inputs.chosen.layout
    source = "vllm.nnodes-mp"
    if style == "hybrid":
        local = layout.dp // len(place.hosts)
        source = "vllm.data-parallel-flags"
        yield flag("--data-parallel-size-local", local, "data-parallel ranks of this host", source)
        yield flag("--data-parallel-start-rank", node_rank * local, "the first of them", source)
        yield flag("--data-parallel-address", AtStart.MASTER_ADDRESS, "the engine's first host", source)
        rpc = inputs.deployment.engine.settings.get("data_parallel_rpc_port", DP_RPC_PORT)
        yield flag("--data-parallel-rpc-port", rpc, "where the ranks of other hosts report to the first", source)
        return
    yield flag("--nnodes", len(place.hosts), "vLLM's own multi-node start, without Ray", source)
    yield flag("--node-rank", node_rank, "which of the engine's hosts this is", source)
    yield flag("--master-addr", AtStart.MASTER_ADDRESS, "the engine's first host; the same on all of them", source)
    yield flag("--master-port", place.master_port, "where the ranks meet", source)
    if node_rank and style == "internal":
        yield flag("--headless", None, "this host computes; the first one answers HTTP", source)


def _ray_flags(inputs: RenderInput) -> Iterator[Emitted]:
    layout, host = inputs.chosen.layout, inputs.deployment.cluster.gpus_per_node
    yield flag(
        "--distributed-executor-backend", "ray", "workers are Ray actors; Ray must be in the image",
        "vllm.distributed-executor-backend-ray",
    )  # fmt: skip
    if layout.dp > 1:
        local = min(layout.dp, max(1, host // (layout.tp * layout.pp)))
        yield flag("--data-parallel-backend", "ray", "data-parallel ranks are placed by Ray as well", "vllm.ray-dp")
        yield flag("--data-parallel-size-local", local, "data-parallel ranks of the host that runs this", "vllm.ray-dp")


def _settings(inputs: RenderInput, place: EnginePlace, backend: Backend, *, serves: bool) -> Iterator[Emitted]:
    fixed = inputs.deployment.engine.settings
    gone = {one.name.replace("--no-", "--", 1) for one in _left_out(inputs, place, backend)}
    for name in sorted(inputs.chosen.settings):
        setting = inputs.chosen.settings[name]
        if name in _PLACED or _dashed(name) in gone or (name == "api_server_count" and not serves):
            continue
        yield from _spelt(name, setting.value, setting.why, "engine.settings" if name in fixed else "plan")
    weights = inputs.deployment.model.weights
    if weights == "fp8" and inputs.model.family not in {"deepseek_v4", "kimi_k3"} and "quantization" not in fixed:
        yield flag(
            "--quantization", "fp8", "model.weights: fp8; the engine requantises while it loads", "model.weights"
        )


def _spelt(name: str, value: Scalar, why: str, source: str) -> Iterator[Emitted]:
    if isinstance(value, bool):
        yield flag(_dashed(name) if value else _dashed(f"no_{name}"), None, why, source)
    else:
        yield flag(_dashed(name), value, why, source)


def _model_flags(inputs: RenderInput) -> Iterator[Emitted]:
    fixed = inputs.deployment.engine.settings
    for one in model_flags(inputs.model, inputs.chosen.layout, inputs.gpu):
        name = one.name.removeprefix("--no-").removeprefix("--").replace("-", "_")
        if name not in fixed:
            yield one


def _left_out(inputs: RenderInput, place: EnginePlace, backend: Backend) -> Iterator[Emitted]:
    """Settings of plan and document that the lines of this engine do not carry, with the reason."""
    for name, setting in sorted(inputs.chosen.settings.items()):
        given = name in inputs.deployment.engine.settings
        if setting.value is None:
            yield flag(_dashed(name), None, setting.why, "plan")
        elif not given and setting.value == _ENGINE_DEFAULTS.get(name):
            yield from _spelt(name, setting.value, f"the engine does it anyway: {setting.why}", "plan")
        elif name in SECRETS:
            yield flag(_dashed(name), None, f"a secret has no place in a file: set {SECRETS[name]} where it starts")
        elif given and (why := _why_unused(name, setting.value, inputs, place, backend)):
            yield from _spelt(name, setting.value, why, "engine.settings")


def _why_unused(name: str, value: Scalar, inputs: RenderInput, place: EnginePlace, backend: Backend) -> str:
    """Why a setting of the document has no place on these lines; empty when it has one."""
    if name in _OURS:
        return "follows from the place of each host, so the document's own value is not used"
    if name in _BALANCERS and _balancing(inputs, place, backend) == "internal":
        return "the data-parallel ranks of this engine have one endpoint: there is one host to serve on"
    return why_unusable(name, value, inputs)


def _dashed(name: str) -> str:
    return "--" + name.replace("_", "-")
