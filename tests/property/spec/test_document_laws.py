"""Laws of the document: what is valid round-trips, and no text at all ends in anything but problems."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from roadworthy.catalog.vocabulary import CatalogVocabulary
from roadworthy.spec.governance_kinds import condition, write_condition
from roadworthy.spec.governance_values import (
    FACTS_AFTER,
    NUMBER_FACTS,
    TEXT_FACTS,
    AlertSpec,
    Condition,
    GovernanceSpec,
    QueueSpec,
    Rule,
    Smtp,
)
from roadworthy.spec.kinds import Kind, WrongValueError
from roadworthy.spec.load import check_text, load_text
from roadworthy.spec.schema import walk
from roadworthy.spec.values import (
    ApiSpec,
    ClusterSpec,
    CostSpec,
    Deployment,
    Endpoint,
    EngineSpec,
    GatewaySpec,
    ModelRef,
    Nics,
    Quantiles,
    RequestProfile,
    Sessions,
    Sla,
    Tenant,
)
from roadworthy.spec.workload_values import ArrivalPattern, MixPart
from roadworthy.spec.yaml_text import MAX_TEXT_BYTES, MapNode, ScalarNode, read_yaml
from support.documents import document_text

if TYPE_CHECKING:
    from roadworthy.core.errors import Problem

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
counts = st.integers(1, 10**6)
durations = st.floats(1e-6, 1e6)
ratios = st.floats(0, 1)
positive_ratios = st.floats(1e-9, 1)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def quantiles(draw: st.DrawFn) -> Quantiles:
    p50, p90, p99 = sorted(draw(st.lists(counts, min_size=3, max_size=3)))
    return Quantiles(p50=p50, p90=p90, p99=p99)


def arrivals() -> st.SearchStrategy[ArrivalPattern]:
    shapes = st.floats(0.01, 100)
    return st.one_of(
        st.just(ArrivalPattern()),
        st.builds(ArrivalPattern, pattern=st.just("gamma"), burstiness=shapes),
        st.builds(
            ArrivalPattern,
            pattern=st.just("diurnal"),
            burstiness=shapes,
            period_s=durations,
            peak_ratio=st.floats(1, 1000),
        ),
        st.builds(ArrivalPattern, pattern=st.just("ramp"), to_rate_per_s=st.floats(1e-3, 1e5)),
        st.builds(ArrivalPattern, pattern=st.just("closed"), users=st.integers(1, 10**6)),
    )


def mixes() -> st.SearchStrategy[tuple[MixPart, ...]]:
    """Without senders: those have to exist."""
    part = st.builds(
        MixPart,
        kind=st.sampled_from(["chat", "document", "agent"]),
        share_ratio=positive_ratios,
        name=st.sampled_from([None, "contracts"]),
        prompt_tokens=optional(quantiles()),
        added_tokens=optional(quantiles()),
        output_tokens=optional(quantiles()),
        shared_prefix_ratio=optional(ratios),
        sessions=optional(st.builds(Sessions, turns=st.floats(1, 10_000), think_time_s=durations)),
    )
    return st.lists(part, max_size=3).map(tuple)


@st.composite
def slas(draw: st.DrawFn) -> Sla:
    as_rate = draw(st.booleans())
    goodput = draw(optional(st.floats(1e-3, 1e5) if as_rate else positive_ratios))
    return Sla(
        ttft_p99_s=draw(optional(durations)),
        tpot_p99_s=draw(optional(durations)),
        success_ratio=draw(optional(positive_ratios)),
        **{"goodput_per_s" if as_rate else "goodput_ratio": goodput},
    )


@st.composite
def conditions(draw: st.DrawFn, *, after: bool = False) -> Condition:
    """About numbers and models; tenants of a rule have to exist."""
    if draw(st.booleans()):
        names = tuple(draw(st.lists(words, min_size=1, max_size=3, unique=True)))
        comparisons = ["in", "not in"] if len(names) > 1 else ["=", "!=", "in", "not in"]
        fact = draw(st.sampled_from([one for one in TEXT_FACTS if one != "tenant"]))
        return Condition(fact=fact, comparison=draw(st.sampled_from(comparisons)), names=names)  # type: ignore[arg-type]
    number_fact = draw(st.sampled_from([one for one in NUMBER_FACTS if after or one not in FACTS_AFTER]))
    number = float(draw(st.integers(0, 10**9))) if number_fact == "prompt_tokens" else draw(st.floats(0, 1e12))
    return Condition(
        fact=number_fact, comparison=draw(st.sampled_from([">", ">=", "<", "<=", "=", "!="])), number=number
    )


@st.composite
def governances(draw: st.DrawFn) -> GovernanceSpec:
    names = draw(st.lists(words, max_size=3, unique=True))
    total = draw(st.integers(1, 10_000))
    smtp = Smtp(host="mail.internal", sender="a@b.example", to=("c@d.example",), port=draw(st.integers(1, 65535)))
    return GovernanceSpec(
        borrow_headroom_ratio=draw(ratios),
        slots_per_engine=draw(optional(st.integers(1, 1000))),
        billing=draw(st.sampled_from([None, "exact", "final"])),
        queue=QueueSpec(total=total, per_tenant=draw(st.integers(0, total)), max_wait_s=draw(st.floats(0.01, 8e4))),
        on_state_loss=draw(st.sampled_from(["closed", "open"])),
        alert=AlertSpec(at_ratio=draw(positive_ratios), smtp=draw(optional(st.just(smtp)))),
        rules=tuple(
            Rule(
                name=name,
                scenario=tuple(draw(st.lists(conditions(), max_size=2))),
                when=tuple(draw(st.lists(conditions(after=True), min_size=1, max_size=2))),
                in_a_row=draw(optional(st.integers(1, 9))),
                message=draw(optional(words)),
            )
            for name in names
        ),
        ledger=draw(st.booleans()),
    )


@given(conditions(after=True))
def test_a_condition_written_back_reads_as_the_same(held: Condition) -> None:
    text = write_condition(held)
    assert condition().read(ScalarNode(text=text, value=text, line=1)) == held


@st.composite
def tenants(draw: st.DrawFn) -> tuple[Tenant, ...]:
    ids = draw(st.lists(words, max_size=4, unique=True))
    made = []
    for index, tenant in enumerate(ids):
        by_env = draw(st.booleans())
        made.append(
            Tenant(
                id=tenant,
                key=None if by_env else f"sk-{index}-{draw(words)}",
                key_env=f"KEY_{index}" if by_env else None,
                weight=draw(st.floats(1e-6, 1e6)),
                priority=draw(st.integers(-1000, 1000)),
                kv_quota_bytes=draw(optional(st.integers(1, 2**50))),
                requests_per_minute=draw(optional(counts)),
                tokens_per_minute=draw(optional(counts)),
                daily_tokens=draw(optional(st.integers(1, 10**12))),
                concurrency=draw(optional(counts)),
                models=tuple(draw(st.lists(words, max_size=3, unique=True))),
                fallback=draw(optional(st.just("stand-in/model"))),
            )
        )
    return tuple(made)


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    port = draw(st.integers(0, 65534))
    return Deployment(
        name=draw(words),
        model=ModelRef(
            config=draw(st.sampled_from(["tiny", "deepseek-ai/DeepSeek-V4-Pro", "./models/mine"])),
            weights=draw(st.sampled_from(["native", "fp8", "bf16"])),
            max_model_len_tokens=draw(optional(counts)),
            served_name=draw(st.just("") | words),
        ),
        cluster=ClusterSpec(
            nodes=draw(st.integers(1, 4096)),
            gpus_per_node=draw(st.integers(1, 256)),
            gpu=draw(words),
            nvlink_bytes_per_s=draw(optional(st.floats(1e6, 1e13))),
            nics=tuple(
                Nics(count=count, rate_bytes_per_s=rate)
                for count, rate in draw(st.lists(st.tuples(st.integers(1, 64), st.floats(1e6, 1e13)), max_size=3))
            ),
        ),
        engine=EngineSpec(
            version=draw(st.sampled_from(["0.26.0", "0.32.0", "0.33.0", "0.30"])),
            endpoints=tuple(
                Endpoint(url=f"http://engine-{number}:{number}")
                for number in draw(st.lists(st.integers(1, 65535), max_size=3, unique=True))
            ),
            settings=draw(
                st.dictionaries(
                    st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
                    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | words,
                    max_size=4,
                )
            ),
        ),
        workload=RequestProfile(
            prompt_tokens=draw(quantiles()),
            output_tokens=draw(quantiles()),
            rate_per_s=draw(st.floats(1e-3, 1e6)),
            shared_prefix_ratio=draw(ratios),
            sessions=Sessions(turns=draw(st.floats(1, 10_000)), think_time_s=draw(durations)),
            arrivals=draw(arrivals()),
            mix=draw(mixes()),
        ),
        sla=draw(slas()),
        tenants=draw(tenants()),
        gateway=GatewaySpec(
            host=draw(st.sampled_from(["127.0.0.1", "0.0.0.0", "::1", "gateway.internal"])),
            port=port,
            admin_port=draw(st.sampled_from([0, port + 1])),
            workers=draw(st.integers(1, 64)),
            state_url=draw(optional(st.just("postgresql://db/roadworthy"))),
        ),
        governance=draw(governances()),
        cost=CostSpec(
            currency=draw(st.sampled_from(["USD", "EUR"])),
            **draw(
                st.sampled_from(
                    [
                        {},
                        {"gpu_hour": 2.44},
                        {"gpu_hour": 0.1 + 0.2, "fixed_per_month": 1e9 / 3},
                        {"node_power_w": 10_200.0},
                        {"node_power_w": 333.3, "capex": 1.5e6},
                    ]
                )
            ),
            utilisation_ratio=draw(positive_ratios),
            hit_ratio=draw(optional(st.floats(0, 1))),
            volume_tokens_per_month=draw(optional(st.integers(1, 10**16))),
            term_months=draw(st.integers(1, 120)),
            data_may_leave=draw(st.booleans()),
            needs=tuple(draw(st.lists(st.sampled_from(["audit", "sla"]), unique=True))),
            api=draw(st.sampled_from([ApiSpec(), ApiSpec(input_miss=0.5, output=2.0, peak_hours=(1, 2), peak_days=5)])),
        ),
    )


@given(deployments())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_valid_document_written_back_reads_as_the_same_deployment(deployment: Deployment) -> None:
    read = load_text(document_text(deployment), source="elsewhere.yaml")
    assert replace(read, digest="") == deployment


def check(text: str) -> tuple[Problem, ...]:
    deployment, problems = check_text(text, source="x.yaml", vocabulary=CatalogVocabulary())
    assert (deployment is None) == bool(problems)
    for problem in problems:
        assert problem.path
        assert problem.seen
        assert problem.wanted
        assert "\n" not in str(problem)
        assert len(problem.seen) < 300
    return problems


@given(st.text(max_size=400))
@example("?")
@example('"a\\nb": 1')
@settings(deadline=None)
def test_any_text_gives_problems_or_a_deployment(text: str) -> None:
    check(text)


@given(st.text(alphabet="{}[]:,-&*!|>'\"%@`#?~ \n\tabc01.<", max_size=200))
@settings(deadline=None)
def test_any_yaml_punctuation_gives_problems_or_a_deployment(text: str) -> None:
    check(text)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12),
    st.sampled_from(["on", "1:30", "012", "40GiB", "1e999GiB", "5M", "99%", "101%", "-1s", "16/s", "tiny", "H100",
                     "٣"]),
)  # fmt: skip
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
PATHS = [path for path, _, _ in walk()]


@given(path=st.sampled_from(PATHS), value=trees)
@settings(deadline=None, max_examples=300)
def test_any_value_at_any_key_gives_problems_about_that_key_or_a_deployment(path: str, value: Any) -> None:
    document = planted(path, value)
    problems = check(yaml.safe_dump(document, allow_unicode=True))
    top = path.split(".")[0].removesuffix("[]")
    assert all(problem.path.split(".")[0].split("[")[0] in {top, "model"} for problem in problems)


def planted(path: str, value: Any) -> dict[str, Any]:
    """A document that is fine but for ``value`` at ``path``."""
    document: dict[str, Any] = {"model": {"config": "tiny"}}
    here = document
    *parents, last = path.split(".")
    for name in parents:
        if name.endswith("[]"):
            item: dict[str, Any] = {}
            here[name.removesuffix("[]")] = [item]
            here = item
        else:
            here = here.setdefault(name, {})
    here[last.removesuffix("[]")] = [value] if last.endswith("[]") else value
    return document


@given(st.integers(0, 10_000), st.sampled_from(["cut", "double", "swap", "drop"]), st.integers(0, 2**32))
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_document_never_raises(examples: Any, place: int, how: str, seed: int) -> None:
    text = (examples / "seven-tenants.yaml").read_text()
    chance = random.Random(seed)
    at = place % len(text)
    match how:
        case "cut":
            text = text[:at]
        case "double":
            text = text[:at] + text[max(0, at - 40) :]
        case "swap":
            text = text[:at] + chance.choice("{}[]:,-&*!|>'\"%@\t\x00é") + text[at + 1 :]
        case "drop":
            lines = text.splitlines(keepends=True)
            del lines[at % len(lines)]
            text = "".join(lines)
    check(text)


@given(st.sampled_from([kind for _, _, field in walk() if isinstance(kind := field.value, Kind)]), scalars)
@settings(deadline=None, max_examples=300)
def test_what_a_kind_reads_it_writes_so_that_it_reads_the_same(kind: Kind, value: Any) -> None:
    def scalar(written: Any) -> ScalarNode | None:
        node, _ = read_yaml(yaml.safe_dump({"a": written}, allow_unicode=True), source="x")
        held = node.entries.get("a") if isinstance(node, MapNode) else None
        return held if isinstance(held, ScalarNode) else None

    node = scalar(value)
    if node is None:
        return
    try:
        read = kind.read(node)
    except WrongValueError:
        return
    again = scalar(kind.write(read))
    assert again is not None
    assert kind.read(again) == read


@pytest.mark.parametrize("size", [MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1])
def test_the_largest_document_is_still_judged(size: int) -> None:
    filler = "# " + "x" * 100 + "\n"
    text = ("model: {config: tiny}\n" + filler * (size // len(filler) + 1))[: size - 1] + "\n"
    problems = check(text)
    assert bool(problems) == (size > MAX_TEXT_BYTES)
