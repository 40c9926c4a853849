"""The keys of the document's ``workload`` section."""

from __future__ import annotations

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, ListOf, Section
from roadworthy.spec.workload_values import ArrivalPattern, MixPart, Quantiles, RequestProfile, Sessions

MAX_TOKENS = 16 * 2**20

_TOKENS = kinds.whole_number(most=MAX_TOKENS, example="512", what="a count of tokens")
_NAME = kinds.text(
    "letters, digits, dot, dash and underscore, at most 63", r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", example="contracts"
)

QUANTILES = Section(
    cls=Quantiles,
    doc="Tokens at three percentiles; they rise.",
    fields=(
        Field(key="p50", attribute="p50", value=_TOKENS, doc="Half of the requests have at most this many."),
        Field(key="p90", attribute="p90", value=_TOKENS, doc="Nine in ten have at most this many."),
        Field(key="p99", attribute="p99", value=_TOKENS, doc="All but one in a hundred have at most this many."),
    ),
)

SESSIONS = Section(
    cls=Sessions,
    doc="Conversations of several turns; each turn's prompt repeats what was said before.",
    fields=(
        Field(
            key="turns",
            attribute="turns",
            value=kinds.plain_number(least=1, most=10_000, example="4"),
            doc="Mean turns of one conversation; 1 means single requests.",
        ),
        Field(
            key="think_time",
            attribute="think_time_s",
            value=kinds.duration(example="5s"),
            doc="Mean pause before the next turn.",
        ),
    ),
)

ARRIVALS = Section(
    cls=ArrivalPattern,
    doc="When sessions start, for `bench` and `simulate`.",
    fields=(
        Field(
            key="pattern",
            attribute="pattern",
            value=kinds.choice("poisson", "gamma", "constant", "diurnal", "ramp", "closed"),
            doc="`poisson` at the workload's rate, `gamma` in bursts, `constant` in even gaps, `diurnal` in waves, "
            "`ramp` from the rate to another, or `closed`: so many users, each of whom waits for the answer.",
        ),
        Field(
            key="burstiness",
            attribute="burstiness",
            value=kinds.plain_number(least=0, most=1000, example="0.25", above=True),
            doc="Shape of the gamma law of the gaps, as in `vllm bench serve`: 1 is Poisson, 0.25 gives bursts whose "
            "gaps vary by twice their mean. For `gamma`, `diurnal` and `ramp`.",
        ),
        Field(
            key="period",
            attribute="period_s",
            value=kinds.duration(example="24h"),
            doc="`diurnal`: length of one wave; it begins at its quietest, and its mean is the workload's rate.",
        ),
        Field(
            key="peak",
            attribute="peak_ratio",
            value=kinds.plain_number(least=1, most=1000, example="3"),
            doc="`diurnal`: the highest rate over the lowest.",
        ),
        Field(
            key="to",
            attribute="to_rate_per_s",
            value=kinds.rate(),
            preset="the workload's rate",
            doc="`ramp`: the rate at the end.",
        ),
        Field(
            key="users",
            attribute="users",
            value=kinds.whole_number(most=1_000_000, example="16", what="a number of users"),
            doc="`closed`: sessions that are under way at any time.",
        ),
    ),
)

MIX_PART = Section(
    cls=MixPart,
    doc="One kind of session in a mixed load. Lengths left out are the kind's own; for `chat` the workload's.",
    fields=(
        Field(
            key="kind",
            attribute="kind",
            value=kinds.choice("chat", "document", "agent"),
            doc="`chat` as the workload says, `document`: a long text and short questions about it, `agent`: many "
            "short calls, each with the result of a tool.",
        ),
        Field(
            key="share",
            attribute="share_ratio",
            value=kinds.ratio(above=True),
            doc="Share of the requests, weighed against the other parts.",
        ),
        Field(key="name", attribute="name", value=_NAME, preset="the kind", doc="What reports call it."),
        Field(
            key="prompt_tokens",
            attribute="prompt_tokens",
            value=QUANTILES,
            preset="of the kind",
            doc="Lengths of first prompts.",
        ),
        Field(
            key="added_tokens",
            attribute="added_tokens",
            value=QUANTILES,
            preset="of the kind",
            doc="New text of each later turn: a question, or what a tool gave.",
        ),
        Field(
            key="output_tokens",
            attribute="output_tokens",
            value=QUANTILES,
            preset="of the kind",
            doc="Lengths of answers.",
        ),
        Field(
            key="shared_prefix",
            attribute="shared_prefix_ratio",
            value=kinds.ratio(),
            preset="of the kind",
            doc="Share of each first prompt that all requests have in common.",
        ),
        Field(key="sessions", attribute="sessions", value=SESSIONS, preset="of the kind", doc="Turns and pauses."),
        Field(
            key="tenants",
            attribute="tenants",
            value=ListOf(item=kinds.text("a tenant's id", r"[^\s]+", example="legal"), most=10_000),
            doc="Who sends it; left out, all of them.",
        ),
    ),
)

WORKLOAD = Section(
    cls=RequestProfile,
    doc="What the users send.",
    fields=(
        Field(key="prompt_tokens", attribute="prompt_tokens", value=QUANTILES, doc="Lengths of prompts."),
        Field(key="output_tokens", attribute="output_tokens", value=QUANTILES, doc="Lengths of answers."),
        Field(
            key="rate",
            attribute="rate_per_s",
            value=kinds.rate(),
            doc="Requests arriving; a bare number is a second's.",
        ),
        Field(
            key="shared_prefix",
            attribute="shared_prefix_ratio",
            value=kinds.ratio(),
            doc="Share of each first prompt that all requests have in common, such as a system prompt.",
        ),
        Field(
            key="sessions",
            attribute="sessions",
            value=SESSIONS,
            doc="Multi-turn use; left out, every request is its own.",
        ),
        Field(
            key="draft_acceptance",
            attribute="draft_acceptance_ratio",
            preset="assumed by method: 80% for an MTP layer, 65% for EAGLE, 30% for n-grams",
            value=kinds.ratio(),
            doc="With speculative decoding: how likely a drafted token is kept, given that those before it were. Your "
            "engine's metrics give it (`vllm:spec_decode_num_accepted_tokens_per_pos`).",
        ),
        Field(
            key="expert_skew",
            attribute="expert_skew",
            value=kinds.plain_number(least=0, most=2, example="0.5"),
            doc="How unevenly the traffic uses a model's experts: the exponent of Zipf's law over them. `0` is even; "
            "at the default the fullest of 32 expert-parallel ranks carries about twice the mean.",
        ),
        Field(
            key="arrivals",
            attribute="arrivals",
            value=ARRIVALS,
            doc="When sessions start; left out, by a Poisson process at `rate`.",
        ),
        Field(
            key="mix",
            attribute="mix",
            value=ListOf(item=MIX_PART, most=32),
            doc="Several kinds of session at once, in `bench` and `simulate`; the plan sizes for the lengths above.",
        ),
    ),
)
