"""The one description of the document: every key with its kind, default, limits and words for people.

It feeds the loader, the JSON Schema of ``roadworthy spec schema`` and the generated reference page. Defaults are not
repeated here: they are those of the dataclasses in ``values``, and a test holds every field to a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.spec import kinds
from roadworthy.spec.cost_schema import COST
from roadworthy.spec.fields import Field, ListOf, Section, Settings
from roadworthy.spec.gateway_schema import SERVING_FIELDS
from roadworthy.spec.governance_schema import GOVERNANCE
from roadworthy.spec.host_schema import HOST_FIELDS
from roadworthy.spec.kubernetes_schema import KUBERNETES
from roadworthy.spec.routing_schema import KV_EVENTS_FIELD, ROUTING_FIELDS
from roadworthy.spec.values import (
    ClusterSpec,
    Deployment,
    Endpoint,
    EngineSpec,
    GatewaySpec,
    ModelRef,
    Nics,
    Sla,
    Tenant,
)
from roadworthy.spec.workload_schema import MAX_TOKENS, WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA_VERSION = 1
MAX_DAILY = 10**15


def _sla(values: dict[str, Any]) -> Sla:
    asked = values.pop("goodput", None)
    if isinstance(asked, kinds.Goodput):
        values |= {"goodput_per_s": asked.per_s, "goodput_ratio": asked.ratio}
    return Sla(**values)


MODEL = Section(
    cls=ModelRef,
    doc="Which model is served, and how its weights are stored.",
    fields=(
        Field(
            key="config",
            attribute="config",
            known="model",
            value=kinds.text(
                "a catalog id, a path to a checkpoint folder or config.json, or tiny",
                r"\S(?:[^\n]*\S)?",
                example="deepseek-ai/DeepSeek-V4-Pro",
                most=1000,
            ),
            doc="A catalog id (`roadworthy models` lists them), the path of a checkpoint folder or its `config.json` "
            "(relative to the document), or `tiny`: a model built on first use, small enough for any host.",
        ),
        Field(
            key="weights",
            attribute="weights",
            value=kinds.choice("native", "fp8", "bf16"),
            doc="`native` keeps the checkpoint's format; `fp8` and `bf16` requantise every linear layer.",
        ),
        Field(
            key="max_model_len",
            attribute="max_model_len_tokens",
            value=kinds.whole_number(most=MAX_TOKENS, example="128K", what="a count of tokens"),
            doc="Longest context of one request, prompt and output together; `128K` is 131,072. Left out, the plan "
            "chooses one that the workload needs and the memory allows.",
        ),
        Field(
            key="served_name",
            attribute="served_name",
            preset="the id, or the checkpoint folder's name",
            value=kinds.text("a model name without spaces", r"[^\s]+", example="my-model"),
            doc="What requests put into `model`.",
        ),
    ),
)

NICS = Section(
    cls=Nics,
    doc="NICs of one kind in every node.",
    fields=(
        Field(key="count", attribute="count", value=kinds.whole_number(most=64), doc="How many in each node."),
        Field(
            key="rate",
            attribute="rate_bytes_per_s",
            value=kinds.link_rate(),
            doc="Nameplate rate of one NIC in one direction; `Gb/s` counts bits.",
        ),
    ),
)

CLUSTER = Section(
    cls=ClusterSpec,
    doc="The rack. Device memory comes from the catalog: what the driver reports is less than the card's name.",
    fields=(
        Field(key="nodes", attribute="nodes", value=kinds.whole_number(most=4096, example="4"), doc="Hosts."),
        Field(key="gpus_per_node", attribute="gpus_per_node", value=kinds.whole_number(most=256), doc="GPUs in each."),
        Field(
            key="gpu",
            attribute="gpu",
            known="gpu",
            value=kinds.text("a GPU's name", r"\S(?:[^\n]*\S)?", example="H100-80GB"),
            doc="The GPU's name in the catalog (`roadworthy gpus`), or `cpu`.",
        ),
        Field(
            key="nvlink",
            attribute="nvlink_bytes_per_s",
            preset="the catalog's figure for the GPU",
            value=kinds.link_rate(example="900GB/s", readings=("GB/s", "Gb/s")),
            doc="NVLink of one GPU, both directions added up, as vendors print it.",
        ),
        Field(
            key="nics",
            attribute="nics",
            value=ListOf(item=NICS, most=16),
            doc="NICs between the nodes; needed to judge layouts that span nodes.",
        ),
        *HOST_FIELDS,
    ),
)

ENGINE = Section(
    cls=EngineSpec,
    doc="The engine, and what you fixed of its settings.",
    fields=(
        Field(key="name", attribute="name", value=kinds.choice("vllm"), doc="The engine."),
        Field(
            key="version",
            attribute="version",
            known="version",
            value=kinds.text("a version such as 0.33.0", r"[0-9]+\.[0-9]+(?:\.[0-9]+)?", example="0.33.0"),
            doc="Memory rules and settings follow it; see the catalog of engines for the lines known.",
        ),
        Field(
            key="endpoints",
            attribute="endpoints",
            value=ListOf(
                item=Section(
                    cls=Endpoint,
                    doc="One engine that runs already.",
                    fields=(
                        Field(
                            key="url", attribute="url", value=kinds.engine_url(), doc="Scheme, host and port, no path."
                        ),
                        KV_EVENTS_FIELD,
                    ),
                ),
                most=1024,
            ),
            doc="Engines that run already, for `gateway` and `bench`; `up` starts its own.",
        ),
        Field(
            key="settings",
            attribute="settings",
            value=Settings(),
            doc="Engine settings you insist on, in the engine's spelling (`max_num_seqs: 64`). The plan keeps them and "
            "chooses the others. What takes JSON on the command line is written as text in quotes.",
        ),
    ),
)

SLA = Section(
    cls=Sla,
    doc="What is promised; an objective left out is not promised.",
    build=_sla,
    fields=(
        Field(
            key="ttft_p99",
            attribute="ttft_p99_s",
            value=kinds.duration(),
            doc="Limit of the time to first token, 99th percentile.",
        ),
        Field(
            key="tpot_p99",
            attribute="tpot_p99_s",
            value=kinds.duration(example="40ms"),
            doc="Limit of the time per output token after the first, 99th percentile over requests.",
        ),
        Field(
            key="success",
            attribute="success_ratio",
            value=kinds.ratio(above=True, example='"99.9%"'),
            doc="Least share of requests that complete.",
        ),
        Field(
            key="goodput",
            attribute=None,
            value=kinds.goodput(),
            doc="Least requests a second that meet every objective (`14/s`), or their least share (`95%`).",
        ),
    ),
)

TENANT = Section(
    cls=Tenant,
    doc="One customer of the service.",
    fields=(
        Field(
            key="id",
            attribute="id",
            doc="Names the tenant in metrics, limits and reports.",
            value=kinds.text(
                "letters, digits, dot, dash and underscore, at most 63",
                r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
                example="team-a",
            ),
        ),
        Field(
            key="key",
            attribute="key",
            secret=True,
            doc="The API key itself; prefer `key_env`, which keeps it out of the file. A "
            "tenant with neither can be planned for, but `up` and `gateway` ask for one.",
            value=kinds.text(
                "a key of visible ASCII characters without spaces", r"[!-~]+", example="sk-demo-a", most=512
            ),
        ),
        Field(
            key="key_env",
            attribute="key_env",
            doc="The environment variable that holds the key.",
            value=kinds.text("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*", example="TEAM_A_KEY"),
        ),
        Field(
            key="weight",
            attribute="weight",
            value=kinds.plain_number(least=0, most=1e6, example="2", above=True),
            doc="Share of the engines under contention, against the other tenants' weights.",
        ),
        Field(
            key="priority",
            attribute="priority",
            value=kinds.whole_number(least=-1000, most=1000, example="0"),
            doc="As the engine counts: lower goes first.",
        ),
        Field(
            key="kv_quota",
            attribute="kv_quota_bytes",
            value=kinds.size(),
            doc="KV cache its requests hold at once over all engines, as predicted. What is beyond is not refused: it "
            "borrows, at low class, while there is room.",
        ),
        Field(
            key="rpm",
            attribute="requests_per_minute",
            value=kinds.whole_number(most=10**9, example="600"),
            doc="Requests a minute.",
        ),
        Field(
            key="tpm",
            attribute="tokens_per_minute",
            value=kinds.whole_number(most=10**12, example="200k"),
            doc="Tokens a minute, prompt and output.",
        ),
        Field(
            key="daily_tokens",
            attribute="daily_tokens",
            value=kinds.whole_number(most=MAX_DAILY, example="5M"),
            doc="Tokens a day, prompt and output.",
        ),
        Field(
            key="concurrency",
            attribute="concurrency",
            value=kinds.whole_number(most=10**6, example="64"),
            doc="Requests in progress at once.",
        ),
        Field(
            key="models",
            attribute="models",
            doc="Models it may ask for; left out, all.",
            value=ListOf(item=kinds.text("a model name without spaces", r"[^\s]+", example="my-model"), most=100),
        ),
        Field(
            key="fallback",
            attribute="fallback",
            doc="Model that a business rule may give it instead of the one it asks for (`action: degrade`). Without "
            "one it always gets what it asks for, or a refusal.",
            value=kinds.text("a model name without spaces", r"[^\s]+", example="small-model"),
        ),
        Field(
            key="scopes",
            attribute="scopes",
            value=ListOf(item=kinds.choice("trusted-caller"), most=4),
            doc="What its key may do beyond asking: of a `trusted-caller` the header `x-roadworthy-io-wait-ms` is "
            "believed.",
        ),
    ),
)

_PORT = kinds.whole_number(least=0, most=65535, example="8080", what="a port")

GATEWAY = Section(
    cls=GatewaySpec,
    doc="Where the gateway listens and how it routes.",
    fields=(
        Field(
            key="host",
            attribute="host",
            doc="Address of both ports.",
            value=kinds.text(
                "a host name or address, without port",
                r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:]+(?:%\w+)?",
                example="0.0.0.0",
                hint="the port goes under port",
            ),
        ),
        Field(key="port", attribute="port", value=_PORT, doc="Data port: the OpenAI routes. 0 takes a free one."),
        Field(
            key="admin_port",
            attribute="admin_port",
            value=_PORT,
            doc="Admin port: metrics and health. 0 takes a free one.",
        ),
        Field(key="workers", attribute="workers", value=kinds.whole_number(most=1024, example="1"), doc="Processes."),
        Field(
            key="state_url",
            attribute="state_url",
            secret=True,
            doc="Database of tenants and ledger; left out, kept in this process.",
            value=kinds.text(
                "a URL such as postgresql://host/name",
                r"[a-z][a-z0-9+.-]*:/[!-~]+",
                example="postgresql://db/roadworthy",
                most=1000,
            ),
        ),
        Field(
            key="shared_url",
            attribute="shared_url",
            secret=True,
            doc="Counters shared between gateways; left out, kept in this process.",
            value=kinds.text(
                "a URL such as redis://host:6379", r"[a-z][a-z0-9+.-]*:/[!-~]+", example="redis://cache:6379", most=1000
            ),
        ),
        *SERVING_FIELDS,
        *ROUTING_FIELDS,
    ),
)

DOCUMENT = Section(
    cls=Deployment,
    doc="A deployment: model, cluster, engine, workload, SLA, tenants, gateway and cost.",
    fields=(
        Field(
            key="schema_version",
            attribute="schema_version",
            value=kinds.whole_number(least=1, most=SCHEMA_VERSION, example="1", what="the document's version"),
            doc="Version of these keys.",
        ),
        Field(
            key="name",
            attribute="name",
            preset="the file's name without its ending",
            value=kinds.text(
                "a name of letters, digits, dot, dash and underscore",
                r"[A-Za-z0-9][A-Za-z0-9._ -]*",
                example="chat",
                most=100,
            ),
            doc="Names the deployment in reports and file names.",
        ),
        Field(key="model", attribute="model", value=MODEL, doc=MODEL.doc),
        Field(key="cluster", attribute="cluster", value=CLUSTER, doc=CLUSTER.doc),
        Field(key="engine", attribute="engine", value=ENGINE, doc=ENGINE.doc),
        Field(key="workload", attribute="workload", value=WORKLOAD, doc=WORKLOAD.doc),
        Field(key="sla", attribute="sla", value=SLA, doc=SLA.doc),
        Field(
            key="tenants",
            attribute="tenants",
            value=ListOf(item=TENANT, most=10_000),
            doc="Who may use the service; left out, anybody who reaches the port.",
        ),
        Field(key="gateway", attribute="gateway", value=GATEWAY, doc=GATEWAY.doc),
        Field(key="governance", attribute="governance", value=GOVERNANCE, doc=GOVERNANCE.doc),
        Field(key="cost", attribute="cost", value=COST, doc=COST.doc),
        Field(key="kubernetes", attribute="kubernetes", value=KUBERNETES, doc=KUBERNETES.doc),
    ),
)


def walk(section: Section = DOCUMENT, path: str = "") -> Iterator[tuple[str, Section, Field]]:
    """Every key of the document in order, as (dotted path, section, field); list items carry ``[]``."""
    for field in section.fields:
        place = f"{path}.{field.key}" if path else field.key
        value = field.value
        if isinstance(value, ListOf):
            place += "[]"
            value = value.item
        yield place, section, field
        if isinstance(value, Section):
            yield from walk(value, place)
