"""The keys of the document's ``governance`` section."""

from __future__ import annotations

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, ListOf, Section
from roadworthy.spec.governance_kinds import condition, switch
from roadworthy.spec.governance_values import AlertSpec, GovernanceSpec, QueueSpec, Rule, Smtp

_NAME = kinds.text(
    "letters, digits, dot, dash and underscore, at most 63",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
    example="long-prompts",
)
_MODEL = kinds.text("a model name without spaces", r"[^\s]+", example="small-model")
_MAIL = kinds.text("a mail address", r"[!-?A-~]+@[!-?A-~]+", example="ops@example.org")
_CONDITIONS = ListOf(item=condition(), most=16)

QUEUE = Section(
    cls=QueueSpec,
    doc="Requests that wait for room, in each gateway process.",
    fields=(
        Field(
            key="total",
            attribute="total",
            value=kinds.whole_number(least=0, most=1_000_000, example="10000"),
            doc="Most that wait; one more is told to come again (429). 0 lets none wait.",
        ),
        Field(
            key="per_tenant",
            attribute="per_tenant",
            value=kinds.whole_number(least=0, most=1_000_000, example="1000"),
            doc="Most of one tenant.",
        ),
        Field(
            key="max_wait",
            attribute="max_wait_s",
            value=kinds.duration(least_s=1e-3, most_s=86_400.0, example="60s"),
            doc="Longest wait. A request that cannot make it is refused when it comes, with the time after which "
            "it could.",
        ),
        Field(
            key="ageing",
            attribute="ageing_s",
            value=kinds.duration(least_s=1e-3, most_s=86_400.0, example="30s"),
            doc="For each such time that a request has waited it moves one class up. Borrowed work does not age.",
        ),
    ),
)

SMTP = Section(
    cls=Smtp,
    doc="Mails alerts.",
    fields=(
        Field(
            key="host",
            attribute="host",
            value=kinds.text("a host name or address", r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:]+", example="mail.example.org"),
            doc="The mail server.",
        ),
        Field(key="port", attribute="port", value=kinds.whole_number(most=65535, example="25"), doc="Its port."),
        Field(
            key="security",
            attribute="security",
            value=kinds.choice("plain", "starttls", "tls"),
            doc="How the connection is protected; a `user` needs one of the last two.",
        ),
        Field(
            key="user",
            attribute="user",
            value=kinds.text("a user name", r"[!-~]+", example="roadworthy"),
            doc="Whom to log in as; left out, nobody.",
        ),
        Field(
            key="password_env",
            attribute="password_env",
            value=kinds.text("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*", example="SMTP_PASSWORD"),
            doc="The environment variable that holds the user's password.",
        ),
        Field(key="from", attribute="sender", value=_MAIL, doc="Sender of the mail."),
        Field(key="to", attribute="to", value=ListOf(item=_MAIL, most=20), doc="Whom it goes to."),
    ),
)

ALERT = Section(
    cls=AlertSpec,
    doc="Word of a quota that is nearly used up, once, with what would help.",
    fields=(
        Field(
            key="at",
            attribute="at_ratio",
            value=kinds.ratio(above=True, example='"90%"'),
            doc="Share of a quota from which on it counts.",
        ),
        Field(
            key="for",
            attribute="for_s",
            value=kinds.duration(least_s=1e-3, most_s=86_400.0, example="5m"),
            doc="How long it must last.",
        ),
        Field(
            key="webhook",
            attribute="webhook",
            secret=True,
            value=kinds.text(
                "an http or https URL", r"https?://[!-~]+", example="https://hooks.example.org/x", most=1000
            ),
            doc="Where it is posted, as JSON.",
        ),
        Field(key="smtp", attribute="smtp", value=SMTP, doc=SMTP.doc),
    ),
)

RULE = Section(
    cls=Rule,
    doc="A business rule: which requests, what must hold, what then.",
    fields=(
        Field(key="name", attribute="name", value=_NAME, doc="Names the rule in answers, logs and metrics."),
        Field(
            key="scenario",
            attribute="scenario",
            value=_CONDITIONS,
            doc="Conditions that say which requests the rule is about; left out, all. Facts: `tenant`, `model`, "
            "`operation`, `prompt_tokens`, `io_wait_ms` (only from keys with scope `trusted-caller`).",
        ),
        Field(
            key="when",
            attribute="when",
            value=_CONDITIONS,
            doc="Conditions that must all hold. Beside the facts of `scenario` there are `ttft_ms` and `itl_p99_ms`, "
            "known once a request has ended (the second from 20 gaps on): they make a rule that counts.",
        ),
        Field(
            key="action",
            attribute="action",
            value=kinds.choice("refuse", "degrade", "queue"),
            doc="`refuse` with 422; `degrade` to a lighter model where the tenant has a `fallback`, which the answer "
            "says; `queue` in another class.",
        ),
        Field(
            key="model",
            attribute="model",
            value=_MODEL,
            preset="the tenant's `fallback`",
            doc="For `degrade`: the model instead.",
        ),
        Field(
            key="queue", attribute="queue", value=kinds.choice("high", "normal", "low"), doc="For `queue`: the class."
        ),
        Field(
            key="code",
            attribute="code",
            value=kinds.text(
                "letters, digits and underscores", r"[A-Za-z][A-Za-z0-9_]{0,62}", example="BUSINESS_OVERRUN"
            ),
            doc="For `refuse`: the error's code.",
        ),
        Field(
            key="message",
            attribute="message",
            value=kinds.text("one line of text", r"[^\n\r]+", example="send it at night", most=500),
            preset="the rule's name and what was seen",
            doc="For `refuse`: what the client is told.",
        ),
        Field(
            key="in_a_row",
            attribute="in_a_row",
            value=kinds.whole_number(most=10_000, example="3"),
            doc="Act only after so many finished requests of the scenario, one after the other, for each model; then "
            "on the whole scenario. Left out: on each request by itself, or 3 with facts known afterwards.",
        ),
        Field(
            key="hold",
            attribute="hold_s",
            value=kinds.duration(least_s=1e-3, example="60s"),
            doc="How long a rule that counts stays on before one request tries whether it may end.",
        ),
    ),
)

GOVERNANCE = Section(
    cls=GovernanceSpec,
    doc="How tenants share the engines; `docs/concepts/governance.md` tells what each key does.",
    fields=(
        Field(
            key="borrow_headroom",
            attribute="borrow_headroom_ratio",
            value=kinds.ratio(example='"10%"'),
            doc="Share of KV blocks and slots that work beyond its tenant's quota never gets.",
        ),
        Field(
            key="slots_per_engine",
            attribute="slots_per_engine",
            value=kinds.whole_number(most=100_000, example="256"),
            doc="Requests at one engine at once; further ones wait here, in fair order. Left out, the engine's "
            "`max_num_seqs` where `engine.settings` names it or `up` starts the engines, else the engine queues.",
        ),
        Field(
            key="prefill_backlog",
            attribute="prefill_backlog_s",
            value=kinds.duration(least_s=0.0, example="500ms"),
            preset="a quarter of `sla.ttft_p99`, or 1s",
            doc="How long an engine may be busy with prompts that were sent to it; further requests wait here, in fair "
            "order. By the plan's pace, so without a plan nothing is kept back; `0s` turns it off.",
        ),
        Field(
            key="billing",
            attribute="billing",
            value=kinds.choice("exact", "final"),
            preset="`exact` where a tenant has tpm, daily_tokens or kv_quota, else `final`",
            doc="`exact` counts tokens as they stream; `final` reads `usage` at the end of an answer.",
        ),
        Field(
            key="cached_tokens",
            attribute="cached_tokens",
            value=kinds.choice("charged", "free"),
            doc="Whether prompt tokens that the prefix cache held count in fairness. Rates and budgets count them "
            "in any case.",
        ),
        Field(key="queue", attribute="queue", value=QUEUE, doc=QUEUE.doc),
        Field(
            key="lease_ttl",
            attribute="lease_ttl_s",
            value=kinds.duration(least_s=1.0, most_s=3600.0, example="30s"),
            doc="With quotas shared between gateways: after this the share of one that died comes back.",
        ),
        Field(
            key="on_state_loss",
            attribute="on_state_loss",
            value=kinds.choice("closed", "open"),
            doc="While the store of quotas or of the ledger cannot be reached: refuse requests, or serve them "
            "unmetered.",
        ),
        Field(key="alert", attribute="alert", value=ALERT, doc=ALERT.doc),
        Field(
            key="rules",
            attribute="rules",
            value=ListOf(item=RULE, most=100),
            doc="Business rules, in order; the first refusal counts.",
        ),
        Field(
            key="ledger",
            attribute="ledger",
            value=switch(),
            doc="Whether each request is written down, in `gateway.state_url`.",
        ),
    ),
)
