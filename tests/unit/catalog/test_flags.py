"""The flag catalog: spellings as the parsers take them, and what is said of names they do not take."""

from __future__ import annotations

import pytest

from roadworthy.catalog.flags import FLAG_VERSIONS, flag_catalog
from roadworthy.catalog.setting_notes import flag_notes
from roadworthy.catalog.truth import truth_rows
from roadworthy.core.errors import Unsupported

NEW, OLD = flag_catalog("0.33.0"), flag_catalog("0.32.0")


@pytest.mark.parametrize(
    ("spelling", "flag", "negated", "path", "value"),
    [
        ("--max-num-seqs", "--max-num-seqs", False, (), None),
        ("--max_num_seqs=64", "--max-num-seqs", False, (), "64"),
        ("-tp", "--tensor-parallel-size", False, (), None),
        ("-O3", "--optimization-level", False, (), "3"),
        ("-O=2", "--optimization-level", False, (), "2"),
        ("-O", "--optimization-level", False, (), None),
        ("-cc.mode", "--compilation-config", False, ("mode",), None),
        ("--eplb_config.num_redundant_experts=32", "--eplb-config", False, ("num_redundant_experts",), "32"),
        ("--compilation-config.splitting_ops+", "--compilation-config", False, ("splitting_ops",), None),
        ("--compilation-config.pass_config.fuse_norm_quant", "--compilation-config", False,
         ("pass_config", "fuse_norm_quant"), None),
        ("--hf-overrides.text_config.anything", "--hf-overrides", False, ("text_config", "anything"), None),
        ("--no-enable-prefix-caching", "--enable-prefix-caching", True, (), None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("catalog", [NEW, OLD], ids=lambda catalog: catalog.version)
def test_a_spelling_of_the_parser_is_found(catalog, spelling, flag, negated, path, value) -> None:
    found = catalog.match(spelling)
    assert found is not None
    assert (found.flag.name, found.negated, found.key_path, found.value) == (flag, negated, path, value)
    assert catalog.find(spelling) is found.flag


@pytest.mark.parametrize(
    "spelling",
    ["--max-num-s", "--max-num-seqz", "max-num-seqs", "--port.x", "--eplb-config.capacity", "-Max", "--", "", "-",
     "--compilation-config.pass_config.nonsense", "--No-enable-prefix-caching"],
)  # fmt: skip
def test_what_is_no_full_spelling_is_not_found(spelling) -> None:
    assert NEW.match(spelling) is None


def test_the_disable_spelling_of_enable_flags_came_with_0_33() -> None:
    found = NEW.match("--disable-log-requests")
    assert found is not None
    assert (found.flag.name, found.negated) == ("--enable-log-requests", True)
    assert OLD.match("--disable-log-requests") is None
    answer = OLD.explain("--disable-log-requests")
    assert (answer.status, answer.accepted, answer.row_id) == ("context_dependent", False, "vllm.disable-log-requests")
    assert NEW.explain("--disable-log-requests").accepted


@pytest.mark.parametrize(
    ("name", "status", "row"),
    [
        ("--moe-capacity-factor", "never_existed", "vllm.moe-capacity-factor"),
        ("--moe-redundant-experts", "never_existed", "vllm.moe-redundant-experts"),
        ("--moe-async-all-to-all", "never_existed", "vllm.moe-async-all-to-all"),
        ("--cuda-graph-max-batch-size", "never_existed", "vllm.cuda-graph-max-batch-size"),
        ("--enable-async-output-proc", "never_existed", "vllm.enable-async-output-proc"),
        ("--swap-space", "removed", "vllm.obsolete-flags"),
        ("--device", "removed", "vllm.obsolete-flags"),
        ("--guided-decoding-backend", "removed", "vllm.obsolete-flags"),
    ],
)
@pytest.mark.parametrize("catalog", [NEW, OLD], ids=lambda catalog: catalog.version)
def test_a_name_that_is_gone_or_never_was_has_its_row_and_a_replacement(catalog, name, status, row) -> None:
    answer = catalog.explain(name)
    assert (answer.status, answer.accepted, answer.row_id) == (status, False, row)
    assert answer.replacement
    assert answer.reason


def test_a_name_of_another_version_says_which() -> None:
    answer = OLD.explain("--monokernel")
    assert (answer.status, answer.accepted) == ("context_dependent", False)
    assert "0.33.0" in answer.reason
    assert NEW.explain("--monokernel").status == "real"


def test_a_unique_prefix_works_and_is_dangerous_and_an_ambiguous_one_does_not_work() -> None:
    one = NEW.explain("--max-num-seq")
    assert (one.status, one.accepted, one.renamed_to) == ("dangerous", True, "--max-num-seqs")
    several = NEW.explain("--max-num-queued")
    assert (several.status, several.accepted, several.renamed_to) == ("dangerous", False, None)
    assert "--max-num-queued-reqs, --max-num-queued-tokens" in several.replacement


def test_a_misspelling_is_answered_with_the_nearest_flag() -> None:
    answer = NEW.explain("--tensor-paralel-size")
    assert (answer.status, answer.accepted) == ("never_existed", False)
    assert "--tensor-parallel-size" in answer.replacement


def test_a_wrong_key_of_a_json_flag_is_answered_with_the_nearest_key() -> None:
    answer = NEW.explain("--eplb-config.num_redundant_expert")
    assert (answer.status, answer.accepted) == ("never_existed", False)
    assert "num_redundant_experts" in answer.replacement
    assert "no keys" in NEW.explain("--port.number").reason


def test_a_flag_that_the_engine_wants_to_drop_is_real_with_a_condition() -> None:
    answer = NEW.explain("--disable-cascade-attn")
    assert (answer.status, answer.accepted) == ("context_dependent", True)


def test_no_flag_that_a_parser_takes_is_called_removed_or_unheard_of() -> None:
    for catalog in (NEW, OLD):
        for fact in catalog.flags.values():
            for spelling in (*fact.spellings, *fact.negative):
                answer = catalog.explain(spelling)
                assert answer.accepted, spelling
                assert answer.status in ("real", "context_dependent"), spelling


@pytest.mark.parametrize(
    ("asked", "version"),
    [("0.33.0", "0.33.0"), ("0.33.4", "0.33.0"), ("0.33", "0.33.0"), ("v0.32.0", "0.32.0"), ("0.32.0+cpu", "0.32.0"),
     ("vllm==0.33.0", "0.33.0")],
)  # fmt: skip
def test_a_patch_release_is_read_as_its_line(asked, version) -> None:
    assert flag_catalog(asked).version == version


@pytest.mark.parametrize("version", ["0.26.0", "0.6.3", "0.3", "1.0", "latest", "", "0.x"])
def test_an_unknown_version_names_the_known_ones(version) -> None:
    with pytest.raises(Unsupported) as caught:
        flag_catalog(version)
    assert all(known in str(caught.value) for known in FLAG_VERSIONS)


def test_every_note_agrees_with_the_parsers_and_the_truth_table() -> None:
    for note in flag_notes().values():
        taken = [catalog.version for catalog in (NEW, OLD) if catalog.match(note.name)]
        if note.gone:
            assert not taken or note.name == "--disable-log-requests", note.name
        else:
            assert taken, note.name
        if note.row_id:
            assert note.row_id in truth_rows()
        else:
            assert note.reason, note.name
            assert note.source, note.name
        if note.renamed_to:
            assert NEW.match(note.renamed_to), note
            assert OLD.match(note.renamed_to), note


def test_kinds_choices_and_defaults_are_the_parsers_own() -> None:
    seqs, config = NEW.flags["--max-num-seqs"], NEW.flags["--speculative-config"]
    assert (seqs.kind, seqs.takes_value, seqs.default) == ("integer", True, None)
    assert NEW.flags["--max-model-len"].suffixes
    assert NEW.flags["--max-model-len"].words == ("auto",)
    assert NEW.flags["--gpu-memory-utilization"].default == 0.92
    assert "deepep_low_latency" in NEW.flags["--all2all-backend"].choices
    assert NEW.flags["--numa-bind-nodes"].kind == "list"
    assert not NEW.flags["--headless"].takes_value
    assert config.kind == "json"
    assert {"method", "num_speculative_tokens", "model"} <= set(config.keys)
    assert not config.open_keys
    assert NEW.flags["--kv-transfer-config"].keys["kv_role"].choices
