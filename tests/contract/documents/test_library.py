"""Collections of two tenants on disk: apart from each other, within their limits, and gone when they are deleted."""

from __future__ import annotations

import io
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.adapters.library.reading import Reading
from roadworthy.adapters.library.uploads import tidy
from roadworthy.adapters.longdoc_store import FILE, DocumentStore
from roadworthy.core.errors import ProbeError, Refused
from support.documents_service import (
    asked,
    ended,
    left_on_disk,
    library,
    not_stopped,
    put,
    put_and_read,
)
from support.longdoc import LAW, lines, rightly, speaking
from support.threaded_engine import eventually, threaded_engine

if TYPE_CHECKING:
    from roadworthy.adapters.library.records import JobRecord
    from roadworthy.adapters.library.service import Library
    from roadworthy.adapters.library.shelf import Shelf

CLAIM, QUOTE, QUESTION = "隐私权属于自然人。", "自然人享有隐私权", "隐私权归谁？"
OTHER = "# Lease\n\n1. The tenant shall pay rent of 1,000 a month.\n\n2. The landlord repairs the zanzibar roof.\n"
BOOK = {"name": "p", "checks": [{"id": "c", "topic": "privacy", "wanted": "a right"}]}


def refused(code: str, work: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        work()
    assert caught.value.code == code
    return caught.value


def program(text: str) -> tuple[str, ...]:
    """A reader that does what ``text`` says."""
    return (sys.executable, "-c", text)


SLEEPS = program("import sys, time; sys.stdin.read(); time.sleep(60)")


def compare(collections: Library, tenant: str, document: str) -> dict[str, Any]:
    asked = {
        "document": document,
        "playbook": BOOK,
        "model": "m",
        "parallel": 2,
        "budget_tokens": 4096,
        "answer_tokens": None,
    }
    return collections.compare(tenant, asked, key="sk")


def test_a_document_is_read_and_found_with_its_place(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        document = put_and_read(collections, "acme", LAW.encode())
        assert (document["status"], document["units"], document["kind"]) == ("ready", 6, "text")
        (found,) = collections.search("acme", ["第二条"], limit=1, documents=[])
    (hit,) = found["results"]
    assert (hit["document"], hit["document_id"], hit["section"]) == ("law.md", document["id"], "第二条")
    assert LAW[hit["start"] : hit["end"]] == hit["text"]


def test_nothing_of_one_tenant_is_reached_by_another_whatever_ids_it_guesses(tmp_path: Path) -> None:
    reply = speaking(lambda name, prompt: lines({"clause": "bears on none"}) if name == "compare" else "")
    with threaded_engine(reply) as engine, library(tmp_path, gateway_url=engine.url) as collections:
        mine = put_and_read(collections, "acme", LAW.encode())["id"]
        job = compare(collections, "acme", mine)["id"]
        assert ended(collections, "acme", job)["status"] == "done"
        theirs = put_and_read(collections, "beta", OTHER.encode(), "lease.md")["id"]
        for work in (
            lambda: collections.document("beta", mine),
            lambda: collections.source("beta", mine),
            lambda: collections.delete("beta", mine),
            lambda: collections.search("beta", ["隐私权"], limit=5, documents=[mine]),
            lambda: collections.ask("beta", asked(QUESTION, documents=[mine]), key="k", stop=not_stopped(), tell=print),
            lambda: compare(collections, "beta", mine),
            lambda: collections.documents("beta", limit=10, after=mine),
        ):
            refused("document_not_found", work)
        for act in (collections.job, collections.cancel, collections.result):
            refused("job_not_found", lambda act=act: act("beta", job))  # type: ignore[misc]
        refused("job_not_found", lambda: collections.resume("beta", job, "k"))
        assert [one["id"] for one in collections.documents("beta", limit=10, after=None)["documents"]] == [theirs]
        assert {one["document_id"] for one in collections.jobs("beta")["jobs"]} == {theirs}
        (found,) = collections.search("beta", ["隐私权 自然人"], limit=50, documents=[])
        assert {one["document_id"] for one in found["results"]} == {theirs}
        engine.requests.clear()
        collections.ask("beta", asked(QUESTION), key="k", stop=not_stopped(), tell=lambda kind, value: None)
        assert engine.requests
        assert not any("隐私权属于" in one.body.decode() or "第一条" in one.body.decode() for one in engine.requests)
        assert collections.document("acme", mine)["status"] == "ready"


@pytest.mark.parametrize("tenant", ["..", "../acme", "a/b", "", "ACME", "acme ", "阿"])
def test_a_tenants_id_never_leads_out_of_its_folder_nor_into_anothers(tmp_path: Path, tenant: str) -> None:
    with library(tmp_path) as collections:
        mine = put_and_read(collections, "acme", LAW.encode())["id"]
        refused("document_not_found", lambda: collections.document(tenant, mine))
        put(collections, tenant, b"# Mine\n\nwords")
    assert {one.name for one in tmp_path.iterdir()} == {"lock", "tenants"}
    assert len(list((tmp_path / "tenants").iterdir())) == 2


def test_what_is_deleted_is_nowhere_on_the_disk(tmp_path: Path) -> None:
    reply = speaking(
        lambda name, prompt: lines({"check": "c", "verdict": "meets", "why": "w", "quote": "zanzibar roof"})
    )
    with threaded_engine(reply) as engine, library(tmp_path, gateway_url=engine.url) as collections:
        kept = put_and_read(collections, "acme", LAW.encode())["id"]
        (store,) = tmp_path.glob("tenants/*/store")
        beside = DocumentStore(store)  # as a question in progress has: the log stays while it is open
        text = OTHER + "".join(
            f"\n{n}. Clause {n} of the zanzibar agreement, with words of its own.\n" for n in range(3, 400)
        )
        gone = put_and_read(collections, "acme", text.encode(), "zanzibar lease.md")["id"]
        put_and_read(collections, "acme", OTHER.replace("zanzibar", "slate").encode(), "third.md")
        collections.search("acme", ["zanzibar"], limit=5, documents=[])
        job = compare(collections, "acme", gone)["id"]
        eventually(lambda: collections.job("acme", job)["progress"]["done"] > 20)
        assert {f"{FILE}-wal", f"{gone}.json"} <= set(left_on_disk(tmp_path, "zanzibar"))
        assert collections.delete("acme", gone) == {"id": gone, "deleted": True}
        assert left_on_disk(tmp_path, "zanzibar", gone) == []
        refused("document_not_found", lambda: collections.document("acme", gone))
        refused("job_not_found", lambda: collections.job("acme", job))
        (found,) = collections.search("acme", ["zanzibar 第一条"], limit=50, documents=[])
        assert kept in {one["document_id"] for one in found["results"]}
        beside.close()
    assert left_on_disk(tmp_path, "zanzibar", gone) == []


def test_a_deletion_that_broke_off_is_finished_at_the_next_start(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        gone = put_and_read(collections, "acme", OTHER.encode(), "lease.md")["id"]
    (record,) = tmp_path.glob(f"tenants/*/documents/{gone}.json")
    record.write_text(record.read_text().replace('"ready"', '"deleting"'))
    with library(tmp_path) as collections:
        refused("document_not_found", lambda: collections.document("acme", gone))
        assert left_on_disk(tmp_path, "zanzibar", gone) == []


def test_a_deletion_that_cannot_be_done_is_told_hides_the_document_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(tmp_path) as collections:
        gone = put_and_read(collections, "acme", OTHER.encode(), "lease.md")["id"]
        (store,) = tmp_path.glob("tenants/*/store")
        reading = sqlite3.connect(store / FILE, isolation_level=None)
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM unit").fetchone()  # somebody reads, and does not end
        monkeypatch.setattr("roadworthy.adapters.library.erase.WITHIN_S", 0.25)
        assert str(tmp_path) not in str(refused("storage_failed", lambda: collections.delete("acme", gone)))
        refused("document_not_found", lambda: collections.document("acme", gone))
        reading.close()
        collections.delete("acme", gone)
        assert left_on_disk(tmp_path, "zanzibar", gone) == []


def test_deleting_what_is_being_read_ends_the_reading(tmp_path: Path) -> None:
    with library(tmp_path, reader=SLEEPS) as collections:
        stored = put(collections, "acme", OTHER.encode(), "lease.md")
        eventually(lambda: collections.job("acme", stored["job"]["id"])["status"] == "running")
        collections.delete("acme", stored["document"]["id"])
        assert collections.documents("acme", limit=9, after=None)["documents"] == []
        assert left_on_disk(tmp_path, "zanzibar", stored["document"]["id"]) == []


def test_the_same_bytes_are_one_document_and_are_read_once(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        first = put_and_read(collections, "acme", LAW.encode())
        again = put(collections, "acme", LAW.encode(), "other name.md")
        assert again == {"document": first, "job": None}
        assert put(collections, "beta", LAW.encode())["job"] is not None


def test_what_was_being_read_when_the_process_went_is_read_at_the_next_start(tmp_path: Path) -> None:
    with library(tmp_path, reader=SLEEPS) as collections:
        first = put(collections, "acme", LAW.encode())
        second = put(collections, "acme", OTHER.encode(), "lease.md")
        eventually(lambda: collections.job("acme", first["job"]["id"])["status"] == "running")
        assert collections.job("acme", second["job"]["id"])["before_it"] == 0
    with library(tmp_path) as collections:
        for one in (first, second):
            assert ended(collections, "acme", one["job"]["id"])["status"] == "done"
            assert collections.document("acme", one["document"]["id"])["status"] == "ready"


def test_what_a_reader_took_up_at_once_at_a_start_is_not_queued_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(tmp_path, reader=SLEEPS) as collections:
        stored = put(collections, "acme", LAW.encode())
        eventually(lambda: collections.job("acme", stored["job"]["id"])["status"] == "running")
    add = Reading.add

    def added_and_taken_up(self: Reading, shelf: Shelf, job: JobRecord) -> None:
        add(self, shelf, job)
        eventually(lambda: job.status == "running")

    monkeypatch.setattr(Reading, "add", added_and_taken_up)
    with library(tmp_path, reader=SLEEPS) as collections:
        assert len(collections.jobs("acme")["jobs"]) == 1


def test_what_was_stored_when_the_process_went_is_told_as_if_it_had_not_gone(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        before = put_and_read(collections, "acme", LAW.encode())
        job = collections.jobs("acme")["jobs"][0]["id"]
    (record,) = tmp_path.glob(f"tenants/*/jobs/{job}.json")
    record.write_text(record.read_text().replace('"done"', '"running"', 1))
    with library(tmp_path) as collections:
        assert ended(collections, "acme", job)["status"] == "done"
        assert collections.document("acme", before["id"]) == before


def test_a_job_can_be_cancelled_waiting_or_running_and_resumed(tmp_path: Path) -> None:
    with library(tmp_path, reader=SLEEPS) as collections:
        running, waiting = (put(collections, "acme", one.encode())["job"]["id"] for one in (LAW, OTHER))
        eventually(lambda: collections.job("acme", running)["status"] == "running")
        assert collections.cancel("acme", waiting)["status"] == "cancelled"
        assert collections.cancel("acme", running)["status"] == "cancelled"
        refused("job_state", lambda: collections.cancel("acme", running))
        document = collections.job("acme", running)["document_id"]
        assert collections.document("acme", document)["status"] == "cancelled"
    with library(tmp_path) as collections:
        assert collections.job("acme", running)["status"] == "cancelled"
        collections.resume("acme", running, None)
        assert ended(collections, "acme", running)["status"] == "done"
        refused("job_state", lambda: collections.resume("acme", running, None))


def test_tenants_take_turns_so_that_ones_thousand_documents_do_not_stop_anothers(tmp_path: Path) -> None:
    order = tmp_path / "order"
    reader = program(
        "import json, sys; t = json.load(sys.stdin);"
        "open(sys.argv[1], 'a').write(t['source'].split('/')[-3][:4] + ' ');"
        "print(json.dumps({'read': {}}))"
    )
    with library(tmp_path / "home", reader=(*reader, str(order))) as collections:
        jobs = [("acme", put(collections, "acme", b"a %d" % n)["job"]["id"]) for n in range(6)]
        jobs.append(("beta", put(collections, "beta", b"b")["job"]["id"]))
        for tenant, job in jobs:
            assert ended(collections, tenant, job)["status"] == "done"
    assert order.read_text().split().index("beta") < 5


def picture(width: int, height: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("1", (width, height)).save(out, "PNG")
    return out.getvalue()


BAD = {
    "damaged": (b"%PDF-1.7\n" + b"garbage " * 40, "not a readable PDF"),
    "archive": (b"PK\x03\x04" + b"\0" * 60, ""),
    "program": (b"\x7fELF" + bytes(range(256)) * 8, "neither text nor a format"),
    "image bomb": (picture(20_000, 20_000), ""),
    "blank": (b" \n\n ", "no text"),
}  # fmt: skip


def test_a_file_that_gives_nothing_fails_with_its_reason_and_the_next_is_read(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        stored = {name: put(collections, "acme", data, name) for name, (data, _) in BAD.items()}
        assert put_and_read(collections, "acme", LAW.encode())["status"] == "ready"
        for name, (_, why) in BAD.items():
            bad = collections.document("acme", stored[name]["document"]["id"])
            assert bad["status"] == "failed", name
            assert why in bad["error"], name
            assert str(tmp_path) not in bad["error"], name
        (found,) = collections.search("acme", ["第一条"], limit=3, documents=[])
        assert found["results"]
        refused("document_not_ready", lambda: collections.search("acme", ["x"], limit=3, documents=[bad["id"]]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", f"signal {int(signal.SIGSEGV)}"),
        ("raise SystemExit(7)", "exit code 7"),
        ('print(\'not json\'); print(\'{"what": "pages", "done": 1, "of": 2}\')', "exit code 0"),
    ],
)
def test_a_file_that_crashes_its_reader_fails_alone(tmp_path: Path, text: str, why: str) -> None:
    with library(tmp_path, reader=program(text)) as collections:
        document = put_and_read(collections, "acme", LAW.encode())
        assert document["status"] == "failed"
        assert why in document["error"]
    with library(tmp_path) as collections:  # the same bytes may be tried again
        assert put_and_read(collections, "acme", LAW.encode())["status"] == "ready"


def test_a_file_that_takes_too_much_memory_fails_alone(tmp_path: Path) -> None:
    with library(tmp_path, reader_memory_bytes=160 * 2**20) as collections:
        document = put_and_read(collections, "acme", b"words of a long text\n\n" * 4_000_000)
        assert document["status"] == "failed"
        assert put_and_read(collections, "acme", b"# Short\n\nwords")["status"] == "ready"


def test_limits_of_a_tenant_hold_and_are_nobody_elses(tmp_path: Path) -> None:
    with library(tmp_path, max_documents=2, max_stored_bytes=1000, max_upload_bytes=900, reader=SLEEPS) as collections:
        refused("empty_document", lambda: put(collections, "acme", b""))
        refused("document_too_large", lambda: put(collections, "acme", b"x" * 901))
        put(collections, "acme", b"x" * 600)
        refused("documents_quota", lambda: put(collections, "acme", b"y" * 401))
        put(collections, "acme", b"y" * 400)
        assert "2 documents" in str(refused("documents_quota", lambda: put(collections, "acme", b"z")))
        put(collections, "beta", b"x" * 600)
        assert left_on_disk(tmp_path, "upload-") == []


def test_uploads_in_progress_count_and_leave_nothing_when_they_break_off(tmp_path: Path) -> None:
    with library(tmp_path, max_stored_bytes=1000, reader=SLEEPS) as collections:
        first, second = collections.upload("acme"), collections.upload("acme")
        first.write(b"zanzibar" * 100)
        refused("documents_quota", lambda: second.write(b"x" * 201))
        first.drop()
        second.write(b"x" * 900)
        second.drop()
        assert left_on_disk(tmp_path, "zanzibar", "upload-") == []
        broken_off = collections.upload("acme")
        broken_off.write(b"zanzibar")
        broken_off._file.flush()
    assert left_on_disk(tmp_path, "zanzibar")  # as after kill -9
    broken_off._file.close()
    with library(tmp_path, reader=SLEEPS):
        assert left_on_disk(tmp_path, "zanzibar", "upload-") == []


def test_one_process_serves_a_home(tmp_path: Path) -> None:
    with library(tmp_path), pytest.raises(ProbeError, match="another process"), library(tmp_path):
        pass


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\x\\合同.pdf", "合同.pdf"),
        ("a\x1b[31m\u202eb.md", "a [31m b.md"),
        ("/", "document"),
    ],
)
def test_a_name_keeps_neither_folders_nor_what_steers_a_terminal(given: str, name: str) -> None:
    assert tidy(given) == name
    assert len(tidy("x" * 5000)) == 200


# questions


def test_an_answer_is_cited_and_each_citation_stands_in_the_text(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []
    with (
        threaded_engine(speaking(rightly(CLAIM, QUOTE))) as engine,
        library(tmp_path, gateway_url=engine.url) as collections,
    ):
        document = put_and_read(collections, "acme", LAW.encode())["id"]
        told = collections.ask(
            "acme",
            asked(QUESTION),
            key="sk-acme",
            stop=not_stopped(),
            tell=lambda kind, value: seen.append((kind, value)),
        )
        assert {one.header("authorization") for one in engine.requests} == {"Bearer sk-acme"}
        assert all(int(one.header("x-roadworthy-io-wait-ms") or -1) >= 0 for one in engine.requests)
    (claim,) = told["claims"]
    (citation,) = claim["citations"]
    assert told["outcome"] == "answered"
    assert (citation["document"], citation["document_id"]) == ("law.md", document)
    assert LAW[citation["start"] : citation["end"]] == citation["quote"] == QUOTE
    assert [value.get("round") for kind, value in seen if kind == "round"] == ["locate", "extract", "answer", "verify"]
    assert [value["text"] for kind, value in seen if kind == "claim"] == [CLAIM]


def test_a_false_citation_is_never_a_verified_claim(tmp_path: Path) -> None:
    false = lines({"claim": "罚款一万元。", "cite": [{"id": "P1", "quote": "处以罚款一万元以上"}]})
    reply = speaking(lambda name, prompt: false if name == "answer" else "")
    with threaded_engine(reply) as engine, library(tmp_path, gateway_url=engine.url) as collections:
        put_and_read(collections, "acme", LAW.encode())
        told = collections.ask("acme", asked(QUESTION), key=None, stop=not_stopped(), tell=lambda kind, value: None)
    assert (told["outcome"], told["claims"], len(told["unverified"])) == ("unverified", [], 1)


def test_a_question_without_a_document_is_refused_before_any_model_is_asked(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        refused(
            "document_not_ready",
            lambda: collections.ask("acme", asked(QUESTION), key=None, stop=not_stopped(), tell=print),
        )


def test_a_comparison_goes_on_where_it_was_when_the_process_went(tmp_path: Path) -> None:
    lease = "".join(f"{n}. Clause {n} says a thing of its own.\n\n" for n in range(1, 31))
    reply = speaking(
        lambda name, prompt: lines({"check": "c", "verdict": "meets", "why": "w", "quote": "a thing of its own"})
    )
    with threaded_engine(reply) as engine:
        with library(tmp_path, gateway_url=engine.url) as collections:
            document = put_and_read(collections, "acme", lease.encode())["id"]
            job = compare(collections, "acme", document)
            assert compare(collections, "acme", document)["id"] in {job["id"], *_ids(collections)}
            eventually(lambda: collections.job("acme", job["id"])["progress"]["done"] >= 3)
        with library(tmp_path, gateway_url=engine.url) as collections:
            told = collections.job("acme", job["id"])
            if told["status"] == "interrupted":
                before = len(engine.requests)
                collections.resume("acme", job["id"], "sk-acme")
                assert ended(collections, "acme", job["id"])["status"] == "done"
                assert len(engine.requests) - before < 30
            table = collections.result("acme", job["id"])
    assert (table["document"], table["document_id"]) == ("law.md", document)
    (risk,) = table["risks"]
    assert risk["status"] == "meets"
    assert len(risk["judgements"]) == table["clauses"] >= 30
    assert all(one["verified"] for one in risk["judgements"])


def _ids(collections: Library) -> list[str]:
    return [one["id"] for one in collections.jobs("acme")["jobs"]]


def test_a_key_is_never_written_down(tmp_path: Path) -> None:
    reply = speaking(lambda name, prompt: lines({"clause": "bears on none"}))
    with threaded_engine(reply) as engine, library(tmp_path, gateway_url=engine.url) as collections:
        document = put_and_read(collections, "acme", LAW.encode())["id"]
        asked = {
            "document": document,
            "playbook": BOOK,
            "model": "m",
            "parallel": 2,
            "budget_tokens": 4096,
            "answer_tokens": None,
        }
        job = collections.compare("acme", asked, key="sk-zanzibar")["id"]
        assert ended(collections, "acme", job)["status"] == "done"
    assert left_on_disk(tmp_path, "sk-zanzibar") == []


def test_a_playbook_with_problems_names_them(tmp_path: Path) -> None:
    with library(tmp_path) as collections:
        document = put_and_read(collections, "acme", LAW.encode())["id"]
        asked = {"document": document, "playbook": {"checks": [{"id": "c", "topic": ""}]}, "model": None, "parallel": 1}
        assert "topic" in str(refused("invalid_playbook", lambda: collections.compare("acme", asked, key=None)))
