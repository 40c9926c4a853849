"""Lines of the access log say what a record says."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.gateway.access_log import log_lines, profile, time_text
from roadworthy.gateway.data.record import RequestRecord

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_SECONDS = st.floats(0, 1e6)
_MAYBE_SECONDS = st.none() | _SECONDS
_COUNT = st.integers(0, 2**53)
_RECORDS = st.builds(
    RequestRecord,
    request_id=st.sampled_from(["", "0123456789abcdef0123456789abcdef"]),
    tenant_id=_TEXT.filter(bool),
    operation=_TEXT,
    model=_TEXT,
    endpoint=_TEXT,
    decision=_TEXT,
    by=_TEXT,
    ending=st.sampled_from(["ok", "refused", "client_left"]),
    status=st.integers(100, 599),
    stream=st.booleans(),
    attempts=st.integers(0, 3),
    request_bytes=_COUNT,
    response_bytes=_COUNT,
    started_s=_SECONDS,
    ttft_s=_MAYBE_SECONDS,
    duration_s=_SECONDS,
    waited_s=_SECONDS,
    itl_p99_s=_MAYBE_SECONDS,
    prompt_tokens=_COUNT,
    output_tokens=_COUNT,
    cached_tokens=_COUNT,
    tokens_estimated=st.booleans(),
    queue_s=_MAYBE_SECONDS,
    prefill_s=_MAYBE_SECONDS,
    decode_s=_MAYBE_SECONDS,
    kv_blocks_estimate=_COUNT,
    io_wait_s=_MAYBE_SECONDS,
    queue_class=st.sampled_from(["", "normal", "low"]),
    borrowed=st.booleans(),
    why=_TEXT,
    trace=st.sampled_from(["", "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]),
)


@given(st.lists(_RECORDS, max_size=4), st.none() | _TEXT, st.floats(0, 2e9))
def test_each_line_is_one_object_with_time_worker_and_the_profile_of_its_record(
    records: list[RequestRecord], worker: str | None, offset_s: float
) -> None:
    lines = log_lines(records, offset_s, worker).split(b"\n")
    assert lines.pop() == b""
    own = {} if worker is None else {"worker": worker}
    wanted = [{"time": time_text(one, offset_s), **own, **profile(one)} for one in records]
    assert [list(json.loads(line).items()) for line in lines] == [list(one.items()) for one in wanted]
