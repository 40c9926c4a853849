"""Vectors of an endpoint in a library: made, searched, judged, refused, broken off and taken up again."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import FakeEngine, plain
from roadworthy.adapters.longdoc_embedder import Served, ServedModel
from roadworthy.adapters.longdoc_library import searcher_of
from roadworthy.adapters.longdoc_model import ModelClient
from roadworthy.adapters.longdoc_store import FILE, DocumentStore
from roadworthy.cli import doc
from roadworthy.core.errors import ProbeError, RoadworthyError, SpecError
from support.embedding import DIMENSION, Embed, all_alike, by_chance, by_pairs, embedding
from support.threaded_engine import threaded_engine

TOPICS = (
    "rent",
    "noise",
    "repairs",
    "deposit",
    "pets",
    "guests",
    "keys",
    "heating",
    "garden",
    "parking",
    "bins",
    "paint",
)
HOUSE = "\n\n".join(
    f"Article {number} On {topic}\n\nFirst words about {topic} that every tenant reads.\n"
    f"The landlord answers for {topic} within {number} days of a letter; who forgets {topic} pays {number * 7} coins."
    for number, topic in enumerate(TOPICS, 1)
)


def run(*arguments: str | Path) -> int:
    code = doc.command.main([str(one) for one in arguments], standalone_mode=False)
    assert isinstance(code, int)
    return code


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "house.txt").write_text(HOUSE)
    return tmp_path / "house.txt"


def ingest(house: Path, url: str, *more: str, model: str = "pairs") -> int:
    home = house.parent / "home"
    return run("ingest", house, "--home", home, "--no-bundled", "--embeddings", url, "--embedding-model", model, *more)


def found(house: Path, question: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    capsys.readouterr()
    assert run("search", question, "--home", house.parent / "home", "--json", *more) == 0
    return [one["section"] for one in json.loads(capsys.readouterr().out)["results"]]


def test_a_library_is_searched_with_the_model_that_made_its_vectors(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Any] = []
    with threaded_engine(embedding(told=told)) as engine:
        assert ingest(house, engine.url) == 0
        with DocumentStore(house.parent / "home") as store:
            model = store.served.model()
            assert model is not None
            assert (model.model, model.dimension) == ("pairs", DIMENSION)
            assert store.served.trust()[1] > 0
        assert found(house, "Who answers for the heating?", capsys)[0] == "Article 8"
        questions = [body["input"] for body in told[-2:]]
        assert ["Who answers for the heating?"] in questions
        assert {body["model"] for body in told} == {"pairs"}


def test_another_model_or_another_length_is_refused_with_the_next_step(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with threaded_engine(embedding()) as engine:
        ingest(house, engine.url)
        with pytest.raises(SpecError, match="of pairs") as caught:
            ingest(house, engine.url, model="other")
        assert "doc embed" in caught.value.hint
        with pytest.raises(SpecError, match="of pairs"):
            found(house, "rent", capsys, "--embedding-model", "other", "--embeddings", engine.url)
    with (
        threaded_engine(embedding(lambda texts: by_pairs(texts, 96))) as shorter,
        pytest.raises(SpecError, match="96 numbers") as caught,
    ):
        found(house, "rent", capsys, "--embeddings", shorter.url)
    assert "doc embed" in caught.value.hint


def test_an_endpoint_that_is_gone_is_searched_without(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine(embedding()) as engine:
        ingest(house, engine.url)
    assert found(house, "Who answers for the heating?", capsys)[0] == "Article 8"


def test_reembedding_breaks_off_goes_on_and_takes_over_when_it_is_whole(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (house.parent / "more.txt").write_text("\n\n".join(HOUSE.replace("tenant", f"guest {at}") for at in range(1)) * 4)
    home = house.parent / "home"
    with threaded_engine(embedding()) as engine:
        ingest(house, engine.url)
        run("ingest", house.parent / "more.txt", "--home", home, "--embeddings", engine.url, "--no-bundled")
    arguments = ("embed", "--home", home, "--embedding-model", "new", "--embeddings")
    with (
        threaded_engine(embedding(lambda texts: by_pairs(texts, 96), fails_after=1)) as broken,
        pytest.raises(RoadworthyError, match="CUDA"),
    ):
        run(*arguments, broken.url)
    with DocumentStore(home) as store:
        old = store.served.model()
        assert old is not None
        assert old.model == "pairs"
    told: list[Any] = []
    with threaded_engine(embedding(lambda texts: by_pairs(texts, 96), told=told)) as engine:
        assert run(*arguments, engine.url) == 0
    texts = [text for body in told for text in body["input"]]
    with DocumentStore(home) as store:
        units = len(list(store.rows()))
        new = store.served.model()
        assert new is not None
        assert (new.model, new.dimension) == ("new", 96)
        assert len(list(store.served.rows())) == units
    assert sum("\n" in text for text in texts) < units  # those of the first run were not made again
    assert "new" in capsys.readouterr().err


def test_documents_with_and_without_vectors_are_searched_together(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = house.parent / "bare.txt"
    bare.write_text(HOUSE.replace("rent", "chimney"))
    with threaded_engine(embedding()) as engine:
        ingest(house, engine.url)
        assert run("ingest", bare, "--home", house.parent / "home", "--no-vectors") == 0
        capsys.readouterr()
        assert run("search", "about the chimney", "--home", house.parent / "home", "--json") == 0
        first = json.loads(capsys.readouterr().out)["results"][0]
    assert (first["document"], first["section"]) == (str(bare), "Article 1")


@pytest.mark.parametrize("noise", [by_chance, all_alike])
def test_vectors_that_say_nothing_change_nothing(house: Path, noise: Embed, capsys: pytest.CaptureFixture[str]) -> None:
    questions = ("Who pays for the bins?", "letter about paint", "days for the keys")
    run("ingest", house, "--home", house.parent / "home", "--no-vectors")
    plainly = [found(house, question, capsys) for question in questions]
    with threaded_engine(embedding(noise)) as engine:
        ingest(house, engine.url)
        assert "does not count" in capsys.readouterr().err
        assert [found(house, question, capsys) for question in questions] == plainly


@pytest.mark.parametrize(
    ("limits", "texts"), [({"most": 3}, 12), ({"longest": 120}, 12), ({"most": 2, "longest": 120}, 12)]
)
def test_batches_and_texts_that_are_too_much_come_in_pieces(limits: dict[str, int], texts: int, house: Path) -> None:
    with threaded_engine(embedding(**limits)) as engine:
        assert ingest(house, engine.url) == 0
    with DocumentStore(house.parent / "home") as store:
        assert len(list(store.served.rows())) == texts


def served(engine: FakeEngine, dimension: int = 0) -> Served:
    model = ServedModel(model="m", url=engine.url, dimension=dimension)
    return Served(ModelClient(engine.url, model="m", key="k", sleep=lambda _: None), model)


def fixed(vector: Sequence[float | None]) -> bytes:
    return json.dumps({"data": [{"index": 0, "embedding": vector}]}).encode()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b'{"error": {"message": "Unauthorized"}}', "401: Unauthorized"),
        (404, b'{"error": {"message": "The model `m` does not exist."}}', "does not exist"),
        (200, fixed([math.nan, 1.0]), "NaN"),
        (200, fixed([None, 1.0]), "NaN"),
        (200, fixed([0.0, 0.0]), "a vector of nothing"),
        (200, b'{"data": []}', "no vector for each"),
        (200, b"<html>", "no JSON"),
        (400, b'{"error": {"message": "This model does not embed"}}', "does not embed"),
    ],
)
def test_what_is_no_vector_is_told(status: int, body: bytes, message: str) -> None:
    with threaded_engine(plain(status, body)) as engine, pytest.raises(ProbeError, match=message) as caught:
        served(engine).question("q")
    assert caught.value.hint or status == 200


def test_base64_vectors_are_read() -> None:
    body = json.dumps({"data": [{"index": 0, "embedding": "AACAPwAAAAA="}]}).encode()
    with threaded_engine(plain(200, body)) as engine:
        assert list(served(engine).question("q")) == [1.0, 0.0]


def test_a_file_whose_vectors_failed_keeps_those_that_were_made(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house.write_text(HOUSE + "\n\n" + "\n\n".join(f"Article {at} On {at}\n\nWords {at}." for at in range(13, 80)))
    home = house.parent / "home"
    with threaded_engine(embedding(fails_after=1)) as engine:
        assert ingest(house, engine.url) == 1
    assert "kept" in capsys.readouterr().out
    kept = sqlite3.connect(home / FILE).execute("SELECT count(*) FROM pending").fetchone()[0]
    assert kept > 0
    told: list[Any] = []
    with threaded_engine(embedding(told=told)) as engine:
        assert ingest(house, engine.url) == 0
    texts = [text for body in told for text in body["input"]]
    assert sum(text.startswith(("On ", "Article")) or "\n" in text for text in texts) <= 79 - kept
    assert sqlite3.connect(home / FILE).execute("SELECT count(*) FROM pending").fetchone()[0] == 0


def test_a_library_without_such_vectors_does_not_take_a_model(house: Path) -> None:
    run("ingest", house, "--home", house.parent / "home", "--no-vectors")
    with (
        threaded_engine(embedding()) as engine,
        DocumentStore(house.parent / "home") as store,
        pytest.raises(SpecError, match="none of an endpoint"),
    ):
        searcher_of(store, house.parent / "home", served=served(engine))


def test_the_endpoint_is_found_in_a_document(house: Path) -> None:
    with threaded_engine(embedding()) as engine:  # which lists the model m
        spec = house.parent / "roadworthy.yaml"
        spec.write_text(
            f"schema_version: 1\nmodel: {{config: tiny}}\nengine: {{endpoints: [{{url: '{engine.url}'}}]}}\n"
        )
        arguments = ("ingest", house, "--home", house.parent / "home", "--no-bundled", "--spec", spec)
        assert run(*arguments, "--embedding-model", "m") == 0
        with pytest.raises(ProbeError, match="serves m"):
            run(*arguments, "--embedding-model", "absent")


def only(paths: dict[str, bytes]) -> Any:
    """An endpoint that knows these paths."""

    async def answer(asked: Any) -> None:
        body = paths.get(asked.path)
        await plain(404 if body is None else 200, b'{"detail": "Not Found"}' if body is None else body)(asked)

    return answer


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/rerank", {"results": [{"index": 0, "relevance_score": 0.5}]}),
        ("/rerank", [{"index": 0, "score": 0.5}]),
        ("/v2/rerank", {"results": [{"index": 0, "relevance_score": 0.5, "document": {"text": "a"}}]}),
        ("/v1/score", {"data": [{"index": 0, "object": "score", "score": 0.5}]}),
    ],
)
def test_a_reranker_is_asked_in_the_form_that_is_there(path: str, answer: Any) -> None:
    with threaded_engine(only({path: json.dumps(answer).encode()})) as engine:
        assert ModelClient(engine.url, model="m").rerank("q", ["a"]) == [0.5]


@pytest.mark.parametrize("score", [math.nan, None, "high"])
def test_a_score_that_is_no_number_is_told(score: object) -> None:
    body = json.dumps({"results": [{"index": 0, "relevance_score": score}]}).encode()
    with threaded_engine(only({"/v1/rerank": body})) as engine, pytest.raises(ProbeError, match=r"no score|no numbers"):
        ModelClient(engine.url, model="m").rerank("q", ["a"])


def test_without_any_of_the_paths_the_next_step_is_told() -> None:
    with threaded_engine(only({})) as engine, pytest.raises(ProbeError) as caught:
        ModelClient(engine.url, model="m").rerank("q", ["a"])
    assert "/v1/score" in caught.value.hint
