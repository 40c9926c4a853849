"""Scanning: what is found does not depend on chunks, on repetition, or on what stands around it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.diagnose.anatomy import host_of_file, time_of, writer_of
from roadworthy.diagnose.scan import KEEP_FIRST, KEEP_LAST, FileScan, SignalIndex
from roadworthy.diagnose.signals import SIGNALS, signal_index

if TYPE_CHECKING:
    from roadworthy.diagnose.values import Clue

XID = "[771.120] NVRM: Xid (PCI:0000:dd:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
STATS = (
    "INFO 01-16 04:00:12 [loggers.py:257] Engine 000: Avg prompt throughput: 10.1 tokens/s, Avg generation throughput: "
    "{n}.0 tokens/s, Running: 6 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.1%, Prefix cache hit rate: 33.0%"
)


def scanned(text: str, *, cut: int | None = None) -> tuple[Clue, ...]:
    scan = FileScan(index=signal_index(), file="f.log")
    lines = text.splitlines(keepends=True)
    step = cut or max(1, len(lines))
    for start in range(0, len(lines), step):
        scan.feed("".join(lines[start : start + step]).encode())
    return scan.clues()


def test_a_line_among_thousands_is_found_with_its_number() -> None:
    lines = [f"2026-01-16T04:00:00Z INFO request {number} done" for number in range(5000)]
    lines[3210] = XID
    (clue,) = [one for one in scanned("\n".join(lines)) if one.name == "gpu.xid"]
    assert (clue.lines[0].number, clue.value("xid"), clue.value("bus")) == (3211, "79", "0000:dd:00")


def test_of_a_signal_that_repeats_the_first_and_the_last_are_kept_and_all_are_counted() -> None:
    total = 5 * (KEEP_FIRST + KEEP_LAST)
    clues = [one for one in scanned("\n".join(STATS.format(n=n) for n in range(total))) if one.name == "engine.stats"]
    assert clues[0].count == total
    assert len(clues) == KEEP_FIRST + KEEP_LAST
    assert [clues[0].value("output_per_s"), clues[-1].value("output_per_s")] == ["0.0", f"{total - 1}.0"]


@given(cut=st.integers(1, 40), seed=st.integers(0, 1000))
def test_chunks_that_end_at_line_ends_change_nothing(cut: int, seed: int) -> None:
    r = random.Random(seed)
    lines = [r.choice([XID, STATS.format(n=r.randrange(99)), "nothing of note", "", "\tindented"]) for _ in range(40)]
    text = "\n".join(lines) + "\n"
    assert scanned(text, cut=cut) == scanned(text)


@given(st.binary(max_size=2000))
def test_arbitrary_bytes_are_read_without_an_error(noise: bytes) -> None:
    scan = FileScan(index=signal_index(), file="noise")
    scan.feed(noise + b"\n" + XID.encode() + b"\n" + noise)
    assert any(one.name == "gpu.xid" for one in scan.clues())


def test_a_line_without_end_is_cut_before_it_is_read() -> None:
    (clue,) = [one for one in scanned(XID + "x" * 10_000_000) if one.name == "gpu.xid"]
    assert len(clue.lines[0].text) <= 4096


def test_the_head_of_a_line_tells_host_rank_and_process() -> None:
    nccl = writer_of("node-a:4411:4460 [3] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr failed")
    assert (nccl.host, nccl.rank) == ("node-a", 3)
    vllm = writer_of("(Worker_TP1 pid=811) INFO 09-24 02:01:20 [parallel_state.py:1206] rank 1 in world size 8")
    assert (vllm.rank, vllm.process) == (1, "Worker_TP1")
    assert writer_of("Oct 21 02:10:01 node-n systemd[1]: Stopping").host == "node-n"
    assert writer_of("[pod/llm-0/engine] INFO hello").host == "llm-0"
    assert writer_of("plain words").host is None


def test_clocks_of_every_format_are_seconds_in_one_order() -> None:
    earlier = time_of("2026-11-02T04:00:00+01:00 x")
    later = time_of("2026-11-02 03:00:01,250 x")
    assert earlier is not None
    assert later is not None
    assert later - earlier == 1.25
    assert time_of("INFO 13-45 99:00:00 x") is None
    assert time_of("[  771.120] usb") == 771.12


def test_a_files_name_or_folder_tells_the_host() -> None:
    assert host_of_file("node-a.show_gids.txt") == "node-a"
    assert host_of_file("captures/node-b/dmesg.txt") == "node-b"
    assert host_of_file("engine.t0.prom") is None
    assert host_of_file("engine.log") is None


PIECES = [literal for one in SIGNALS for literal in one.literals][::7]


@given(
    st.lists(
        st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12), st.just(" ")), max_size=6).map("".join),
        max_size=8,
    )
)
def test_a_line_is_read_by_every_signal_whose_literal_it_holds(lines: list[str]) -> None:
    chunk = "\n".join(line.replace("\n", " ") for line in lines).encode()
    index = signal_index()
    found = {(at, one.name) for at, signals in index.candidates(chunk) for one in signals}
    for at, line in enumerate(chunk.split(b"\n")):
        wanted = {one.name for one in SIGNALS if any(literal in line for literal in one.encoded)}
        assert wanted <= {name for where, name in found if where == at}


@given(
    st.lists(
        st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12), st.just(" ")), max_size=6).map("".join),
        min_size=1,
        max_size=12,
    )
)
def test_one_pass_over_many_lines_finds_what_line_by_line_does(lines: list[str]) -> None:
    pytest.importorskip("hyperscan")
    chunk = "\n".join(line.replace("\n", " ") for line in lines).encode()
    together, apart = SignalIndex(SIGNALS), SignalIndex(SIGNALS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roadworthy.diagnose.scan.TOGETHER", 1)
        at_once = list(together.candidates(chunk))
    assert together._finder is not None
    assert at_once == list(apart.candidates(chunk))


def test_without_a_searcher_for_many_literals_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.diagnose.scan.TOGETHER", 1)
    monkeypatch.setattr("roadworthy.diagnose.scan.finder_of", lambda literals: None)
    index = SignalIndex(SIGNALS)
    assert [at for at, _ in index.candidates(f"..\n{XID}\n".encode())] == [1]


def test_what_is_remembered_of_shapes_is_bounded_however_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.diagnose.scan.REMEMBERED_BYTES", 20_000)
    index = SignalIndex(SIGNALS)
    letters = "ghijklmnopqrstuvwxyz"
    lines = [" ".join(letters[(at * k) % 20] * (k % 7 + at) for k in range(1, 20)) for at in range(200)]
    list(index.candidates("\n".join(lines).encode()))
    assert sum(len(shape) for shape in index._shapes.known) < 20_000
    assert sum(len(word) for word in index._words.known) < 20_000


def test_a_line_of_megabytes_is_searched_at_its_start_alone() -> None:
    scan = FileScan(index=signal_index(), file="x")
    fatal = b"EngineCore encountered a fatal error."
    scan.feed(fatal + b" " + b"x" * 8_000_000 + b"\n" + fatal + b"\n")
    assert [clue.lines[0].number for clue in scan.clues() if clue.name == "engine.fatal"] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-02 04:11:09 [logger.py:39] Received request cmpl-1: prompt: '{}', params: SamplingParams(n=1)",
        "DEBUG 11-02 04:11:09 [request_logger.py:60] Request cmpl-1 details: prompt: '{}', prompt_token_ids: [1]",
        'DEBUG 11-02 04:11:09 [request_logger.py:80] Request cmpl-1 JSON body: {{"messages": "{}"}}',
        "INFO 11-02 04:11:09 [logger.py:99] Generated response cmpl-1 (streaming complete): output: '{}', reason: stop",
        "[2026-11-02 04:11:09] Receive: obj=GenerateReqInput(rid='1', text='{}')",
    ],
)
def test_what_a_client_asks_about_a_fault_is_none(line: str) -> None:
    assert not scanned(line.format(XID) + "\n")
    assert {one.name for one in scanned(f"{XID} {line.format('hello')}\n")} >= {"gpu.xid"}
