"""A tenant's model behind the gateway: what its errors tell."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fakes.engine import Answer, plain, stream_of
from roadworthy.adapters.library.caller import CallersModel
from roadworthy.core.errors import RoadworthyError
from roadworthy.longdoc.converse import Message
from support.threaded_engine import threaded_engine


def _asks(model: CallersModel) -> object:
    return model.chat([Message(role="user", content="?")], max_tokens=8)


@pytest.mark.parametrize(
    ("answer", "work"),
    [
        (stream_of([]), _asks),  # breaks off
        (plain(500, b""), _asks),
        (plain(404, b""), _asks),
        (plain(200, b"no JSON"), lambda model: model.rerank("?", ["a", "b"])),
        (plain(200, b'{"results": []}'), lambda model: model.rerank("?", ["a", "b"])),
    ],
)
def test_no_error_tells_a_tenant_where_the_gateways_own_processes_meet(
    answer: Answer, work: Callable[[CallersModel], object]
) -> None:
    with (
        threaded_engine(answer) as gateway,
        CallersModel(gateway.url, key=None, model="m", session="s", stop=threading.Event()) as model,
    ):
        with pytest.raises(RoadworthyError) as caught:
            work(model)
        assert gateway.url.rpartition(":")[2] not in f"{caught.value} {caught.value.hint}"
        assert "the gateway" in str(caught.value)
