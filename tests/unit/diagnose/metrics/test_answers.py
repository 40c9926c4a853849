"""Answers of a Prometheus are known by what they hold and read series by series, however they are cut or printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.prometheus import answer, series
from roadworthy.diagnose.metrics.answers import AnswerReader, is_answer

if TYPE_CHECKING:
    from roadworthy.diagnose.metrics.series import Series

T0 = 1_793_592_000.0
TWO = answer(
    series("vllm:kv_cache_usage_perc", [0.1, 0.2], start_s=T0, pod="a"), series("up", [1, 0], start_s=T0, pod="b")
)


def read(text: str, size: int = 1 << 20) -> list[Series]:
    reader = AnswerReader("a.json")
    data = text.encode()
    return [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]


@pytest.mark.parametrize(
    "text",
    [
        TWO,
        json.dumps(json.loads(TWO), indent=2),
        json.dumps(json.loads(TWO), sort_keys=True),
        json.dumps({"status": "success", "isPartial": True, "data": json.loads(TWO)["data"], "trace": {}}),
        TWO + "\n" + TWO,
    ],
)
def test_an_answer_is_known_and_read_however_it_is_printed(text: str) -> None:
    assert is_answer(text[:4096].encode())
    some = read(text)
    assert {(one.name, one.label("pod")) for one in some} == {("kv_cache_usage_perc", "a"), ("up", "b")}
    assert list(some[0].values) == [0.1, 0.2]
    assert list(some[0].times) == [T0, T0 + 15]


def test_an_instant_answer_and_an_export_of_victoriametrics_are_read() -> None:
    instant = (
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up"},"value":[5,"1"]}]}}'
    )
    export = '{"metric":{"__name__":"up","job":"x"},"values":[1,0],"timestamps":[1000,2500]}\n' * 2
    assert [list(one.times) for one in read(instant)] == [[5.0]]
    assert is_answer(export.encode())
    assert [list(one.times) for one in read(export)] == [[1.0, 2.5]] * 2


@pytest.mark.parametrize(
    "text",
    [
        "plain log line",
        '{"log": "x", "stream": "stdout"}',
        '{"status": "success", "data": ["a"]}',
        '{"messages": [{"role": "user"}]}',
        '{"status":"success","data":{"resultType":"streams","result":[{"stream":{"pod":"a"},"values":[["1","x"]]}]}}',
    ],
)
def test_other_text_is_no_answer(text: str) -> None:
    assert not is_answer(text.encode())


@given(st.integers(1, 60))
def test_where_an_answer_is_cut_into_pieces_does_not_matter(size: int) -> None:
    text = json.dumps(json.loads(TWO), indent=1)
    assert [(one.name, one.line) for one in read(text, size)] == [(one.name, one.line) for one in read(text)]


def test_a_series_says_on_which_line_it_stands() -> None:
    text = json.dumps(json.loads(TWO), indent=2)
    lines = text.split("\n")
    for one in read(text):
        assert '"metric"' in lines[one.line]


def test_what_breaks_off_or_is_no_number_is_left_out_and_told() -> None:
    reader = AnswerReader("a.json")
    assert len(list(reader.feed(TWO[:-40].encode()))) == 1
    assert not reader.finished()
    odd = '{"metric":{"__name__":"x"},"values":[[1,"NaN"],[2,"+Inf"],[3,"4"]]}'
    (one,) = read('{"status":"success","data":{"resultType":"matrix","result":[' + odd + ',{"metric":1}]}}')
    assert list(one.values) == [4.0]
    junk = AnswerReader("a.json")
    assert list(junk.feed(b'{"status":"success","data":{"resultType":"matrix","result":[{"metric": oops')) == []
    assert not junk.finished()


def test_what_never_changes_takes_two_points() -> None:
    (one,) = read(answer(series("up", [1] * 1000, start_s=T0)))
    assert list(one.values) == [1, 1]
    assert list(one.times) == [T0, T0 + 999 * 15]
