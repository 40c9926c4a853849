"""A small law, a store that holds it, and models that say what a test wants them to say in each round."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fakes.engine import Asked, chat_events, stream_of
from roadworthy.adapters.longdoc_store import DocumentStore, digest_of
from roadworthy.longdoc.converse import Message, Spoken
from roadworthy.longdoc.lexical import count_terms
from roadworthy.longdoc.split import split

if TYPE_CHECKING:
    from pathlib import Path

    from fakes.engine import Answer

LAW = """## 第一编　总则

第一条　自然人享有隐私权。任何组织或者个人不得以刺探、侵扰、泄露、公开等方式侵害他人的隐私权。

第二条　依法成立的合同，受法律保护。

第三条　违约金过分高于造成的损失的，人民法院可以根据当事人的请求予以适当减少。

## 第二编　附则

第四条　本法自二〇二一年一月一日起施行。

第五条　婚姻自由。夫妻应当互相忠实，互相尊重，互相关爱。

第六条　继承从被继承人死亡时开始。
"""

NAME = "laws/law.md"

Reply = Callable[[str, str], str]
"""What a model says, of the round's name and the prompt."""


def round_of(prompt: str) -> str:
    """Which round a prompt is of, by what it asks for at its end."""
    task = prompt.rsplit("\n\n", 1)[-1]
    marks = {'"searches"': "locate", '"n": 1': "verify", '"claim": "one': "answer", '"clause"': "compare"}
    return next((name for mark, name in marks.items() if mark in task), "extract")


def id_of(prompt: str, words: str) -> str:
    """The id of the passage in which ``words`` stand; fails where it is not shown."""
    for found in re.finditer(r'<passage id="(\w+)" at="[^"]*">\n(.*?)\n</passage>', prompt, re.DOTALL):
        if words in found[2]:
            return found[1]
    raise AssertionError(f"{words!r} is not shown")


def lines(*values: Mapping[str, object]) -> str:
    return "\n".join(json.dumps(one, ensure_ascii=False) for one in values)


def rightly(claim: str, quote: str) -> Reply:
    """A model that does its work: finds the passage, quotes it word for word, approves."""

    def reply(name: str, prompt: str) -> str:
        if name == "locate":
            return lines({"ids": [id_of(prompt, quote)], "searches": []})
        cite = {"id": id_of(prompt, quote), "quote": quote}
        return {
            "extract": lines(cite), "answer": lines({"claim": claim, "cite": [cite]}),
            "verify": lines({"n": 1, "supported": True}),
        }[name]  # fmt: skip

    return reply


def store_with(home: Path, text: str = LAW, name: str = NAME) -> None:
    """Store ``text`` without vectors."""
    units, _ = split(text, len)
    with DocumentStore(home) as store:
        terms = count_terms(" ".join((*unit.path, unit.label, unit.title, unit.text)) for unit in units)
        store.put(name, digest_of(text.encode(), settings="test"), len(text), units, terms, None)


class SpokenModel:
    """A model in the process. ``asked`` has the name of the round, the prompt and the wait told for each request."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.asked: list[tuple[str, str, float]] = []

    def chat(
        self, messages: Sequence[Message], *, max_tokens: int, io_wait_s: float, heard: Callable[[str], None]
    ) -> Spoken:
        assert [one.role for one in messages] == ["system", "user"]
        prompt = messages[1].content
        self.asked.append((round_of(prompt), prompt, io_wait_s))
        said = self.reply(round_of(prompt), prompt)
        for at in range(0, len(said), 3):
            heard(said[at : at + 3])
        return Spoken(text=said, prompt_tokens=len(prompt), completion_tokens=len(said))


def speaking(reply: Reply) -> Answer:
    """The same behind a socket: a chat stream in small pieces."""

    async def answer(asked: Asked) -> None:
        body = asked.json()
        prompt = body["messages"][-1]["content"]  # type: ignore[index]
        said = reply(round_of(prompt), prompt)
        await stream_of(chat_events(*(said[at : at + 5] for at in range(0, len(said), 5)), usage=(9, 4)))(asked)

    return answer
