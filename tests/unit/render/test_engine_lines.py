"""The `vllm serve` lines of every engine: held against the lines that are known to be accepted, and each rule alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roadworthy.core.errors import Infeasible, Unsupported
from roadworthy.render.at_start import AtStart
from roadworthy.render.emit import flag
from roadworthy.render.engine_lines import ServeLine, launch, words
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, TINY, V4_ON_32_H100, flags, render_input

if TYPE_CHECKING:
    from roadworthy.spec.values import Scalar


def lines(document: str, layout: str | None = None, *, ray: bool = False) -> tuple[ServeLine, ...]:
    return launch(render_input(document, layout), backend="ray" if ray else "mp").lines


def told(line: ServeLine) -> dict[str, Scalar]:
    return flags(line.argv)


def variables(line: ServeLine) -> dict[str, str]:
    return {one.name: str(one.value) for one in line.variables}


V4_RECIPE = {
    "--trust-remote-code": None, "--kv-cache-dtype": "fp8", "--block-size": "256", "--tokenizer-mode": "deepseek_v4",
    "--reasoning-parser": "deepseek_v4", "--tool-call-parser": "deepseek_v4", "--enable-auto-tool-choice": None,
    "--no-enable-flashinfer-autotune": None,
}  # fmt: skip
K3_RECIPE = {
    "--trust-remote-code": None, "--moe-backend": "marlin", "--attention-backend": "FLASHMLA",
    "--disable-custom-all-reduce": None, "--no-enable-flashinfer-autotune": None, "--reasoning-parser": "kimi_k3",
    "--tool-call-parser": "kimi_k3", "--enable-auto-tool-choice": None,
}  # fmt: skip


def test_v4_as_tp8_pp4_is_the_line_that_the_engine_accepts() -> None:
    found = lines(V4_ON_32_H100, "TP8 PP4")
    assert [(line.host, line.node_rank, line.nodes) for line in found] == [(rank, rank, 4) for rank in range(4)]
    assert [line.serves for line in found] == [True, False, False, False]
    for rank, line in enumerate(found):
        wanted = V4_RECIPE | {
            "--tensor-parallel-size": "8", "--pipeline-parallel-size": "4", "--nnodes": "4", "--node-rank": str(rank),
            "--master-addr": AtStart.MASTER_ADDRESS, "--master-port": "29501",
        }  # fmt: skip
        assert told(line).items() >= wanted.items()
        assert ("--headless" in told(line)) == (rank > 0)
        assert ("--port" in told(line)) == (rank == 0)
        assert variables(line)["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "1800"


def test_v4_as_tp8_dp4_ep32_derives_data_parallel_ranks_from_node_ranks() -> None:
    found = lines(V4_ON_32_H100, "TP8 DP4 EP32")
    for rank, line in enumerate(found):
        wanted = {
            "--tensor-parallel-size": "8", "--data-parallel-size": "4", "--enable-expert-parallel": None,
            "--enable-ep-weight-filter": None, "--nnodes": "4", "--node-rank": str(rank),
        }  # fmt: skip
        assert told(line).items() >= wanted.items()
        assert "--data-parallel-start-rank" not in told(line)
        assert "--pipeline-parallel-size" not in told(line)
        assert "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS" not in variables(line)


def test_k3_carries_its_recipe_on_hopper_alone() -> None:
    assert all(told(line).items() >= K3_RECIPE.items() for line in lines(K3_ON_32_H200, "TP8 DP4 EP32"))
    elsewhere = K3_ON_32_H200.replace("H200-141GB", "B200")
    on_blackwell = told(lines(elsewhere, "TP8 DP4 EP32")[0])
    assert "--moe-backend" not in on_blackwell
    assert on_blackwell["--reasoning-parser"] == "kimi_k3"


def test_data_parallel_ranks_larger_than_a_host_span_hosts() -> None:
    found = lines(V4_ON_32_H100, "TP8 PP2 DP2 EP16")
    assert {told(line)["--nnodes"] for line in found} == {"4"}
    assert [told(line)["--node-rank"] for line in found] == ["0", "1", "2", "3"]


def test_with_ray_there_is_one_line_for_each_engine() -> None:
    (line,) = lines(V4_ON_32_H100, "TP8 DP4 EP32", ray=True)
    wanted = {
        "--distributed-executor-backend": "ray", "--data-parallel-backend": "ray", "--data-parallel-size": "4",
        "--data-parallel-size-local": "1",
    }  # fmt: skip
    assert told(line).items() >= (V4_RECIPE | wanted).items()
    assert not {"--nnodes", "--node-rank", "--master-addr", "--headless", "--numa-bind"} & set(told(line))
    two = lines(V4_ON_32_H100, "2 x TP8 PP2", ray=True)
    assert [(line.replica, line.host) for line in two] == [(0, 0), (1, 2)]
    assert "--data-parallel-backend" not in told(two[0])


def test_ray_places_a_data_parallel_rank_larger_than_a_host_only_when_told_to_span() -> None:
    (line,) = lines(V4_ON_32_H100, "TP8 PP2 DP2 EP16", ray=True)
    assert variables(line)["VLLM_RAY_DP_PACK_STRATEGY"] == "span"
    (small,) = lines(V4_ON_32_H100, "TP8 DP4 EP32", ray=True)
    assert "VLLM_RAY_DP_PACK_STRATEGY" not in variables(small)


def test_engines_on_one_host_see_their_own_gpus_and_no_multi_node_flag() -> None:
    found = lines(LLAMA_ON_8_H100, "4 x TP2")
    assert [variables(line)["CUDA_VISIBLE_DEVICES"] for line in found] == ["0,1", "2,3", "4,5", "6,7"]
    assert not {"--nnodes", "--master-addr", "--headless"} & set(told(found[0]))
    assert "VLLM_HOST_IP" not in variables(found[0])
    assert "CUDA_VISIBLE_DEVICES" not in variables(lines(LLAMA_ON_8_H100, "TP8")[0]), "listing all is a no-op"


def test_every_host_finds_the_others_by_addresses_that_are_its_own() -> None:
    for line in lines(V4_ON_32_H100, "TP8 PP4"):
        assert variables(line)["VLLM_HOST_IP"] == AtStart.OWN_ADDRESS
        assert variables(line)["NCCL_SOCKET_IFNAME"] == AtStart.EXACT_INTERFACE
        assert variables(line)["GLOO_SOCKET_IFNAME"] == AtStart.INTERFACE


NAMED = V4_ON_32_H100.replace("nics:", "hosts: [{address: 10.0.0.1}, {address: 10.0.0.2, interface: eno9, hcas: "
    "[mlx5_8]}, {address: 10.0.0.3}, {address: 10.0.0.4}], interface: ens3, hcas: [mlx5_0, 'mlx5_1:2'], "
    "fabric: ethernet, roce_dscp: 26, nics:")  # fmt: skip


def test_hosts_of_the_document_fill_in_what_is_known() -> None:
    found = lines(NAMED, "2 x TP8 PP2")
    assert [line.known[AtStart.MASTER_ADDRESS] for line in found] == ["10.0.0.1", "10.0.0.1", "10.0.0.3", "10.0.0.3"]
    assert [line.known[AtStart.OWN_ADDRESS] for line in found] == [f"10.0.0.{n}" for n in range(1, 5)]
    assert [line.known[AtStart.INTERFACE] for line in found] == ["ens3", "eno9", "ens3", "ens3"]


def test_nics_are_named_exactly_or_not_at_all() -> None:
    found = lines(NAMED, "2 x TP8 PP2")
    assert variables(found[0])["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:2"
    assert variables(found[1])["NCCL_IB_HCA"] == "=mlx5_8:1"
    assert all("NCCL_IB_HCA" not in variables(line) for line in lines(V4_ON_32_H100, "TP8 PP4"))


def test_the_traffic_class_follows_the_dscp_on_ethernet_alone() -> None:
    assert variables(lines(NAMED, "2 x TP8 PP2")[0])["NCCL_IB_TC"] == "106"
    without = NAMED.replace("roce_dscp: 26, ", "").replace("ethernet", "infiniband")
    assert "NCCL_IB_TC" not in variables(lines(without, "2 x TP8 PP2")[0])


def test_nothing_that_breaks_or_misleads_is_ever_set() -> None:
    never = {
        "NCCL_ALGO", "NCCL_PROTO", "NCCL_NET_GDR_LEVEL", "NCCL_IB_GID_INDEX", "NCCL_CROSS_NIC", "NCCL_IB_DISABLE",
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NCCL_SET_STACK_SIZE", "NCCL_TOPO_DUMP_FILE",
    }  # fmt: skip
    for document, layout in ((NAMED, "2 x TP8 PP2"), (K3_ON_32_H200, "TP8 DP4 EP32"), (LLAMA_ON_8_H100, "4 x TP2")):
        for ray in (False, True):
            assert not never & {name for line in lines(document, layout, ray=ray) for name in variables(line)}


SOCKETS = LLAMA_ON_8_H100.replace("gpu: H100", "gpu_numa_nodes: [0, 0, 0, 0, 1, 1, 1, 1], gpu: H100")


def words_after(line: ServeLine, name: str) -> list[str]:
    rest = line.argv[line.argv.index(name) + 1 :]
    return list(rest[: next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))])


def test_workers_are_bound_where_there_are_several_sockets() -> None:
    (whole,) = lines(SOCKETS, "TP8")
    assert "--numa-bind" in whole.argv
    assert words_after(whole, "--numa-bind-nodes") == list("00001111")
    half = lines(SOCKETS, "2 x TP4")
    assert [words_after(line, "--numa-bind-nodes") for line in half] == [list("0000"), list("1111")]


@pytest.mark.parametrize(
    "document",
    [
        LLAMA_ON_8_H100,
        SOCKETS.replace("[0, 0, 0, 0, 1, 1, 1, 1]", "[0, 0, 0, 0, 0, 0, 0, 0]"),
        SOCKETS + "engine: {settings: {numa_bind: false}}\n",
    ],
)
def test_workers_are_not_bound_where_it_does_not_help(document: str) -> None:
    (line,) = lines(document, "TP8")
    assert "--numa-bind" not in line.argv


def test_ray_workers_are_not_bound_because_no_option_does_it() -> None:
    (line,) = lines(SOCKETS, "TP8", ray=True)
    assert "--numa-bind" not in line.argv


def test_settings_of_the_document_go_before_the_models_own() -> None:
    document = (
        K3_ON_32_H200 + "engine: {settings: {moe_backend: triton, max_num_seqs: 5, enable_auto_tool_choice: false}}\n"
    )
    line = told(lines(document, "TP8 DP4 EP32")[0])
    assert (line["--moe-backend"], line["--max-num-seqs"]) == ("triton", "5")
    assert "--no-enable-auto-tool-choice" in line
    assert "--enable-auto-tool-choice" not in line


def test_what_follows_from_the_place_is_left_out_and_says_so() -> None:
    document = V4_ON_32_H100 + "engine: {settings: {node_rank: 3, distributed_executor_backend: ray}}\n"
    plan = launch(render_input(document, "TP8 PP4"))
    assert [told(line)["--node-rank"] for line in plan.lines] == ["0", "1", "2", "3"]
    assert "--distributed-executor-backend" not in plan.lines[0].argv
    assert {"--node-rank", "--distributed-executor-backend"} <= {one.name for one in plan.left_out}
    assert all(one.why for one in plan.left_out)


def test_expert_load_balancing_is_left_out_where_the_model_takes_no_part() -> None:
    settings = "engine: {settings: {enable_expert_parallel: true, enable_eplb: true}}\n"
    k3 = launch(render_input(K3_ON_32_H200 + settings, "TP8 DP4 EP32"))
    assert "--enable-eplb" not in k3.lines[0].argv
    assert "--enable-eplb" in {one.name for one in k3.left_out}
    assert "--enable-eplb" in lines(V4_ON_32_H100 + settings, "TP8 DP4 EP32")[0].argv


def test_the_default_of_the_engine_is_not_repeated_and_its_opposite_is() -> None:
    assert "--enable-prefix-caching" not in lines(LLAMA_ON_8_H100, "TP8")[0].argv
    off = LLAMA_ON_8_H100 + "engine: {settings: {enable_prefix_caching: false}}\n"
    assert "--no-enable-prefix-caching" in lines(off, "TP8")[0].argv


def test_every_host_serves_behind_an_external_balancer() -> None:
    document = V4_ON_32_H100 + "engine: {settings: {data_parallel_external_lb: true}}\n"
    found = lines(document, "TP8 DP4 EP32")
    assert all(line.serves and "--headless" not in line.argv for line in found)
    assert all("--data-parallel-external-lb" in line.argv and "--nnodes" in line.argv for line in found)


def test_every_host_serves_its_own_ranks_with_hybrid_balancing() -> None:
    document = V4_ON_32_H100.replace("nodes: 4", "nodes: 2").replace("H100-80GB", "H200-141GB")
    found = lines(document + "engine: {settings: {data_parallel_hybrid_lb: true}}\n", "TP4 DP4 EP16")
    assert [told(line)["--data-parallel-start-rank"] for line in found] == ["0", "2"]
    assert {told(line)["--data-parallel-size-local"] for line in found} == {"2"}
    assert not any({"--nnodes", "--headless"} & set(line.argv) for line in found), "refused together with hybrid"


def test_external_balancing_over_several_ranks_a_host_is_refused() -> None:
    document = V4_ON_32_H100 + "engine: {settings: {data_parallel_external_lb: true}}\n"
    with pytest.raises(Infeasible, match="would hold several ranks"):
        lines(document, "TP4 DP8 EP32")


def test_balancing_over_hosts_is_left_out_on_a_single_host() -> None:
    document = V4_ON_32_H100.replace("nodes: 4", "nodes: 1").replace("H100-80GB", "B200")
    plan = launch(render_input(document + "engine: {settings: {data_parallel_hybrid_lb: true}}\n", "TP4 DP2 EP8"))
    assert "--data-parallel-hybrid-lb" not in plan.lines[0].argv
    assert "--data-parallel-hybrid-lb" in {one.name for one in plan.left_out}


def test_headless_hosts_get_no_api_servers() -> None:
    document = V4_ON_32_H100 + "engine: {settings: {api_server_count: 4}}\n"
    head, other, *_ = lines(document, "TP8 DP4 EP32")
    assert told(head)["--api-server-count"] == "4"
    assert "--api-server-count" not in other.argv


def test_ports_and_stop_time_of_the_document_are_kept_once() -> None:
    document = V4_ON_32_H100 + "engine: {settings: {master_port: 30000, shutdown_timeout: 7}}\n"
    head = lines(document, "TP8 PP4")[0]
    assert told(head)["--master-port"] == "30000"
    assert told(head)["--shutdown-timeout"] == "7"
    assert head.argv.count("--master-port") == head.argv.count("--shutdown-timeout") == 1


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ("v4-pro", "deepseek-ai/DeepSeek-V4-Pro"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V4-Pro"),
    ],
)
def test_a_catalog_name_becomes_its_repository(config: str, wanted: str) -> None:
    document = V4_ON_32_H100.replace("deepseek-ai/DeepSeek-V4-Pro", config)
    assert lines(document, "TP8 PP4")[0].model == wanted


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ("/models/v4", "/models/v4"),
        ("/models/v4/config.json", "/models/v4"),
        ("./v4", AtStart.MODEL),
        ("~/v4", AtStart.MODEL),
        ("tiny", AtStart.MODEL),
    ],
)
def test_a_folder_is_absolute_or_asked_for(config: str, wanted: str) -> None:
    line = lines(TINY.replace("config: tiny", f"config: {config}"))[0]
    assert line.model == wanted
    assert variables(line).get("HF_HUB_OFFLINE") == ("1" if config.startswith("/") else None)


def test_a_flag_that_the_version_does_not_take_is_refused_with_the_way_out() -> None:
    with pytest.raises(Unsupported, match="flags are not known"):
        lines(TINY.replace("0.32.0", "0.26.0"))
    assert "--fail-on-environ-validation" in lines(TINY)[0].argv


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        (flag("--x", None, ""), ("--x",)),
        (flag("--x", 3, ""), ("--x", "3")),
        (flag("--x", 0.9, ""), ("--x", "0.9")),
        (flag("--x", "-y", ""), ("--x=-y",)),
        (flag("--x", "a b", ""), ("--x", "a b")),
        (flag("--numa-bind-nodes", "0 1", ""), ("--numa-bind-nodes", "0", "1")),
        (flag("--x", "", ""), ("--x", "")),
    ],
)
def test_words_keep_a_value_in_one_piece(setting: object, wanted: tuple[str, ...]) -> None:
    assert words(setting) == wanted  # type: ignore[arg-type]


def test_a_secret_of_the_document_is_in_no_line_and_no_remark() -> None:
    document = LLAMA_ON_8_H100 + "engine: {settings: {hf_token: hf_verysecret}}\n"
    plan = launch(render_input(document, "TP8"))
    assert "HF_TOKEN" in next(one.why for one in plan.left_out if one.name == "--hf-token")
    assert "hf_verysecret" not in repr(plan)


def test_an_engine_that_the_document_gives_an_address_listens_there() -> None:
    (line,) = lines(LLAMA_ON_8_H100 + "engine: {endpoints: [{url: 'http://10.0.0.5:9000'}]}\n", "TP8")
    assert (told(line)["--host"], told(line)["--port"]) == ("0.0.0.0", "9000")
    (near,) = lines(LLAMA_ON_8_H100 + "engine: {endpoints: [{url: 'http://127.0.0.1:9000'}]}\n", "TP8")
    assert (told(near)["--host"], told(near)["--port"]) == ("127.0.0.1", "9000")
