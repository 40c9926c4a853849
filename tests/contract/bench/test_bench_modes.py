"""The modes of `roadworthy bench` against an engine on a real socket: traces, sweeps, comparisons, probes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fakes.engine import Asked, chat_events, completion, plain, response, stream_of
from roadworthy.adapters import load_sweep
from roadworthy.adapters.ports import free_ports
from roadworthy.cli.bench import command
from roadworthy.core.errors import ProbeError, SpecError
from support.commands import run, told
from support.threaded_engine import after, obedient, threaded_engine

QUICK = ("--rate", "400", "--prompt-tokens", "30", "--output-tokens", "4")
bench = partial(run, command)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gates that wall time decides are opened: a busy machine must not decide a test."""
    monkeypatch.setattr("roadworthy.advise.gates.MAX_CLIENT_LAG_P99_S", 60.0)
    monkeypatch.setattr("roadworthy.advise.gates.MAX_CLIENT_CPU_RATIO", 100.0)
    monkeypatch.setattr("roadworthy.advise.gates.MIN_STEADY_ARRIVALS", 10**9)
    monkeypatch.setattr("roadworthy.bench.sweep.MOST_DRIFT_RATIO", 1e9)


# one run


def test_one_json_holds_our_names_and_vllms(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with threaded_engine() as engine:
        bench(engine.url, *QUICK, "--requests", "150", "--json", "--out", tmp_path / "run.json")
    document = told(capsys)
    assert document["median_ttft_ms"] == pytest.approx(document["ttft_s"]["p50"] * 1000)
    assert document["request_throughput"] == pytest.approx(document["request_rate_per_s"])
    assert document["sized_by"] == "server"
    assert (
        document["intervals"]["ttft_s"]["p50"][0]
        <= document["ttft_s"]["p50"]
        <= document["intervals"]["ttft_s"]["p50"][1]
    )
    assert [group["id"] for group in document["prompt_lengths"]] == ["up to 1K"]
    assert "ttfts" not in document
    written = json.loads((tmp_path / "run.json").read_text())
    assert len(written["ttfts"]) == len(written["errors"]) == 150


def test_junit_is_written_for_pipelines(tmp_path: Path) -> None:
    with threaded_engine() as engine:
        bench(engine.url, *QUICK, "--requests", "30", "--junit", tmp_path / "run.xml")
    root = ElementTree.parse(tmp_path / "run.xml").getroot()
    assert int(root.attrib["errors"]) >= 1, "thirty requests prove no P99"


def test_a_closed_loop_keeps_its_users_busy(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine() as engine:
        bench(engine.url, "--users", "5", "--requests", "60", "--output-tokens", "3", "--json")
    document = told(capsys)
    assert document["completed"] == 60
    assert document["asked_rate_per_s"] is None
    assert document["max_concurrent_requests"] <= 5
    assert document["facts"]["load"].startswith("closed loop, 5 users")


def test_a_tokenizer_sizes_prompts_exactly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with threaded_engine() as engine:
        bench(engine.url, *QUICK, "--requests", "20", "--tokenizer", tmp_path, "--json")
    document = told(capsys)
    assert document["sized_by"] == "tokenizer"
    assert document["total_input_tokens"] == 20 * 30, "this engine counts a token a word and four a message"


def test_an_engine_that_refuses_fields_it_does_not_know_is_asked_without_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def strict(asked: Asked) -> None:
        if "ignore_eos" in asked.json():
            await asked.send(response(400, b'{"error": {"message": "Unrecognized request argument: ignore_eos"}}'))
        else:
            await obedient(asked)

    with threaded_engine(strict) as engine:
        bench(engine.url, *QUICK, "--requests", "20", "--json")
    document = told(capsys)
    assert (document["completed"], document["failed"]) == (20, 0)
    assert any("ignore_eos" in note for note in document["notes"])


def test_a_service_without_a_list_of_models_is_asked_for_the_model_named(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine() as engine:
        engine.pages["/v1/models"] = (404, b"{}")
        bench(engine.url, *QUICK, "--requests", "20", "--model", "mine", "--json")
        assert {asked.json()["model"] for asked in engine.requests} == {"mine"}
    assert told(capsys)["completed"] == 20


def test_an_engine_without_usage_is_sized_by_bytes_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(stream_of(chat_events("a", "b"))) as engine:
        bench(engine.url, *QUICK, "--requests", "20", "--json")
    document = told(capsys)
    assert document["sized_by"] == "bytes"
    assert any("without usage" in note for note in document["notes"])


def test_an_engine_that_dies_under_load_leaves_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    async def dies(asked: Asked) -> None:
        asked.cut()

    with threaded_engine(after(52, obedient, dies)) as engine:
        code = bench(engine.url, *QUICK, "--requests", "100", "--json")
    document = told(capsys)
    assert (document["completed"], document["failed"], code) == (50, 50, 1)
    assert document["verdict"] == "missed"
    assert document["errors"][0][0] in (
        "the server closed the connection",
        "connection lost: [Errno 104] Connection reset by peer",
    )


def test_an_answer_that_is_no_event_stream_is_a_failure_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(after(2, obedient, plain(200, completion()))) as engine:
        bench(engine.url, *QUICK, "--requests", "20", "--json")
    assert told(capsys)["errors"] == [["answered application/json, not an event stream", 20]]


def test_a_key_that_is_turned_away_is_exit_3_with_what_to_give() -> None:
    with threaded_engine() as engine:
        engine.pages["/v1/models"] = (401, b'{"error": "no"}')
        with pytest.raises(ProbeError, match="turned us away: HTTP 401") as caught:
            bench(engine.url, *QUICK)
        assert "--key" in caught.value.hint
        assert caught.value.exit_code == 3


def test_a_report_whose_disk_filled_meanwhile_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, text: str) -> None:
        raise ProbeError(f"{path}: cannot write: No space left on device", hint="free some space")

    monkeypatch.setattr("roadworthy.adapters.report_files.write_atomically", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with threaded_engine() as engine, pytest.raises(ProbeError, match="its content is in") as caught:
        bench(engine.url, *QUICK, "--requests", "20", "--json", "--out", tmp_path / "run.json")
    assert told(capsys)["completed"] == 20, "what was measured is printed all the same"
    (kept,) = tmp_path.glob("roadworthy-*-run.json")
    assert str(kept) in str(caught.value)
    assert len(json.loads(kept.read_text())["ttfts"]) == 20


# traces


def test_a_trace_is_replayed_with_its_lengths_times_and_shared_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    entries = [
        {"timestamp": at * 100, "input_length": 600, "output_length": 3, "hash_ids": [7, 10 + at]} for at in range(12)
    ]
    trace.write_text("\n".join(map(json.dumps, entries)))
    with threaded_engine() as engine:
        bench(engine.url, "--trace", trace, "--speed", "10", "--json")
        texts = [asked.json()["messages"][0]["content"] for asked in engine.requests[2:]]  # type: ignore[index]
    document = told(capsys)
    assert document["completed"] == 12
    assert document["input_tokens"] / 12 == pytest.approx(600, rel=0.03)
    assert document["asked_rate_per_s"] == pytest.approx(100.0)
    first, second = texts[0].split(), texts[1].split()
    shared = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared / len(first) == pytest.approx(512 / 600, abs=0.02)
    assert "replay of trace.jsonl (mooncake), 10 times as fast" in document["facts"]["load"]


def test_conversations_are_replayed_word_by_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "share.json"
    said = [("human", "One?"), ("gpt", "Yes, one."), ("human", "Two?"), ("gpt", "Two.")]
    trace.write_text(json.dumps([{"conversations": [{"from": who, "value": text} for who, text in said]}]))
    spec = tmp_path / "d.yaml"
    spec.write_text("model: {config: tiny}\nworkload: {rate: 50/s, sessions: {turns: 2, think_time: 1ms}}\n")
    with threaded_engine() as engine:
        bench(engine.url, "--spec", spec, "--trace", trace, "--json")
        bodies = [asked.json()["messages"] for asked in engine.requests[2:]]
    assert [message["content"] for message in bodies[-1]] == ["One?", "Yes, one.", "Two?"]  # type: ignore[attr-defined, index]
    assert told(capsys)["completed"] == 2


def test_a_broken_trace_is_wrong_input_before_any_load(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": -1, "input_length": 5, "output_length": 1}\n')
    with threaded_engine() as engine, pytest.raises(SpecError) as caught:
        bench(engine.url, "--trace", trace)
    assert caught.value.problems[0].path == "line 1: timestamp"
    assert engine.requests == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--speed", "2"), "need --trace"),
        (("--users", "3", "--rate", "5"), "users set the pace"),
        (("--users", "3", "--arrivals", "poisson"), "--users goes with --arrivals closed"),
        (("--arrivals", "ramp"), "a ramp without an end"),
        (("--prompt-tokens", "9,5,1"), "quantiles must rise"),
        (("--prompt-tokens", "many"), "--prompt-tokens many"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        bench("http://127.0.0.1:1", *arguments)


# sweep


def test_a_sweep_finds_the_edge_of_a_service_that_is_full_at_some_rate(
    capsys: pytest.CaptureFixture[str], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full above 600 requests a second as asked, not as they come: wall time decides nothing."""
    asked_per_s: list[float] = []
    drive_once = load_sweep.drive_once

    async def noted(request: Any, target: Any, **more: Any) -> Any:
        asked_per_s.append(request.workload.rate_per_s)
        return await drive_once(request, target, **more)

    refuse = plain(503, b'{"error": {"message": "full"}}')

    async def limited(asked: Asked) -> None:
        await (refuse if asked_per_s and asked_per_s[-1] > 600 else obedient)(asked)

    monkeypatch.setattr(load_sweep, "drive_once", noted)
    load = ("--rate", "400", "--requests", "320", "--prompt-tokens", "9", "--output-tokens", "2", "--ttft-p99", "60s")
    with threaded_engine(limited) as engine:
        code = bench("sweep", engine.url, *load, "--precision", "30%", "--json")
    document = told(capsys)
    assert document["highest_rate_met_per_s"] <= 600 < document["lowest_rate_not_met_per_s"]
    assert document["lowest_rate_not_met_per_s"] / document["highest_rate_met_per_s"] <= 1.3
    assert [step["outcome"] for step in document["steps"]] == [
        "met" if step["rate_per_s"] <= 600 else "missed" for step in document["steps"]
    ]
    assert code == 0


def test_a_search_with_too_few_requests_to_prove_anything_is_refused() -> None:
    with threaded_engine() as engine, pytest.raises(SpecError, match="too few to prove a P99"):
        bench("sweep", engine.url, "--requests", "50")


def test_levels_of_concurrency_are_measured_one_after_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with threaded_engine() as engine:
        code = bench("sweep", engine.url, "--concurrency", "1,3", "--requests", "20", "--output-tokens", "3",
                     "--json", "--html", tmp_path / "s.html")  # fmt: skip
    document = told(capsys)
    assert [(step["users"], step["requests"]) for step in document["steps"]] == [(1, 20), (3, 20)]
    assert code == 0
    page = (tmp_path / "s.html").read_text()
    assert "1 user</td>" in page
    assert "<script" not in page


def test_a_sweep_without_an_answer_ends_with_1(capsys: pytest.CaptureFixture[str], patient: None) -> None:
    with threaded_engine(after(2, obedient, plain(503, b"{}"))) as engine:
        code = bench("sweep", engine.url, "--rate", "400", "--requests", "100", "--output-tokens", "2", "--json")
    document = told(capsys)
    assert (document["highest_rate_met_per_s"], code) == (None, 1)
    assert document["reason"].startswith("no rate met the SLA")


def test_a_target_that_goes_away_ends_the_search_and_is_not_called_missed(
    capsys: pytest.CaptureFixture[str], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_once, loads = load_sweep.drive_once, []

    async def second_reaches_nobody(request: Any, target: Any, **more: Any) -> Any:
        loads.append(request)
        if len(loads) > 1:
            (port,) = free_ports("127.0.0.1", 1)
            target = replace(target, origin=replace(target.origin, port=port))
        return await drive_once(request, target, **more)

    monkeypatch.setattr(load_sweep, "drive_once", second_reaches_nobody)
    load = ("--rate", "400", "--requests", "320", "--prompt-tokens", "9", "--output-tokens", "2", "--ttft-p99", "60s")
    with threaded_engine() as engine:
        code = bench("sweep", engine.url, *load, "--json")
    document = told(capsys)
    assert document["highest_rate_met_per_s"] == 400
    assert document["lowest_rate_not_met_per_s"] is None
    assert "the target was gone: cannot connect" in document["limited_by"]
    assert code == 0


# compare


def test_two_runs_of_one_service_show_no_difference_worth_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with threaded_engine() as engine:
        for name in ("a.json", "b.json"):
            bench(engine.url, *QUICK, "--requests", "60", "--out", tmp_path / name)
    capsys.readouterr()
    bench(
        "compare",
        tmp_path / "a.json",
        tmp_path / "b.json",
        "--tolerance",
        "99%",
        "--json",
        "--html",
        tmp_path / "c.html",
    )
    document = told(capsys)
    assert {one["name"]: one["outcome"] for one in document["differences"]}["success"] == "same"
    assert (tmp_path / "c.html").read_text().startswith("<!DOCTYPE html>")


def test_a_result_of_vllms_client_is_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = {"ttfts": [0.1 + at / 1e4 for at in range(40)], "itls": [[0.01] * 4] * 40, "input_lens": [9] * 40,
              "output_lens": [5] * 40, "errors": [""] * 40, "model_id": "m", "request_rate": "inf"}  # fmt: skip
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(result))
    assert bench("compare", path, path, "--json") == 0
    rows = {one["name"]: one for one in told(capsys)["differences"]}
    assert rows["tpot_p50"]["a"] == pytest.approx(0.01)
    assert rows["e2e_p50"]["ratio"] == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "no ttfts in it"), ("[", "not JSON"), ("[]", "wanted the result"),
     ('{"ttfts": [], "output_lens": [], "input_lens": [], "errors": []}', "wanted one length from 1"),
     ('{"ttfts": [1], "output_lens": [1, 2], "input_lens": [1], "errors": [""]}', "wanted one length"),
     ('{"ttfts": ["x"], "output_lens": [1], "input_lens": [1], "errors": [""]}', "not the result of a run")],
)  # fmt: skip
def test_what_is_no_result_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        bench("compare", path, path)


# probe


async def reads_needles(asked: Asked) -> None:
    """Finds single facts, sees nothing else."""
    text = str(asked.json()["messages"][0]["content"])  # type: ignore[index]
    place = re.search(r"What is the number of (the [\w ]+)\? Answer", text)
    number = re.search(rf"The number of {place[1]} is (\d+)\.", text) if place else None
    await stream_of(chat_events(f"It is {number[1] if number else 'unknown'}.", usage=(len(text.split()), 4)))(asked)


def test_a_probe_maps_what_is_found_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(reads_needles) as engine:
        asked = ("--kinds", "needle,alias", "--lengths", "512,1K", "--depths", "3", "--repeats", "1")
        code = bench("probe", engine.url, *asked, "--json", "--html", tmp_path / "p.html", "--out", tmp_path / "p.json")
    document = told(capsys)
    assert {kind["kind"]: kind["score"] for kind in document["kinds"]} == {"needle": 1.0, "alias": 0.0}
    assert (document["verdict"], code) == ("missed", 1)
    assert document["asked"] == 12
    assert 'class="cell"' in (tmp_path / "p.html").read_text()
    assert len(json.loads((tmp_path / "p.json").read_text())["answers"]) == 12


def test_a_probe_that_finds_everything_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(reads_needles) as engine:
        code = bench("probe", engine.url, "--kinds", "needle", "--lengths", "512", "--depths", "2", "--repeats", "1")
    assert code == 0
    assert "MET" in capsys.readouterr().out.splitlines()[0]


def test_lengths_beyond_the_context_are_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(reads_needles) as engine:
        bench(
            "probe", engine.url, "--kinds", "needle", "--lengths", "512,8K", "--depths", "1", "--repeats", "1", "--json"
        )
        assert any("8K" in note for note in told(capsys)["notes"])
        with pytest.raises(SpecError, match="context of 4,096 tokens"):
            bench("probe", engine.url, "--lengths", "8K")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--kinds", "needle,haystack"), "haystack"), (("--lengths", "some"), "--lengths some"),
     (("--lengths", "10"), "at least 256"), (("--repeats", "9999"), "questions, wanted at most")],
)  # fmt: skip
def test_a_probe_that_cannot_be_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        bench("probe", "http://127.0.0.1:1", *arguments)
