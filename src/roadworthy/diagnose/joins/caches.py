"""What prompts, hybrids and scores say about the prefix cache."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from roadworthy.diagnose.scan import DUMP, DUMP_LEAST_CHARS
from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook, Document, Line

HYBRID = re.compile(
    r"mamba|linear[-_ ]attention|hybrid|KDA|gated[-_ ]?delta|DeltaNet|SSM|recurrent|jamba|Kimi-Linear|qwen3[-_]next|"
    r"granite-4|nemotron-?h|minimax",
    re.IGNORECASE,
)


def requests_side_by_side(book: ClueBook) -> Iterator[Clue]:
    """Captured requests of one client: tools in another order, or another system prompt, is another prefix."""
    bodies: list[tuple[Document, dict[str, Any]]] = []
    for document in book.documents:
        if document.text.lstrip().startswith("{") and '"messages"' in document.text:
            try:
                body = json.loads(document.text)
            except ValueError:
                continue
            if isinstance(body, dict):
                bodies.append((document, body))
    for (one, first), (other, second) in pairwise(bodies):
        tools = [_names(body.get("tools")) for body in (first, second)]
        if tools[0] and tools[0] != tools[1] and sorted(tools[0]) == sorted(tools[1]):
            yield one.clue(
                "prompt.tools-reordered",
                one.line(1),
                other.line(1),
                first=", ".join(tools[0]),
                second=", ".join(tools[1]),
            )
        heads = [str(next(iter(body.get("messages") or ()), "")) for body in (first, second)]
        if heads[0] != heads[1] and heads[0][:40] == heads[1][:40]:
            yield one.clue("prompt.changing-head", one.line(1), other.line(1))


def _names(tools: object) -> list[str]:
    functions = (
        [tool.get("function", tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    )
    return [str(function.get("name")) for function in functions if isinstance(function, dict)]


CACHED_ANSWER = re.compile(
    r"cached_tokens[=: ]+(?P<count>\d+).*?(?:answer|output|text)[=: ]+[\"'](?P<answer>[^\"']{3,})"
)


def answers_by_cache(book: ClueBook) -> Iterator[Clue]:
    """``output.changes-after-hit``: one prompt, sent again, answers otherwise when tokens came from the cache."""
    for document in book.documents:
        fresh: set[str] = set()
        cached: dict[str, Line] = {}
        for line in document.numbered():
            found = CACHED_ANSWER.search(line.text)
            if found and found["count"] == "0":
                fresh.add(found["answer"])
            elif found:
                cached[found["answer"]] = line
        odd = [line for answer, line in cached.items() if answer not in fresh]
        if fresh and odd:
            yield document.clue("output.changes-after-hit", odd[0], hit="another text", miss="the same text each time")


def hybrids(book: ClueBook) -> Iterator[Clue]:
    """``model.hybrid`` where anything says that the model has recurrent layers; ``prompt.*`` of dumps."""
    for document in book.documents:
        for line in document.numbered():
            if HYBRID.search(line.text) and len(line.text) < 400 and "disk" not in line.text:
                yield document.clue("model.hybrid", line)
                break
    known = book.first("cache.known-not-reused")
    if known is not None and any(HYBRID_LAYERS.search(document.text) for document in book.documents):
        yield derived(known, "hybrid.known-not-reused")
    for document in book.documents:
        yield from _prompts(document)
        yield from heads_side_by_side(document)


HYBRID_LAYERS = re.compile(
    r"linear[-_ ]attention|not trimmable|ArraysCache|MambaCache|SSM|recurrent|DeltaNet", re.IGNORECASE
)

TIME_IN_PROMPT = re.compile(
    r"(?:[Cc]urrent (?:system |local )?(?:[Tt]ime|[Dd]ate)|[Tt]imestamp\b(?! group)|[Tt]oday is|nonce|"
    r"request[_ ]id|uuid|[Nn]ow:|session[_ ]id|trace[_ ]id|tool[_ ]order|shuffl)"
)


def _prompts(document: Document) -> Iterator[Clue]:
    """A clock or nonce near the start of a prompt, a system prompt whose digest changes, a first differing byte."""
    digests: dict[str, int] = defaultdict(int)
    first_line = None
    for line in document.numbered():
        if len(line.text) > DUMP_LEAST_CHARS and DUMP.search(line.text[:DUMP_LEAST_CHARS]):
            continue
        if found := re.search(r"(?:system|prompt|prefix)_?(?:sha|hash|digest|md5)=(?P<digest>\w+)", line.text):
            digests[found["digest"]] += 1
            first_line = first_line or line
        elif (
            TIME_IN_PROMPT.search(line.text)
            and re.search(r"prompt|system|You are|messages|role", document.file + line.text, re.IGNORECASE)
        ) or re.search(
            r"(?:differ\w*|diverge\w*|mismatch)\b[^.\n\d]{0,30}\b(?:byte|offset|token|char\w*|position|at)\b\D{0,12}\d+|"
            r"tools?.{0,30}(?:order|sort).{0,30}(?:differ|change|random|unstable)",
            line.text,
            re.IGNORECASE,
        ):
            yield document.clue("prompt.changing-head", line)
    if first_line is not None and len(digests) >= 3 and max(digests.values()) <= 2:
        yield document.clue("prompt.digest-changes", first_line, digests=len(digests))
    if re.search(r"identical bytes|byte-identical|same bytes|identical prefix", document.text):
        line = next(line for line in document.numbered() if re.search(r"identical|same bytes", line.text))
        yield document.clue("prompt.identical", line)


HEAD_CHARS = 160
"""A difference within so many characters of a prompt's start leaves next to nothing to share."""

SHARED_WORDS = 5
LOG_LEVEL = re.compile(r"\b(?:INFO|WARN(?:ING)?|ERROR|DEBUG)\b")
NUMBERED = re.compile(r"^\W*(?:#?\d+|[A-Za-z]{1,8}[ _-]?\d+|[A-Z])\W+")
"""The number that whoever listed the prompts put before each."""

TOOL_LIST = re.compile(r'"tools"\s*:\s*\[(?P<list>.*)\]')


def heads_side_by_side(document: Document) -> Iterator[Clue]:
    """Prompts listed line by line that are the same but for an identifier or a time near the start:
    ``prompt.changing-head``; the same tools in another order: ``prompt.tools-reordered``."""
    listed = [
        (line, re.findall(r'"name"\s*:\s*"([\w.-]+)"', found["list"]))
        for line in document.numbered()
        if (found := TOOL_LIST.search(line.text))
    ]
    for (line, tools), (other, others) in pairwise(listed):
        if tools != others and len(tools) > 1 and sorted(tools) == sorted(others):
            first, second = ", ".join(tools), ", ".join(others)
            yield document.clue("prompt.tools-reordered", line, other, first=first, second=second)
            break
    named = "prompt" in document.file.lower()
    alike: dict[str, list[tuple[Line, str]]] = defaultdict(list)
    for line in document.numbered():
        if LOG_LEVEL.search(line.text) or not (named or "You are" in line.text):
            continue
        prompt = NUMBERED.sub("", line.text)
        shared = " ".join(word for word in prompt.split() if not re.search(r"\d", word))
        if len(shared.split()) >= SHARED_WORDS:
            alike[shared].append((line, prompt))
    for some in alike.values():
        prompts = {prompt for _, prompt in some}
        common = _common_chars(min(prompts), max(prompts))
        if len(prompts) >= 3 and len(prompts) == len(some) and common < _head_of(some[0][1]):
            yield document.clue("prompt.changing-head", *(line for line, _ in some[:3]))
            return


def _head_of(prompt: str) -> float:
    """Characters that count as its start; of a prompt that was cut the rest is not known."""
    return HEAD_CHARS if "..." in prompt else min(HEAD_CHARS, 0.5 * len(prompt))


def _common_chars(one: str, other: str) -> int:
    """Characters that both texts begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def eval_collapse(book: ClueBook) -> Iterator[Clue]:
    """``eval.worse-with-cache``: answers that are right without prefix caching and wrong with it."""
    for document in book.documents:
        on: list[tuple[float, Line]] = []
        off: list[tuple[float, Line]] = []
        for line in document.numbered():
            value = re.search(
                r"(?:accuracy|exact[_-]match|score|acc|pass@1|gsm8k)\D{0,70}(?P<value>0?\.\d+|\d+(?:\.\d+)? ?%?)",
                line.text,
                re.IGNORECASE,
            )
            if not value or not re.search(r"prefix|cach", line.text, re.IGNORECASE):
                continue
            number = float(value["value"].strip(" %"))
            number = number / 100 if number > 1 else number
            disabled = re.search(
                r"(?:cach\w*|prefix\S*)\W{0,3}(?:=| is)?\s*(?:off|disabled|false|0(?![.\d]))|no[-_ ](?:enable-)?prefix|"
                r"without|disable",
                line.text,
                re.IGNORECASE,
            )
            (off if disabled else on).append((number, line))
        if on and off and min(v for v, _ in on) < 0.8 * max(v for v, _ in off):
            worst = min(on, key=lambda item: item[0])
            best = max(off, key=lambda item: item[0])
            yield document.clue("eval.worse-with-cache", worst[1], best[1], on=f"{worst[0]:g}", off=f"{best[0]:g}")
    yield from _runs_apart(book)
    changed = _finish_changes(book)
    if changed is not None:
        yield changed


CACHING_OFF = re.compile(
    r"--no-enable-prefix-caching|prefix[-_ ]cach\w*\W{0,3}(?:off|false|disabled|0\b)", re.IGNORECASE
)
CACHING_ON = re.compile(r"--enable-prefix-caching|prefix[-_ ]cach\w*\W{0,3}(?:on|true|enabled|1\b)", re.IGNORECASE)
SCORE = re.compile(
    r"\b(?:accuracy|exact[_-]match|score|acc(?:_norm)?|pass@1)\b[^\d]{0,40}(?P<value>0?\.\d+|1\.0+|\d{1,2}\.\d+ ?%)",
    re.IGNORECASE,
)


def _runs_apart(book: ClueBook) -> Iterator[Clue]:
    """Two runs in files of their own: the arguments say whether the prefix was cached, a table what was scored."""
    runs: dict[bool, list[tuple[float, Document, Line]]] = {True: [], False: []}
    for document in book.documents:
        off, on = CACHING_OFF.search(document.text), CACHING_ON.search(document.text)
        if (off is None) == (on is None):
            continue
        for line in document.numbered():
            if found := SCORE.search(line.text):
                value = float(found["value"].strip(" %"))
                runs[off is None].append((value / 100 if value > 1 else value, document, line))
    if runs[True] and runs[False]:
        worst, best = min(runs[True], key=lambda run: run[0]), max(runs[False], key=lambda run: run[0])
        if worst[0] < 0.8 * best[0]:
            yield worst[1].clue("eval.worse-with-cache", worst[2], best[2], on=f"{worst[0]:g}", off=f"{best[0]:g}")


def _finish_changes(book: ClueBook) -> Clue | None:
    """Requests end one way after a miss and another way after hits."""
    hits = {clue.value("id"): clue for clue in book.all("cache.hit")}
    after: dict[bool, set[str]] = {True: set(), False: set()}
    for clue in book.all("request.finished"):
        after[clue.value("id") in hits].add(clue.value("reason"))
    if after[True] and after[False] and not after[True] & after[False]:
        first = next(iter(hits.values()))
        return derived(
            first, "output.changes-after-hit", hit="/".join(sorted(after[True])), miss="/".join(sorted(after[False]))
        )
    return None


JOINS = (requests_side_by_side, answers_by_cache, hybrids, eval_collapse)
