"""A document's problems: all in one pass, each with place, value seen, what was wanted and a hint that works."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from roadworthy.catalog.vocabulary import CatalogVocabulary
from roadworthy.core.errors import Problem, SpecError
from roadworthy.core.units import GIB
from roadworthy.spec.load import check_text, load_text
from roadworthy.spec.values import ModelRef, Quantiles, Sessions

TINY = "model: {config: tiny}\n"


def problems(text: str, **options: object) -> dict[str, Problem]:
    deployment, found = check_text(text, source="x.yaml", **options)  # type: ignore[arg-type]
    assert (deployment is None) == bool(found)
    return {problem.path: problem for problem in found}


def the_problem(text: str, **options: object) -> Problem:
    (problem,) = problems(text, **options).values()
    return problem


def test_one_key_is_enough_and_the_rest_are_the_defaults() -> None:
    deployment = load_text(TINY, source="/somewhere/laptop.yaml")
    assert deployment.name == "laptop"
    assert deployment.model == ModelRef(config="tiny")
    assert deployment.model.served_name == "tiny"
    assert deployment.cluster.gpu == "cpu"
    assert deployment.tenants == ()


def test_the_digest_is_that_of_the_text() -> None:
    one, two = load_text(TINY, source="a"), load_text(TINY + "# a comment\n", source="a")
    assert one.digest == hashlib.sha256(TINY.encode()).hexdigest()
    assert one.digest != two.digest


def test_equal_documents_are_equal_and_hash_alike() -> None:
    text = TINY + "engine: {settings: {max_num_seqs: 4}}"
    one, two = load_text(text, source="a"), load_text(text, source="a")
    assert one == two
    assert len({one, two}) == 1
    with pytest.raises(TypeError):
        one.engine.settings["max_num_seqs"] = 5  # type: ignore[index]


def test_values_are_read_as_people_write_them() -> None:
    deployment = load_text(
        """
        model: {config: tiny, max_model_len: 128K}
        cluster: {nodes: 2, gpus_per_node: 8, nvlink: 900GB/s, nics: [{count: 8, rate: 400Gb/s}]}
        workload:
          prompt_tokens: {p50: 10, p90: 20, p99: 30}
          rate: 90/min
          shared_prefix: 30%
          sessions: {turns: 2.5, think_time: 1500ms}
        sla: {ttft_p99: 250ms, tpot_p99: 0.04s, success: 99.9%, goodput: 14/s}
        tenants: [{id: a, key: 12345, kv_quota: 40GiB, daily_tokens: 5M, tpm: 200k}]
        """,
        source="x",
    )
    assert deployment.model.max_model_len_tokens == 131_072
    assert deployment.cluster.gpus == 16
    assert deployment.cluster.nvlink_bytes_per_s == 900e9
    assert deployment.cluster.nics[0].rate_bytes_per_s == 50e9
    assert deployment.workload.prompt_tokens == Quantiles(p50=10, p90=20, p99=30)
    assert deployment.workload.rate_per_s == 1.5
    assert deployment.workload.shared_prefix_ratio == pytest.approx(0.3)
    assert deployment.workload.sessions == Sessions(turns=2.5, think_time_s=1.5)
    assert (deployment.sla.ttft_p99_s, deployment.sla.tpot_p99_s) == (0.25, 0.04)
    assert deployment.sla.success_ratio == pytest.approx(0.999)
    assert (deployment.sla.goodput_per_s, deployment.sla.goodput_ratio) == (14, None)
    tenant = deployment.tenants[0]
    assert tenant.key == "12345"
    assert (tenant.kv_quota_bytes, tenant.daily_tokens, tenant.tokens_per_minute) == (40 * GIB, 5_000_000, 200_000)


@pytest.mark.parametrize("share", ["0.95", "95%", '"95 %"'])
def test_goodput_as_a_share(share: str) -> None:
    sla = load_text(f"{TINY}sla: {{goodput: {share}}}", source="x").sla
    assert (sla.goodput_per_s, sla.goodput_ratio) == (None, pytest.approx(0.95))


def test_success_takes_a_share_or_per_cent() -> None:
    for written in ("0.999", "99.9%"):
        assert load_text(f"{TINY}sla: {{success: {written}}}", source="x").sla.success_ratio == pytest.approx(0.999)
    assert load_text(f"{TINY}sla: {{success: 100%}}", source="x").sla.success_ratio == 1


def test_a_key_without_a_value_takes_its_default() -> None:
    bare = load_text(TINY, source="x")
    empty = load_text(f"{TINY}workload: {{sessions: null, rate: }}\nsla:\ntenants: ~\n", source="x")
    assert replace(empty, digest="") == replace(bare, digest="")


def test_every_problem_comes_in_one_pass() -> None:
    found = problems(
        """
        modle: {config: tiny}
        cluster: {nodes: 0, gpu: true}
        sla: {ttft_p99: 250, goodput: 14}
        tenants:
          - {id: a b, wieght: 3}
          - {id: a, key: k}
          - {id: a, key: k}
        gateway: {port: 9000, admin_port: 9000}
        """
    )
    assert set(found) == {
        "modle", "model", "cluster.nodes", "cluster.gpu", "sla.ttft_p99", "sla.goodput", "tenants[0].id",
        "tenants[0].wieght", "tenants[2].id", "tenants[2].key", "gateway.admin_port",
    }  # fmt: skip


def test_load_text_raises_with_every_problem() -> None:
    with pytest.raises(SpecError) as raised:
        load_text("cluster: {nodes: 0, gpus_per_node: 0}", source="x.yaml")
    assert str(raised.value) == "x.yaml: 3 problems"
    assert [problem.path for problem in raised.value.problems] == [
        "model", "cluster.nodes", "cluster.gpus_per_node",
    ]  # fmt: skip
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("line", "path", "hint"),
    [
        ("modell: {config: tiny}", "modell", "did you mean model?"),
        ("tenants: [{id: a, wieght: 2}]", "tenants[0].wieght", "did you mean weight?"),
        ("ttft_p99: 250ms", "ttft_p99", "it belongs at sla.ttft_p99"),
        ("engine: {settngs: {}}", "engine.settngs", "did you mean settings?"),
    ],
)
def test_an_unknown_key_is_met_with_the_one_meant(line: str, path: str, hint: str) -> None:
    problem = problems(TINY + line)[path]
    assert problem.hint == hint
    assert "line 2" in problem.seen


@pytest.mark.parametrize(
    ("line", "path", "hint"),
    [
        ("sla: {ttft_p99: 250}", "sla.ttft_p99", ("250ms", "250s")),
        ("tenants: [{id: a, kv_quota: 40}]", "tenants[0].kv_quota", ("40GiB", "40GB")),
        ("cluster: {nics: [{count: 8, rate: 400}]}", "cluster.nics[0].rate", ("400Gb/s", "400GB/s")),
        ("cluster: {nvlink: 900}", "cluster.nvlink", ("900GB/s", "900Gb/s")),
    ],
)
def test_a_bare_number_where_the_unit_matters_shows_both_readings_and_both_work(
    line: str, path: str, hint: tuple[str, str]
) -> None:
    problem = the_problem(TINY + line)
    assert problem.path == path
    bare = problem.seen
    for reading in hint:
        assert reading in problem.hint
        assert not problems(TINY + line.replace(f" {bare}", f" {reading}"))


@pytest.mark.parametrize(
    "line",
    [
        "cluster: {nodes: 0}",
        "cluster: {nodes: -1}",
        "cluster: {nodes: 1.5}",
        "cluster: {nodes: true}",
        "cluster: {nodes: .nan}",
        "cluster: {nodes: 1e400}",
        "cluster: {nodes: " + "9" * 400 + "}",
        "cluster: {gpus_per_node: 1000000000000000000000000000000}",
        "workload: {rate: -1}",
        "workload: {rate: 0}",
        "workload: {rate: .inf}",
        "workload: {rate: 1e30}",
        "workload: {shared_prefix: 1.5}",
        "workload: {shared_prefix: -0.1}",
        "workload: {shared_prefix: .nan}",
        "workload: {prompt_tokens: {p50: 9, p90: 3, p99: 10}}",
        "workload: {prompt_tokens: 238}",
        "workload: {sessions: 3}",
        "sla: {ttft_p99: 0s}",
        "sla: {ttft_p99: -1s}",
        "sla: {ttft_p99: 1e400s}",
        "sla: {success: 0}",
        "sla: {success: true}",
        "sla: {goodput: 0/s}",
        "tenants: {id: a}",
        "tenants: [a]",
        "tenants: [{id: a, weight: 0}]",
        "tenants: [{id: a, weight: .nan}]",
        "tenants: [{id: a, kv_quota: 0GiB}]",
        "tenants: [{id: a, kv_quota: 1e400GiB}]",
        "tenants: [{id: a, models: m}]",
        "tenants: [{id: a, key: \"a b\"}]",
        "tenants: [{id: a, key_env: 9a}]",
        "gateway: {port: 65536}",
        "gateway: {port: -1}",
        "gateway: {host: \"0.0.0.0:80\"}",
        "gateway: {state_url: nonsense}",
        "engine: {name: sglang}",
        "engine: {version: newest}",
        "engine: {settings: [a]}",
        "engine: {settings: {a: [1, 2]}}",
        "engine: {settings: {a: .nan}}",
        "cost: {gpu_hour: -1}",
        "cost: {gpu_hour: .nan}",
        "cost: {currency: dollars}",
        "cost: {utilisation: 0}",
        "schema_version: 2",
        "name: \"../../etc\"",
    ],
)  # fmt: skip
def test_an_absurd_value_is_one_named_problem(line: str) -> None:
    problem = the_problem(TINY + line)
    assert problem.path.split(".")[0].split("[")[0] == line.split(":")[0]
    assert problem.seen
    assert problem.wanted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tenants: [{id: no}]", "true or false"),
        ("tenants: [{id: on}]", "true or false"),
        ("sla: {ttft_p99: 1:30}", "base 60"),
        ("tenants: [{id: 012}]", "octal"),
        ("tenants: [{id: a, rpm: 1_000}]", "underscores"),
        ("engine: {settings: {enforce_eager: off}}", "true or false"),
    ],
)
def test_what_yaml_1_1_reads_otherwise_is_named(line: str, said: str) -> None:
    assert said in the_problem(TINY + line).hint


def test_quoting_is_the_way_out_of_a_trap() -> None:
    assert load_text(TINY + 'tenants: [{id: "no"}]', source="x").tenants[0].id == "no"


def test_a_version_keeps_its_zero_without_quotes() -> None:
    assert load_text(TINY + "engine: {version: 0.30}", source="x").engine.version == "0.30"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("http://10.0.0.1:8000/v1", "write http://10.0.0.1:8000; requests bring their own path"),
        ("10.0.0.1:8000", "http://10.0.0.1:8000"),
        ("http://engine", "name the port, such as http://engine:8000"),
    ],
)
def test_the_hint_for_an_engine_url_leads_to_one_that_works(url: str, hint: str) -> None:
    problem = the_problem(f'{TINY}engine: {{endpoints: [{{url: "{url}"}}]}}')
    assert problem.path == "engine.endpoints[0].url"
    assert problem.hint == hint
    fixed = next(word.rstrip(";") for word in hint.split() if word.startswith("http"))
    assert not problems(f'{TINY}engine: {{endpoints: [{{url: "{fixed}"}}]}}')


@pytest.mark.parametrize("url", ["ftp://a:1", "http://a:0", "http://a:99999", "http://u:p@a:1", "http://a:1?x", "x y"])
def test_other_urls_are_refused(url: str) -> None:
    problem = the_problem(f'{TINY}engine: {{endpoints: [{{url: "{url}"}}]}}')
    assert problem.path == "engine.endpoints[0].url"
    assert "u:p" not in problem.seen


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://engine.internal:443/", "http://[::1]:8000"])
def test_engine_urls_lose_a_lone_slash_only(url: str) -> None:
    deployment = load_text(f'{TINY}engine: {{endpoints: [{{url: "{url}"}}]}}', source="x")
    assert deployment.engine.endpoints[0].url == url.rstrip("/")


def test_clashes_between_keys_are_problems() -> None:
    found = problems(
        TINY
        + """
engine: {endpoints: [{url: "http://a:1"}, {url: "http://a:1/"}]}
gateway: {port: 9000, admin_port: 9000}
tenants:
  - {id: a, key: one, key_env: ONE}
  - {id: b, key_env: TWO}
  - {id: a, key_env: TWO}
  - {id: c, models: [m, m], fallback: m}
  - {id: d, fallback: tiny}
"""
    )
    assert set(found) == {
        "engine.endpoints[1].url", "gateway.admin_port", "tenants[0]", "tenants[2].id", "tenants[2].key_env",
        "tenants[3].fallback", "tenants[3].models", "tenants[4].fallback",
    }  # fmt: skip
    assert found["tenants[2].id"].seen == "a, as in tenants[0]"


def test_a_model_named_twice_is_a_problem_without_a_fallback_too() -> None:
    assert the_problem(TINY + "tenants: [{id: a, models: [m, m]}]").path == "tenants[0].models"


def test_ports_may_both_be_free_ones() -> None:
    assert not problems(TINY + "gateway: {port: 0, admin_port: 0}")


def test_a_tenant_without_a_key_can_be_planned_for() -> None:
    assert load_text(TINY + "tenants: [{id: a}]", source="x").tenants[0].key is None


def test_no_message_shows_a_key() -> None:
    text = TINY + 'tenants: [{id: a, key: "se cret"}, {id: b, key: hush}, {id: c, key: hush}]'
    for problem in problems(text).values():
        shown = f"{problem} {problem.hint}"
        assert "se cret" not in shown
        assert "hush" not in shown


@pytest.mark.parametrize("key", ["0123456", "1_000_1", "0x51EC"])
def test_nor_does_the_hint_of_a_trap(key: str) -> None:
    problem = the_problem(f"{TINY}tenants: [{{id: a, key: {key}}}]")
    assert problem.hint == "quote it"
    assert key not in str(problem)
    assert load_text(f'{TINY}tenants: [{{id: a, key: "{key}"}}]', source="x").tenants[0].key == key


def test_a_model_given_as_a_word_is_shown_where_the_word_goes() -> None:
    assert the_problem("model: kimi-k3").hint == "for example {config: kimi-k3}"


def test_a_broken_line_with_a_key_is_not_shown() -> None:
    assert "sk-secret" not in str(the_problem("tenants: [{id: a, key: sk-secret: x"))


def test_served_name_is_the_checkpoint_folder_for_a_path() -> None:
    def served(config: str) -> str:
        return load_text(f'model: {{config: "{config}"}}', source="x").model.served_name

    assert served("./checkpoints/my-model/config.json") == "my-model"
    assert served("/srv/models/my-model/") == "my-model"
    assert served("deepseek-ai/DeepSeek-V4-Pro") == "deepseek-ai/DeepSeek-V4-Pro"
    assert load_text("model: {config: tiny, served_name: fake}", source="x").model.served_name == "fake"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "~", "---\n"])
def test_an_empty_document_says_how_to_start(text: str) -> None:
    problem = the_problem(text)
    assert problem.seen == "an empty document"
    assert "config: tiny" in problem.hint


@pytest.mark.parametrize("text", ["just words", "- a\n- b", "5"])
def test_a_document_that_is_no_mapping_says_so(text: str) -> None:
    problem = the_problem(text)
    assert problem.path == "document"
    assert "mapping" in problem.wanted


def test_the_catalog_has_the_last_word_and_settles_spelling() -> None:
    text = """
model: {config: DeepSeek-V4-Pro}
cluster: {gpu: h100}
engine: {version: 0.33, settings: {max_num_seqs: 64}}
"""
    deployment = load_text(text, source="x", vocabulary=CatalogVocabulary())
    assert deployment.cluster.gpu == "H100-80GB"
    assert deployment.engine.version == "0.33.0"


def test_names_the_catalog_does_not_know_join_the_other_problems() -> None:
    found = problems(
        """
model: {config: deepseek-v4-por}
cluster: {gpu: H10O, nodes: 0}
engine: {version: 0.5.0, settings: {max-num-seqs: 4, gpu_memory_utilization: 92}}
""",
        vocabulary=CatalogVocabulary(),
    )
    assert found["model.config"].hint == "did you mean DeepSeek-V4-Pro?"
    assert found["cluster.gpu"].hint == "did you mean H100-80GB?"
    assert "0.33" in found["engine.version"].wanted
    assert found["engine.settings.max-num-seqs"].hint == "write it as max_num_seqs"
    assert found["engine.settings.gpu_memory_utilization"].hint == "write 0.92"
    assert "cluster.nodes" in found
