"""Documents from files: names settled by the catalog, checkpoints looked for beside the document."""

from __future__ import annotations

from pathlib import Path

import pytest

from roadworthy.adapters.documents import check_document, document_folder, load_document
from roadworthy.core.errors import SpecError


def test_a_document_is_loaded_with_names_settled(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text("model: {config: kimi-k3}\ncluster: {gpu: h200}\n")
    deployment = load_document(tmp_path / "chat.yaml")
    assert (deployment.name, deployment.cluster.gpu) == ("chat", "H200-141GB")


def test_a_checkpoint_is_looked_for_from_the_documents_folder(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "config.json").touch()
    (tmp_path / "a.yaml").write_text("model: {config: ./models/mine}\n")
    (tmp_path / "b.yaml").write_text("model: {config: models/mine}\n")
    (tmp_path / "c.yaml").write_text("model: {config: ./models/theirs}\n")
    assert load_document(tmp_path / "a.yaml").model.served_name == "mine"
    assert load_document(tmp_path / "b.yaml").model.config == "models/mine"
    _, problems = check_document(tmp_path / "c.yaml")
    assert [problem.path for problem in problems] == ["model.config"]


def test_a_document_over_four_mebibytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("#" * (4 * 2**20 + 1))
    with pytest.raises(SpecError, match="more than 4,194,304 bytes"):
        load_document(tmp_path / "a.yaml")


def test_paths_start_from_the_documents_folder_and_for_standard_input_from_here() -> None:
    assert document_folder("some/where/a.yaml") == Path("some/where")
    assert document_folder("-") == Path.cwd()


def test_every_example_is_a_valid_document(examples: Path) -> None:
    loaded = {path.stem: load_document(path) for path in sorted(examples.glob("*.yaml"))}
    assert {stem: deployment.name for stem, deployment in loaded.items()} == {stem: stem for stem in loaded}
    assert set(loaded) >= {
        "deepseek-v4-pro-32xh100", "deepseek-v4-pro-8xh200", "kimi-k3-32xh200", "kimi-k3-32xh100", "kimi-k3-64xh100",
        "kimi-k3-fp8-32xh100", "deepseek-v4-flash-2xh200", "llama-3.1-70b-8xa100", "laptop", "seven-tenants",
        "bench-gateway",
    }  # fmt: skip


def test_the_gateway_bench_example_is_as_pinned(examples: Path) -> None:
    deployment = load_document(examples / "bench-gateway.yaml")
    assert (deployment.gateway.port, deployment.gateway.admin_port) == (19000, 19001)
    assert [one.url for one in deployment.engine.endpoints] == [f"http://127.0.0.1:{n}" for n in range(18001, 18005)]
    assert deployment.model.served_name == "fake-model"
    assert [tenant.key for tenant in deployment.tenants] == ["sk-bench"]


def test_the_brief_example_promises_what_the_brief_does(examples: Path) -> None:
    deployment = load_document(examples / "deepseek-v4-pro-32xh100.yaml")
    assert deployment.workload.rate_per_s == 16
    assert (deployment.sla.ttft_p99_s, deployment.sla.tpot_p99_s, deployment.sla.success_ratio) == (0.25, 0.04, 1.0)
    assert deployment.cluster.gpus == 32
    assert len(deployment.tenants) == 2
