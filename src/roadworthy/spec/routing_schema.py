"""The keys of ``gateway`` and ``engine.endpoints`` that routing reads."""

from __future__ import annotations

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, ListOf, Section
from roadworthy.spec.routing_values import Lanes, LongLane, RoutingSpec, Weights

_WEIGHT = kinds.plain_number(least=0, most=1e7, example="256")

WEIGHTS = Section(
    cls=Weights,
    doc="What each score is worth, in tokens of prefill.",
    fields=(
        Field(key="load", attribute="load_tokens", value=_WEIGHT, doc="One request more on an engine than on another."),
        Field(
            key="session",
            attribute="session_tokens",
            value=_WEIGHT,
            doc="A session's home, where no engine is known to hold half of the prompt.",
        ),
        Field(
            key="session_share",
            attribute="session_ratio",
            value=kinds.ratio(example='"50%"'),
            doc="Or this share of the prompt, where it is more: what the home is taken to hold.",
        ),
        Field(key="kv", attribute="kv_tokens", value=_WEIGHT, doc="A full KV pool against an empty one."),
    ),
)

ROUTING = Section(
    cls=RoutingSpec,
    doc="How an engine is chosen; `docs/concepts/routing.md` tells what each weight does.",
    fields=(
        Field(
            key="policy",
            attribute="policy",
            value=kinds.choice("affinity", "prefix", "session", "least-load"),
            doc="What counts beside load: sessions and prefixes (`affinity`), one of the two, or nothing.",
        ),
        Field(
            key="session_header",
            attribute="session_header",
            value=kinds.text(
                "the name of a request header, in lower case",
                r"[a-z0-9][a-z0-9-]{0,63}",
                example="x-session-id",
                hint="a header such as x-conversation-id",
            ),
            doc="Header that names a conversation. Where a request lacks it, the body's `session_id`, "
            "`prompt_cache_key` or `user` does.",
        ),
        Field(
            key="load_factor",
            attribute="load_factor",
            value=kinds.plain_number(least=1, most=100, example="1.25"),
            doc="A session's home is not brought above this multiple of the mean load.",
        ),
        Field(
            key="prefix_load_factor",
            attribute="prefix_load_factor",
            value=kinds.plain_number(least=1, most=100, example="2"),
            doc="The same for an engine that is known to hold some of the prompt.",
        ),
        Field(
            key="load_floor",
            attribute="load_floor",
            value=kinds.whole_number(most=10_000, example="4"),
            doc="So many requests on an engine are never too many for affinity.",
        ),
        Field(key="weights", attribute="weights", value=WEIGHTS, doc=WEIGHTS.doc),
    ),
)

LONG_LANE = Section(
    cls=LongLane,
    doc="A lane for long prompts: engines of their own, or slots on every engine.",
    fields=(
        Field(
            key="above_tokens",
            attribute="above_tokens",
            value=kinds.whole_number(most=16 * 2**20, example="32K", what="a count of tokens"),
            doc="Prompts longer than this take the lane; their length is estimated from bytes.",
        ),
        Field(
            key="engines",
            attribute="engines",
            value=ListOf(item=kinds.engine_url(), most=1024),
            doc="Engines of `engine.endpoints` that only long prompts use, while another is open.",
        ),
        Field(
            key="slots",
            attribute="slots",
            value=kinds.whole_number(most=10_000, example="2"),
            doc="Long prompts at once on each engine; one more is told to come again.",
        ),
    ),
)

LANES = Section(
    cls=Lanes,
    doc="Lanes that requests are put into before an engine is chosen.",
    fields=(Field(key="long", attribute="long", value=LONG_LANE, doc=LONG_LANE.doc),),
)

ROUTING_FIELDS = (
    Field(key="routing", attribute="routing", value=ROUTING, doc=ROUTING.doc),
    Field(key="lanes", attribute="lanes", value=LANES, doc=LANES.doc),
)

KV_EVENTS_FIELD = Field(
    key="kv_events",
    attribute="kv_events",
    value=ListOf(
        item=kinds.text(
            "a ZeroMQ address such as tcp://HOST:PORT",
            r"tcp://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[1-9][0-9]{0,4}|ipc://[!-~]+",
            example="tcp://127.0.0.1:5557",
            hint="the engine binds tcp://*:5557; write the address it is reached at",
        ),
        most=256,
    ),
    doc="Where it publishes KV cache events (`--kv-events-config`), one address for each data-parallel rank (vLLM adds "
    "the rank to the port).",
)
