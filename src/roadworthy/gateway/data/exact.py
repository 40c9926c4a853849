"""A stream whose tokens are counted as they pass, so that what is billed is what was delivered.

Where billing is exact the engine is asked for its running count in every event (``stream_options``, vLLM's
``continuous_usage_stats``). The count is read before an event goes out and cut out of what the client gets, unless the
client asked for it itself: the rest of the event stays as the engine wrote it, byte for byte, and the chunk around it
is framed anew. Events without a count pass untouched.

Most events of most streams have one shape, one choice and the count as the last member, and are cut by one regular
expression. Whatever else comes is decoded. Responses and messages have no such option: their deltas are counted, and
the engine's own count at the end goes before.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Raw

from roadworthy.gateway.data.events import BLANK_LINE, payload_of
from roadworthy.gateway.data.stream import EventGate
from roadworthy.gateway.data.usage import Usage, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.gateway.data.stream_options import Counting

_MEMBER = b',"usage":{'
_RUNNING = re.compile(
    rb',"usage":\{"prompt_tokens":(\d{1,15}),"total_tokens":\d{1,15},"completion_tokens":(\d{1,15})'
    rb'(?:,"completion_tokens_details":(?:null|\{[^{}]*\}))?\}\}\n\n(?:\r\n)?\Z'
)
"""The count as vLLM writes it, at the very end of an event, so that it is a member of the event itself and of nothing
inside it. In a chunk the chunk's own line end follows."""

_SIZE_LINE = re.compile(rb"([0-9a-f]{1,7})\r\n")
_LAST_CHUNK = b"0\r\n\r\n"
_END = b"}\n\n\r\n"
_SIZE_LINES = tuple(b"%x\r\n" % size for size in range(4096))
_SHAPES: dict[bytes, bytes] = {}
_SHAPES_KEPT = 4096
_DELTA = re.compile(rb"^event: (?:response\..*\.delta|content_block_delta)\r?$", re.MULTILINE)
_ENDED = re.compile(rb"^event: (?:response\.(?:completed|incomplete|failed)|message_delta)\r?$", re.MULTILINE)
"""Names of events, in responses and messages, that bring a piece of text, and that bring the engine's last word."""

_NAME = re.compile(rb'"usage"\s*:\s*')
_SPACE = b" \t\r\n"

PROMPT, OUTPUT = 0, 1
"""Where in its cells a journal keeps a stream's tokens."""

_Index = Annotated[int, Meta(ge=0, le=2**31)]


class _Choice(msgspec.Struct, gc=False):
    index: _Index = 0


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class CountedGate(EventGate):
    """A stream that is counted. ``cells[PROMPT]`` and ``cells[OUTPUT]`` always hold the tokens of what has been let
    through, and are set before it is; ``journaled`` moves them to where they outlive the process.

    Args:
        cells: of this stream alone.
        estimated: no count of the engine's has been seen; ``cells[OUTPUT]`` counts pieces of text.
    """

    __slots__ = ("_write", "cells", "estimated")

    def __init__(self, hold_bytes: int) -> None:
        super().__init__(hold_bytes)
        self.cells: Any = array("Q", (0, 0))
        self.estimated = True
        self._write: Callable[[bytes], None] = _nowhere

    @property
    def tokens_so_far(self) -> int:
        return int(self.cells[OUTPUT])

    def journaled(self, cells: Any) -> None:
        """Count in ``cells`` from now on."""
        cells[PROMPT], cells[OUTPUT] = self.cells[PROMPT], self.cells[OUTPUT]
        self.cells = cells


class DeltaGate(CountedGate):
    """A stream of responses or messages: pieces of text are counted until the engine tells what they were."""

    __slots__ = ()

    def writers(self, write: Callable[[bytes], None]) -> tuple[Callable[[bytes], None], Callable[[bytes], None]]:
        self._write = write
        return self.pass_chunks, self.pass_chunks

    def pass_chunks(self, data: bytes) -> None:
        """A run of whole chunks."""
        self._count(data)
        self._write(data)

    def usage(self) -> Usage:
        found = super().usage() if _ENDED.search(b"\n".join(self.latest)) else None
        if found is None:
            return Usage(self.cells[PROMPT], self.cells[OUTPUT])
        self.estimated = False
        self.cells[PROMPT], self.cells[OUTPUT] = found.prompt_tokens, found.output_tokens
        return found

    def _checked(self, data: bytes) -> bytes:
        data = super()._checked(data)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        self.cells[OUTPUT] += len(_DELTA.findall(data))
        if not self.cells[PROMPT] and b'"message_start"' in data:
            start = usage_of(payload_of(data[: data.find(b"\n\n")]) or b"")
            if start is not None:
                self.cells[PROMPT] = start.prompt_tokens


class ExactGate(CountedGate):
    """A stream of chat or of completions that the engine counts, in every event or at the end."""

    __slots__ = (
        "_asked", "_counting", "_counts", "_ended", "_of_choice", "_output", "_prompt", "_start", "_start_bytes",
        "_strips",
    )  # fmt: skip

    def __init__(self, hold_bytes: int, counting: Counting) -> None:
        super().__init__(hold_bytes)
        self._counting = counting
        self._asked = counting.asked
        self._strips = counting.asked != "running"
        self._of_choice: dict[int, tuple[int, int]] = {}
        self._ended: Usage | None = None
        # how the count of the next event is written if all goes on as before
        self._counts, self._start, self._start_bytes = b"%d %d", b"?", 0
        self._prompt = self._output = 0

    # chunks as the engine framed them

    def writers(self, write: Callable[[bytes], None]) -> tuple[Callable[[bytes], None], Callable[[bytes], None]]:
        self._write = write
        if not self._counting.running:
            return self.pass_uncounted, self.pass_chunks
        return (self.pass_chunk if self._counting.one_choice else self.pass_chunks), self.pass_chunks

    def pass_uncounted(self, data: bytes) -> None:
        """One chunk of a stream that is counted at its end."""
        if b'"usage"' in data:
            self.pass_chunks(data)
            return
        self.cells[OUTPUT] += data.count(b'"choices":')
        self._write(data)

    def pass_chunk(self, data: bytes) -> None:
        """One chunk of whole events."""
        output = self._output + 1
        counts = self._counts % (self._prompt + output, output)  # of one token more, as nearly always
        cut = len(data) - len(counts) - self._start_bytes
        start = 5 if 262 < len(data) < 4103 else data.find(b"\n") + 1  # behind a size of three digits
        if (
            not data.endswith(counts)
            or not data.startswith(self._start, cut)
            or data.find(b"\n", start) != len(data) - 4  # more than one event, or more than one line
        ):
            self._pass_other(data, start)
            return
        cells = self.cells
        cells[OUTPUT] = self._output = output
        if self._strips:
            size = cut + 5 - start
            line = _SIZE_LINES[size] if size < 4096 else b"%x\r\n" % size
            data = b"".join((line, data[start : cut + 2], _END))
        try:
            self._write(data)
        except RuntimeError:  # uvloop: the client's connection is closed, so nothing was delivered
            cells[OUTPUT] = self._output = output - 1
            raise

    def _pass_other(self, data: bytes, start: int) -> None:
        """The same, whatever its shape. What is learned of the count's shape makes the next one quick."""
        at = data.rfind(_MEMBER)
        if (
            data[at - 2 : at] != b"}]"  # an event without choices is the engine's last word
            or data.find(b"\n", start) != len(data) - 4
            or (found := _RUNNING.match(data, at)) is None
        ):
            self.pass_chunks(data)
            return
        cells, before = self.cells, self.cells[OUTPUT]
        prompt, output = int(found[1]), int(found[2])
        cells[PROMPT], cells[OUTPUT] = prompt, output
        self.estimated = False
        self._prompt, self._output = prompt, output
        self._start = _one(b'}],"usage":{"prompt_tokens":%d,"total_tokens":' % prompt)
        self._start_bytes = len(self._start)
        self._counts = _one(b'%d,"completion_tokens":%d' + data[found.end(2) :].replace(b"%", b"%%"))
        if self._strips:
            data = b"".join((_size_line(at - start + 3), data[start:at], _END))
        try:
            self._write(data)
        except RuntimeError:
            cells[OUTPUT] = before
            raise

    def pass_chunks(self, data: bytes) -> None:
        """A run of whole chunks of whole events, with the last chunk or without."""
        out, at, size = [], 0, len(data)
        before = self.cells[OUTPUT]
        while at < size:
            line = _SIZE_LINE.match(data, at)
            assert line is not None  # the connection has looked
            length, start = int(line[1], 16), line.end()
            if not length:
                out.append(_LAST_CHUNK)
                break
            events = self._counted(data[start : start + length])
            if events:
                out.append(b"%x\r\n%b\r\n" % (len(events), events))
            at = start + length + 2
        self._output = self.cells[OUTPUT]
        if out:
            try:
                self._write(b"".join(out))
            except RuntimeError:
                self.cells[OUTPUT] = before
                raise

    # events as the gate lets them through

    def _checked(self, data: bytes) -> bytes:
        return self._counted(super()._checked(data))

    def usage(self) -> Usage:
        """The engine's last word, or what has been let through where it has not said it."""
        return self._ended or Usage(self.cells[PROMPT], self.cells[OUTPUT])

    def _counted(self, data: bytes) -> bytes:
        """Whole events, counted, without what the client did not ask for."""
        at = data.rfind(_MEMBER)
        if (
            data[at - 2 : at] == b"}]"
            and data.find(b"\n") == len(data) - 2
            and self._counting.one_choice
            and (found := _RUNNING.match(data, at)) is not None
        ):  # one event of the usual shape
            self.estimated = False
            self.cells[PROMPT], self.cells[OUTPUT] = map(int, found.groups())
            return data[:at] + b"}\n\n" if self._strips else data
        if self.estimated and not self._of_choice:
            self.cells[OUTPUT] += data.count(b'"choices":')  # until the engine shows that it counts
        if b'"usage"' not in data:
            return data
        out, start = [], 0
        for blank in BLANK_LINE.finditer(data):
            event, start = data[start : blank.end()], blank.end()
            out.append(self._event(event) if b'"usage"' in event else event)
        return b"".join(out) + data[start:]

    def _event(self, event: bytes) -> bytes:
        payload = payload_of(event)
        if payload is None:
            return event
        try:
            choices = _decode_event(payload).choices
            members = _decode_members(payload)
        except (msgspec.DecodeError, RecursionError):
            return event
        if "usage" not in members or choices is None:
            return event
        usage = usage_of(payload)
        if usage is not None:
            self._note(usage, choices)
        if not choices and usage is not None:
            return b"" if self._asked == "nothing" else event
        return _without_usage(event, payload, members) if self._strips else event

    def _note(self, usage: Usage, choices: list[_Choice]) -> None:
        cells = self.cells
        self.estimated = False
        if not choices:
            self._ended = usage
            cells[PROMPT], cells[OUTPUT] = usage.prompt_tokens, usage.output_tokens
            return
        if self._counting.one_choice:
            cells[PROMPT], cells[OUTPUT] = usage.prompt_tokens, usage.output_tokens
            return
        for choice in choices:
            self._of_choice[choice.index] = (usage.prompt_tokens, usage.output_tokens)
        prompts = {index // self._counting.choices_each: prompt for index, (prompt, _) in self._of_choice.items()}
        cells[PROMPT] = sum(prompts.values())
        cells[OUTPUT] = sum(output for _, output in self._of_choice.values())


def _without_usage(event: bytes, payload: bytes, members: dict[str, Raw]) -> bytes:
    """``event`` without its member ``usage``, nothing else changed where that can be."""
    cut = _cut_member(payload, members)
    if event.count(b"data:") == 1 and event.count(payload) == 1:
        return event.replace(payload, cut)
    lines = [line for line in event.splitlines() if line and not line.startswith(b"data:")]
    lines += [b"data: " + line for line in cut.splitlines()]
    return b"\n".join(lines) + b"\n\n"


def _cut_member(payload: bytes, members: dict[str, Raw]) -> bytes:
    """The object in ``payload`` without ``usage``. Its text is looked for from the end, and what is left must read as
    all the other members; where the text cannot be found (a name with escapes), the object is put together again."""
    value = bytes(members["usage"])
    others = {name: bytes(raw) for name, raw in members.items() if name != "usage"}
    for name in reversed(list(_NAME.finditer(payload))):
        end = name.end() + len(value)
        if payload[name.end() : end] != value:
            continue
        before, after = payload[: name.start()].rstrip(_SPACE), payload[end:]
        if before.endswith(b","):
            left = before[:-1] + after
        else:
            left = payload[: name.start()] + after.lstrip(_SPACE).removeprefix(b",").lstrip(_SPACE)
        try:
            found = {key: bytes(raw) for key, raw in _decode_members(left).items()}
        except (msgspec.DecodeError, RecursionError):
            continue
        if found == others:
            return left
    quoted = (msgspec.json.encode(name) + b":" + raw for name, raw in others.items())
    return b"{" + b",".join(quoted) + b"}"


def _one(text: bytes) -> bytes:
    """The same, as one object for all streams that have it: hundreds that take turns find it in the cache."""
    return text if len(_SHAPES) >= _SHAPES_KEPT else _SHAPES.setdefault(text, text)


def _size_line(content_bytes: int) -> bytes:
    return _SIZE_LINES[content_bytes] if content_bytes < 4096 else b"%x\r\n" % content_bytes


def _nowhere(data: bytes) -> None:
    raise AssertionError(f"nobody takes {len(data)} bytes")
