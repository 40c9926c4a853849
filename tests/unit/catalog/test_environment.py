"""Environment variables: whose, read by anybody or not, and what to set instead."""

from __future__ import annotations

import pytest

from roadworthy.catalog.environment import environment_catalog, owner_of
from roadworthy.catalog.setting_notes import environment_notes
from roadworthy.catalog.truth import truth_rows
from roadworthy.core.errors import Unsupported

NEW, OLD = environment_catalog("0.33.0"), environment_catalog("0.32.0")


@pytest.mark.parametrize(
    ("name", "owner", "status"),
    [
        ("NCCL_IB_HCA", "nccl", "context_dependent"),
        ("NCCL_SOCKET_IFNAME", "nccl", "context_dependent"),
        ("NCCL_IB_DISABLE", "nccl", "real"),
        ("NCCL_ALGO", "nccl", "dangerous"),
        ("NCCL_CUMEM_HOST_ENABLE", "nccl", "real"),
        ("VLLM_HOST_IP", "vllm", "context_dependent"),
        ("VLLM_LOGGING_LEVEL", "vllm", "real"),
        ("CUDA_VISIBLE_DEVICES", "cuda", "context_dependent"),
        ("GLOO_SOCKET_IFNAME", "gloo", "real"),
        ("RAY_health_check_timeout_ms", "ray", "real"),
        ("RAY_ADDRESS", "ray", "real"),
        ("TORCH_NCCL_BLOCKING_WAIT", "torch", "real"),
        ("UCX_TLS", "ucx", "real"),
        ("HF_HOME", "huggingface", "real"),
    ],
)
def test_a_variable_that_somebody_reads_is_accepted(name, owner, status) -> None:
    answer = NEW.explain(name)
    assert (answer.owner, answer.status, answer.accepted) == (owner, status, True)
    assert answer.reason


@pytest.mark.parametrize(
    ("name", "status", "instead"),
    [
        ("NCCL_IB_HCAS", "never_existed", "NCCL_IB_HCA"),
        ("NCCL_IB_GDR_LEVEL", "renamed", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_TREE_THRESHOLD", "removed", "leave it out"),
        ("NCCL_ASYNC_ERROR_HANDLING", "renamed", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("RAY_heartbeat_timeout_milliseconds", "removed", "RAY_health_check_timeout_ms"),
        ("RAY_num_heartbeats_timeout", "removed", "RAY_health_check_failure_threshold"),
        ("RAY_HEALTH_CHECK_TIMEOUT_MS", "never_existed", "RAY_health_check_timeout_ms"),
        ("VLLM_ATTENTION_BACKEND", "renamed", "--attention-backend"),
        ("VLLM_USE_RAY_SPMD_WORKER", "removed", "Leave it out"),
        ("VLLM_HOSTIP", "never_existed", "VLLM_HOST_IP"),
    ],
)
def test_a_variable_that_nobody_reads_says_what_to_set_instead(name, status, instead) -> None:
    answer = NEW.explain(name)
    assert (answer.status, answer.accepted) == (status, False)
    assert instead in answer.replacement


@pytest.mark.parametrize("name", ["UCX_NONSENSE", "GLOO_NONSENSE", "CUDA_NONSENSE", "TORCH_NONSENSE", "HF_NONSENSE"])
def test_a_name_of_an_owner_whose_list_is_in_part_is_unknown_and_never_wrong(name) -> None:
    answer = NEW.explain(name)
    assert (answer.status, answer.accepted) == ("unknown", False)


@pytest.mark.parametrize(
    "name", ["NCCL_FASTRAK_IFNAME", "NCCL_UCX_TLS", "VLLM_SERVICE_HOST", "VLLM_PORT_8000_TCP_ADDR"]
)
def test_plug_ins_and_kubernetes_services_have_names_with_an_owners_prefix(name) -> None:
    assert NEW.explain(name).status == "unknown"


def test_a_name_of_nobody_is_unknown() -> None:
    answer = NEW.explain("MY_SETTING")
    assert (answer.status, answer.owner) == ("unknown", None)
    assert owner_of("MY_SETTING") is None
    assert "NCCL_IB_HCA" in NEW.explain("nccl_ib_hca").replacement


def test_variables_of_vllm_follow_the_version() -> None:
    assert OLD.find("VLLM_ROCM_MONO_DECODE") is not None
    gone = NEW.explain("VLLM_ROCM_MONO_DECODE")
    assert (gone.status, gone.accepted) == ("removed", False)
    early = OLD.explain("VLLM_BEAM_ALWAYS_CONSTRAIN_OUTPUT")
    assert (early.status, early.accepted) == ("context_dependent", False)


def test_a_variable_that_vllms_own_check_does_not_know_says_so() -> None:
    assert "--fail-on-environ-validation" in NEW.explain("VLLM_DIST_IDENT").reason


def test_values_are_known_of_what_people_set_most() -> None:
    tc = NEW.find("NCCL_IB_TC")
    assert tc is not None
    assert (tc.default, tc.since) == ("0", "2.1.15")
    assert NEW.find("NCCL_CROSS_NIC").choices == ("0", "1", "2")


def test_every_note_agrees_with_the_lists_and_the_truth_table() -> None:
    for note in environment_notes().values():
        if not note.gone:
            assert note.name in NEW.variables, note.name
        else:
            assert note.name not in NEW.variables, note.name
        assert not note.row_id or note.row_id in truth_rows()
        assert note.row_id or (note.reason and note.source), note.name
        assert note.renamed_to is None or note.renamed_to in NEW.variables, note.name


def test_an_unknown_engine_version_is_refused() -> None:
    with pytest.raises(Unsupported):
        environment_catalog("0.1")
