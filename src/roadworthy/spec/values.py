"""The deployment document as frozen values. ``load`` builds them; everything else only reads them.

Every field carries its unit in its name. Defaults live here and nowhere else; ``schema`` describes the same fields
for people (validation, hints, JSON Schema, the reference page) and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from roadworthy.spec.gateway_values import DocumentsSpec, TlsSpec
from roadworthy.spec.governance_values import GovernanceSpec
from roadworthy.spec.kubernetes import KubernetesSpec
from roadworthy.spec.routing_values import Lanes, RoutingSpec
from roadworthy.spec.workload_values import Quantiles as Quantiles
from roadworthy.spec.workload_values import RequestProfile as RequestProfile
from roadworthy.spec.workload_values import Sessions as Sessions

if TYPE_CHECKING:
    from collections.abc import Mapping

Scalar = str | int | float | bool | None

Weights = Literal["native", "fp8", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """Which model: a path to a checkpoint folder or config.json, a catalog id, or ``tiny``.

    ``weights`` is ``native`` (as the checkpoint stores them) or a requantisation of every linear layer.
    ``max_model_len_tokens`` None means the plan chooses. ``served_name`` is what requests call the model; left empty
    it becomes ``config``, and for a path the name of the checkpoint's folder.
    """

    config: str
    weights: Weights = "native"
    max_model_len_tokens: int | None = None
    served_name: str = ""

    def __post_init__(self) -> None:
        if not self.served_name:
            object.__setattr__(self, "served_name", default_served_name(self.config))


def looks_like_a_path(config: str) -> bool:
    """Whether ``model.config`` names a file or folder by its form, rather than a model by its id."""
    return config.startswith(("/", "./", "../", "~")) or config in {".", ".."} or config.endswith((".json", "/"))


def default_served_name(config: str) -> str:
    """The id itself, or for a path the folder that holds the checkpoint."""
    if not looks_like_a_path(config):
        return config
    parts = [part for part in config.split("/") if part not in {"", ".", "..", "~"}]
    if parts and parts[-1].endswith(".json"):
        parts.pop()
    return parts[-1] if parts else config


@dataclass(frozen=True, slots=True, kw_only=True)
class Nics:
    """NICs of one kind in each node; ``rate_bytes_per_s`` is one direction of one NIC."""

    count: int
    rate_bytes_per_s: float


Fabric = Literal["infiniband", "ethernet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One node by name. ``interface`` and ``hcas`` stand in for the cluster's where a node differs."""

    address: str
    interface: str | None = None
    hcas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The rack. Device memory is what the driver reports and comes from the catalog, never from the card's name.

    ``nvlink_bytes_per_s`` is the total of both directions per GPU as vendors print it (900 GB/s on H100), None means
    the catalog's figure for the GPU. The fields from ``hosts`` on are for start files alone: ``hosts`` in order of node
    rank, ``interface`` of the management network, ``hcas`` of the compute NICs as RDMA names them, ``gpu_numa_nodes``
    the socket of each GPU of a node, ``roce_dscp`` the traffic class that the switches keep lossless.
    """

    nodes: int = 1
    gpus_per_node: int = 1
    gpu: str = "cpu"
    nvlink_bytes_per_s: float | None = None
    nics: tuple[Nics, ...] = ()
    hosts: tuple[Host, ...] = ()
    interface: str | None = None
    hcas: tuple[str, ...] = ()
    fabric: Fabric | None = None
    gpu_numa_nodes: tuple[int, ...] = ()
    roce_dscp: int | None = None

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An engine that already runs: scheme, host and port, no path; ``kv_events`` are where it publishes what its prefix
    cache holds, an address for each data-parallel rank."""

    url: str
    kv_events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """The engine and what the operator fixed of its settings (engine spelling, such as ``max_num_seqs``)."""

    name: Literal["vllm"] = "vllm"
    version: str = "0.33.0"
    endpoints: tuple[Endpoint, ...] = ()
    # a read-only mapping cannot be hashed; leaving it out keeps equal documents equal in hash
    settings: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla:
    """Objectives; None means not promised. ``success_ratio`` is completed / asked; ``goodput_per_s`` and
    ``goodput_ratio`` are the two ways to ask for goodput, at most one is set."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    success_ratio: float | None = None
    goodput_per_s: float | None = None
    goodput_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One customer of the service. The key is given here or in the environment variable ``key_env``; it is masked
    in ``repr``. ``models`` empty means all. ``priority`` follows the engine: lower goes first. ``scopes`` are those of
    the key given here."""

    id: str
    key: str | None = field(default=None, repr=False)
    key_env: str | None = None
    weight: float = 1.0
    priority: int = 0
    kv_quota_bytes: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    daily_tokens: int | None = None
    concurrency: int | None = None
    models: tuple[str, ...] = ()
    fallback: str | None = None
    scopes: tuple[Literal["trusted-caller"], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """Where the gateway listens; port 0 means a free one. The two listeners are separate on purpose."""

    host: str = "127.0.0.1"
    port: int = 0
    admin_port: int = 0
    workers: int = 1
    state_url: str | None = None
    shared_url: str | None = None
    tls: TlsSpec = field(default_factory=TlsSpec)
    documents: DocumentsSpec = field(default_factory=DocumentsSpec)
    access_log: str | None = None
    otlp_endpoint: str | None = None
    first_byte_timeout_s: float = 600.0
    remote_media: Literal["refuse", "allow"] = "refuse"
    routing: RoutingSpec = field(default_factory=RoutingSpec)
    lanes: Lanes = field(default_factory=Lanes)


Need = Literal["customisation", "audit", "sla", "capacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    """The API that the service is compared with; None means the catalog's dated figure for ``name``, or for the model.

    Prices are per million tokens, off peak. ``peak_hours`` are hours of the day in UTC, ``peak_days`` the days of a
    week that have them.
    """

    name: str | None = None
    input_miss: float | None = None
    input_hit: float | None = None
    output: float | None = None
    peak_multiplier: float | None = None
    peak_hours: tuple[int, ...] | None = None
    peak_days: int | None = None
    concurrency: int | None = None
    date: str | None = None

    @property
    def prices(self) -> bool:
        """Whether the document states a price itself."""
        return any(price is not None for price in (self.input_miss, self.input_hit, self.output))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSpec:
    """Money, in ``currency``; None means the catalog's dated figure. There are three ways to say the fixed cost:
    ``fixed_per_month`` (all of it), ``gpu_hour`` (hardware, power and space), or the parts of a purchase from
    ``capex`` on. ``utilisation_ratio`` is the month's mean share of the throughput that the plan serves within the
    SLA; ``utilisation_by_hour`` says the same hour by hour (UTC) and goes before it."""

    currency: str = "USD"
    usd_rate: float | None = None
    gpu_hour: float | None = None
    fixed_per_month: float | None = None
    capex: float | None = None
    months: int | None = None
    interest_ratio: float | None = None
    resale_ratio: float | None = None
    power_per_gpu_w: float | None = None
    node_power_w: float | None = None
    pue: float | None = None
    kwh_price: float | None = None
    space_per_kw: float | None = None
    maintenance_ratio: float | None = None
    staff_per_month: float | None = None
    network_per_month: float | None = None
    other_per_month: float | None = None
    spare_nodes: int = 0
    variable_per_mtok: float = 0.0
    utilisation_ratio: float = 0.5
    utilisation_by_hour: tuple[float, ...] = ()
    api: ApiSpec = ApiSpec()
    hit_ratio: float | None = None
    volume_tokens_per_month: int | None = None
    ramp_months: int = 0
    growth_ratio: float = 0.0
    term_months: int = 36
    setup_cost: float = 0.0
    exit_cost: float = 0.0
    data_may_leave: bool = True
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The whole document. ``digest`` is the SHA-256 of its text: same text, same digest."""

    name: str
    model: ModelRef
    cluster: ClusterSpec = ClusterSpec()
    engine: EngineSpec = EngineSpec()
    workload: RequestProfile = field(default_factory=RequestProfile)
    sla: Sla = Sla()
    tenants: tuple[Tenant, ...] = ()
    gateway: GatewaySpec = GatewaySpec()
    governance: GovernanceSpec = field(default_factory=GovernanceSpec)
    cost: CostSpec = CostSpec()
    kubernetes: KubernetesSpec = field(default_factory=KubernetesSpec)
    schema_version: Literal[1] = 1
    digest: str = ""
