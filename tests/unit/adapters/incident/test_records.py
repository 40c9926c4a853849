"""Records of any shape are read without an error: what is in a file was written by others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.adapters.incident.records import Form, form_of, plain_line
from roadworthy.adapters.incident.yaml_items import YamlItems
from roadworthy.diagnose.arrays import ArrayObjects

KEYS = (
    "kind", "metadata", "status", "conditions", "containerStatuses", "state", "lastState", "terminated", "name",
    "involvedObject", "series", "message", "count", "stream", "values", "labels", "line", "timestamp", "log", "MESSAGE",
    "_HOSTNAME", "__REALTIME_TIMESTAMP", "kubernetes", "host", "pod_name", "time", "@timestamp", "type", "reason",
)  # fmt: skip
OUTER = ("kind", "metadata", "status", "involvedObject", "series", "stream", "values", "message", "fields")
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["Event", "Pod", "Node"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=12,
)
FORMS = {
    "kubernetes": b'{"apiVersion": "v1", "kind": "List", "items": [',
    "loki": b'{"data": {"resultType": "streams", "result": [',
    "array": b'[{"message": "x"}]',
}


def form(name: str) -> Form:
    found = form_of(FORMS[name])
    assert found is not None
    return found


@given(VALUES)
def test_a_line_of_any_json_stays_one_line(value: object) -> None:
    assert b"\n" not in plain_line(json.dumps(value).encode())


@pytest.mark.parametrize("name", FORMS)
@given(st.one_of(VALUES, st.dictionaries(st.sampled_from(OUTER), VALUES, min_size=1)))
def test_a_record_of_any_shape_gives_lines_or_none(name: str, value: object) -> None:
    assert not [line for line in form(name).lines(value) if "\n" in line]


@pytest.mark.parametrize("odd", [5, "x", {"a": 1}, [5, None, "x", []], True])
@pytest.mark.parametrize("key", ["conditions", "containerStatuses", "initContainerStatuses"])
def test_a_status_of_another_shape_is_passed_over(key: str, odd: object) -> None:
    assert list(form("kubernetes").lines({"kind": "Pod", "status": {key: odd}})) == []
    assert list(form("loki").lines({"stream": odd, "values": odd})) == []


@given(st.binary(max_size=300), st.integers(1, 50))
def test_text_that_is_no_json_or_yaml_ends_a_reading_and_raises_nothing(noise: bytes, size: int) -> None:
    for start, reader in (
        (b'{"result": [', ArrayObjects("result")),
        (b"", ArrayObjects("")),
        (b"items:\n- ", YamlItems()),
    ):
        data = start + noise
        for at in range(0, len(data), size):
            list(reader.feed(data[at : at + size]))
        reader.finished()
