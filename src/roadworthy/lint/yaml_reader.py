"""YAML of every kind: Kubernetes objects and custom resources, Compose, Helm values, vLLM's own configuration file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.argv import ENV_NAME, normal_name, started
from roadworthy.lint.reading import Reading, nested
from roadworthy.lint.shell_reader import flag_variable, read_shell_piece
from roadworthy.lint.values import EnvVar, Flag, Invocation, KeyValue, Place, Word
from roadworthy.lint.yaml_source import HOLE, Item, YamlText, read_yaml

if TYPE_CHECKING:
    from roadworthy.lint.text import Piece

_ENV_LISTS = re.compile(r"(?:env|environment|envs|env_vars|envVars|extraEnv|extraEnvVars|extra_env|additionalEnv)$")
_FLAG_MAPS = frozenset(
    {"engine_kwargs", "engineKwargs", "engine_args", "engineArgs", "vllm_args", "vllmArgs", "vllm_kwargs"}
)
_FLAG_LISTS = re.compile(
    r"(?:args|extraArgs|extra_args|additionalArgs|vllmArgs|engineArgs|serveArgs|command|cmd|entrypoint)$"
)
_SCRIPTISH = re.compile(
    r"\b(?:vllm|ray\s+(?:start|stop)|numactl|sysctl|ipcrm|ipcs|mstconfig|mlxconfig|mlnx_qos|docker|export|modprobe"
    r"|ethtool"
    r"|oom_score_adj|(?:NCCL|RAY|VLLM|PYTORCH|GLOO)_\w+=)"
)
_FLAG_IN_ITEM = re.compile(r"--[A-Za-z][\w-]*\s+\S")


def read_yaml_piece(reading: Reading, piece: Piece) -> YamlText:
    """Containers, variables, flags and embedded files of YAML text into ``reading``."""
    read = read_yaml(piece)
    _yaml_comments(reading, piece)
    for document in read.documents:
        reading.documents.append(document)
        _Walk(reading, document).run()
    for offset in read.templates:
        reading.not_read(piece.at(offset), f"template {_template_text(piece.text, offset)}")
    if read.broken_at is not None:
        at = min(read.broken_at, max(len(piece.text) - 1, 0))
        reading.not_read(piece.at(at), f"not YAML from here on ({read.error}); read line by line")
        read_loose(reading, piece.slice(read.broken_at, len(piece.text)))
    return read


def _template_text(text: str, offset: int) -> str:
    end = text.find("}", offset)
    shown = " ".join(text[offset : (end if end > 0 else offset) + 2].split())
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _yaml_comments(reading: Reading, piece: Piece) -> None:
    for match in re.finditer(r"(?:^|(?<=\n))[ \t]*#[^\r\n]*|[ \t]#[^\r\n]*", piece.text):
        line_start = piece.text.rfind("\n", 0, match.start() + 1) + 1
        before = piece.text[line_start : match.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            reading.comments.append((piece.at(match.start()), piece.at(match.end())))


def _given(text: str, key: str) -> re.Match[str] | None:
    """``NAME=`` at the start of a list's item, where the list or the name says that it is a variable."""
    match = re.match(r"([A-Za-z_]\w*)=", text)
    return match if match and (_ENV_LISTS.search(key) or ENV_NAME.fullmatch(match.group(1))) else None


class _Walk:
    """One document; ``taken`` holds the nodes that a container has read already."""

    def __init__(self, reading: Reading, document: Item) -> None:
        self.reading, self.document = reading, document
        self.taken: set[int] = set()
        self.container: Item | None = None
        self.compose = document.get("services") is not None and document.get("apiVersion") is None

    def run(self) -> None:
        self._visit(self.document, None)
        if self._is_engine_file():
            self._flag_map(self.document, fragment=False)

    def _is_engine_file(self) -> bool:
        """Whether the document is vLLM's own ``--config`` file: a flat mapping of its flags."""
        if self.document.kind != "map" or self.document.get("apiVersion") or self.compose:
            return False
        names = [key.value for key, value in self.document.entries]
        known = sum(self.reading.arity(normal_name("--" + name)) is not None for name in names)
        return known > 0 and known * 2 >= len(names)

    def _visit(self, item: Item, container: Item | None) -> None:
        if item.kind == "map":
            named, given = item.get("name"), item.get("value")
            listed = item.parent is not None and item.parent.kind == "list"
            if named is not None and given is not None and not listed and re.match(r"(?:net|vm|kernel)\.", named.value):
                self._sysctl(named.value, given, named.start, given.end)  # a task of Ansible
            if self._is_container(item):
                container = item
                self._container(item)
            for key, value in item.entries:
                self._entry(key, value, container)
                self._visit(value, container)
        elif item.kind == "list":
            self._list(item, container)
            for child in item.items:
                self._visit(child, container)
        elif id(item) not in self.taken:
            self._scalar(item, container)

    # -- variables

    def _entry(self, key: Item, value: Item, container: Item | None) -> None:
        name = key.value
        if value.kind == "text" and ENV_NAME.fullmatch(name) and value.style not in ("|", ">"):
            self._variable(key, value, (key.start, max(value.end, key.end)), container)
            self.taken.add(id(value))
        elif name == "image" and value.kind == "text":
            word = value.word()
            self.reading.images.append(KeyValue("image", "image", value.value, value.start, value.end, word))
        elif name == "tag" and value.kind == "text" and value.parent is not None and value.parent.text("repository"):
            image = f"{value.parent.text('repository')}:{value.value}"
            self.reading.images.append(KeyValue("image", "image", image, value.start, value.end))
        elif name == "rayStartParams" and value.kind == "map":
            for inner, given in value.entries:
                self.reading.keys.append(
                    KeyValue(
                        "rayStartParams", inner.value, given.value, inner.start, given.end, given.word(), given.tag
                    )
                )
        elif name in _FLAG_MAPS and value.kind == "map":
            self._flag_map(value, fragment=True)
        elif name == "sysctls" and value.kind == "map":
            for inner, given in value.entries:
                self._sysctl(inner.value, given, inner.start, given.end)

    def _sysctl(self, name: str, given: Item, start: int, end: int) -> None:
        self.reading.keys.append(KeyValue("sysctl", name, given.value, start, end, given.word()))

    def _variable(
        self, name: Item, value: Item | None, removable: tuple[int, int], container: Item | None, place: Place = "yaml"
    ) -> None:
        if place == "yaml":
            place = "compose" if self.compose else "pod" if container is not None else "yaml"
        dynamic = value is not None and HOLE in value.value
        given = None if value is None or dynamic else value.value
        if given is not None and re.search(r"\$[({]", given):
            given, dynamic = None, True
        variable = EnvVar(
            name=name.value,
            value=given,
            start=name.start,
            end=value.end if value is not None else name.end,
            place=place,
            word=value.word() if value is not None else None,
            removable=removable,
            owner=container,
            raw=value.value if value is not None else "",
            dynamic=dynamic or value is None,
            name_piece=name.piece,
        )
        self.reading.env.append(variable)
        flag_variable(self.reading, variable)

    def _list(self, item: Item, container: Item | None) -> None:
        key = item.key.value if item.key is not None else ""
        for child in item.items:
            if child.kind == "map" and (named := child.get("name")) is not None and named.kind == "text":
                if key == "sysctls" and (given := child.get("value")) is not None:
                    self._sysctl(named.value, given, child.start, given.end)
                elif (child.get("value") is not None or child.get("valueFrom") is not None) and (
                    _ENV_LISTS.search(key) or ENV_NAME.fullmatch(named.value)
                ):
                    self._listed_variable(child, named, container)
            elif child.kind == "text" and key == "sysctls" and "=" in child.value:
                name, _, value = child.value.partition("=")
                self.reading.keys.append(KeyValue("sysctl", name, value, child.start, child.end, child.word()))
            elif child.kind == "text" and (match := _given(child.value, key)):
                self._assigned_variable(child, match, container)
                self.taken.add(id(child))
        if _FLAG_LISTS.search(key) and id(item) not in self.taken:
            self._flag_list(item, container)

    def _listed_variable(self, child: Item, named: Item, container: Item | None) -> None:
        value = child.get("value")
        if value is not None and value.kind != "text":
            value = None
        source = child.get("valueFrom")
        ends = [value.end] if value is not None else []
        ends += [source.end] if source is not None else []
        ends.append(named.end)
        self._variable(named, value, (child.start, child.end if child.flow else max(ends)), container)
        if value is not None:
            self.taken.add(id(value))

    def _assigned_variable(self, child: Item, match: re.Match[str], container: Item | None) -> None:
        cut = match.end()
        piece = child.piece.slice(cut, len(child.value))
        begin = child.piece.at(cut) if cut < len(child.value) else child.end
        word = Word(piece, begin, child.end, child.word().layout, HOLE in piece.text)
        dynamic = word.dynamic or "$" in piece.text
        variable = EnvVar(
            name=match.group(1),
            value=None if dynamic else piece.text,
            start=child.start,
            end=child.end,
            place="compose" if self.compose else "yaml",
            word=word,
            removable=(child.start, child.end),
            owner=container,
            raw=piece.text,
            dynamic=dynamic,
            name_piece=child.piece.slice(0, match.end(1)),
        )
        self.reading.env.append(variable)
        flag_variable(self.reading, variable)

    # -- commands

    def _is_container(self, item: Item) -> bool:
        if item.get("kind") is not None and item.get("apiVersion") is not None:
            return False
        if self.compose and len(item.path) == 2 and item.path[0] == "services":
            return True
        has = [name for name in ("image", "command", "args", "env", "resources") if item.get(name) is not None]
        return (
            "image" in has or (len(has) >= 2 and item.get("name") is not None) or ("command" in has and "args" in has)
        )

    def _container(self, item: Item) -> None:
        image = item.text("image")
        first, second = ("entrypoint", "command") if self.compose else ("command", "args")
        words: list[Word] = []
        for name in (first, second):
            words += self._words(item.get(name))
        if not words:
            return
        entry = item.get(first)
        shown = image if entry is None or not (entry.items or entry.value) else ""
        found = started(
            words, arity=self.reading.arity, place="compose" if self.compose else "pod", image=shown, owner=item
        )
        for invocation in found.invocations:
            invocation.unexpanded = any(
                HOLE in word.value and word.value.strip(HOLE) == "" for word in invocation.words
            )
            if invocation.program.startswith("-"):
                invocation.fragment = True
            self.reading.invocations.append(invocation)
        for inner, _ in found.scripts:
            read_shell_piece(self.reading, inner, place="pod", owner=item)

    def _words(self, value: Item | None) -> list[Word]:
        if value is None:
            return []
        self.taken.add(id(value))
        if value.kind == "text":
            return self._split(value)
        words: list[Word] = []
        for index, child in enumerate(value.items):
            if child.kind != "text":
                continue
            self.taken.add(id(child))
            if _FLAG_IN_ITEM.match(child.value) and not (index and value.items[index - 1].value.endswith("c")):
                words += self._split(child, child.word())
            else:
                words.append(child.word())
        return words

    def _split(self, value: Item, whole: Word | None = None) -> list[Word]:
        from roadworthy.lint.shell_lexer import read_shell

        script = read_shell(value.piece, layout="folded")
        if whole is None and (len(script.commands) > 1 or value.style == "|"):
            # several commands: a script of its own, which the caller cannot put into one command line
            read_shell_piece(self.reading, value.piece, place="pod", owner=value.parent)
            return []
        layout = whole.layout if whole is not None else "folded"
        words = [word for command in script.commands for word in command.words]
        return [Word(word.piece, word.start, word.end, layout, word.dynamic or HOLE in word.value) for word in words]

    def _flag_list(self, item: Item, container: Item | None) -> None:
        """Flags in a list that belongs to no container read whole (Helm values, a patch, part of a pod)."""
        texts = [child for child in item.items if child.kind == "text"]
        if not any(child.value.startswith("-") for child in texts):
            return
        words = self._words(item)
        found = started(words, arity=self.reading.arity, place="yaml", owner=container)
        for invocation in found.invocations:
            if invocation.program == "?":
                invocation.fragment = True
            self.reading.invocations.append(invocation)
        for inner, _ in found.scripts:
            read_shell_piece(self.reading, inner, place="pod", owner=container)

    def _flag_map(self, value: Item, *, fragment: bool) -> None:
        flags: list[Flag] = []
        beside = value.parent.get("model_loading_config") if value.parent is not None else None
        named = (beside.get("model_source") or beside.get("model_id")) if beside is not None else None
        model: Word | None = named.word() if named is not None and named.kind == "text" else None
        for key, given in value.entries:
            name = normal_name("--" + key.value)
            if name in ("--model", "--model-tag") and given.kind == "text":
                model = given.word()
            words = [given.word()] if given.kind == "text" else [child.word() for child in given.items]
            if given.kind == "map":
                continue
            if given.kind == "text" and given.tag == "bool":
                on = given.value.lower() in ("true", "yes", "on")
                name, words = (name, []) if on else ("--no-" + name[2:], [])
            flags.append(Flag(name, key.word(), tuple(words)))
        self.reading.invocations.append(
            Invocation(
                program="vllm serve",
                start=value.start,
                end=value.end,
                words=[],
                place="yaml",
                flags=tuple(flags),
                positionals=(model,) if model is not None else (),
                fragment=fragment,
                module="config",
            )
        )

    def _scalar(self, item: Item, container: Item | None) -> None:
        """Files and commands kept as text under any other key."""
        if item.style in ("|", ">") and "\n" in item.value.strip():
            nested(self.reading, item.piece, place="pod", owner=container)
        elif re.search(r"\s", item.value) and _SCRIPTISH.search(item.value):
            read_shell_piece(self.reading, item.piece, place="pod", owner=container, layout="folded")


# -- what is not YAML any more


_LOOSE_NAME = re.compile(r"\s*-?\s*name\s*:\s*[\"']?([A-Za-z_]\w*)[\"']?\s*$")
_LOOSE_VALUE = re.compile(r"\s*value\s*:\s*(.*?)\s*$")
_LOOSE_PAIR = re.compile(rf"\s*-?\s*[\"']?({ENV_NAME.pattern})[\"']?\s*[:=]\s*(.*?)\s*,?\s*$")
_LOOSE_IMAGE = re.compile(r"\s*-?\s*image\s*:\s*[\"']?([^\s\"']+)")


def read_loose(reading: Reading, piece: Piece) -> None:
    """Settings of text that no parser takes, line by line: variables, images, flags, commands."""
    from roadworthy.lint.plain_readers import lines_of

    pending: tuple[str, int, int] | None = None
    flags: list[Word] = []
    for start, end in lines_of(piece):
        line = piece.text[start:end]
        if line.lstrip().startswith("#"):
            continue
        if match := _LOOSE_NAME.match(line):
            pending = (match.group(1), start + match.start(1), start + match.end(1))
        elif pending and (match := _LOOSE_VALUE.match(line)):
            _loose_variable(reading, piece, pending, (start + match.start(1), start + match.end(1)))
            pending = None
        elif match := _LOOSE_PAIR.match(line):
            name = (match.group(1), start + match.start(1), start + match.end(1))
            _loose_variable(reading, piece, name, (start + match.start(2), start + match.end(2)))
        elif match := _LOOSE_IMAGE.match(line):
            word = Word(
                piece.slice(start + match.start(1), start + match.end(1)),
                piece.at(start + match.start(1)),
                piece.at(start + match.end(1)),
                "fixed",
            )
            reading.images.append(KeyValue("image", "image", match.group(1), word.start, word.end, word))
        elif re.match(r"\s*-\s+[\"']?-", line) or "--" in line:
            flags += _loose_words(piece, start, end)
    if flags:
        found = started(flags, arity=reading.arity, place="yaml")
        for invocation in found.invocations:
            invocation.fragment = True
            reading.invocations.append(invocation)


def _loose_variable(reading: Reading, piece: Piece, name: tuple[str, int, int], value: tuple[int, int]) -> None:
    low, high = value
    if high - low >= 2 and piece.text[low] in "\"'" and piece.text[high - 1] == piece.text[low]:
        low, high = low + 1, high - 1
    text = piece.slice(low, high)
    dynamic = bool(re.search(r"\{\{|\$[{(]", text.text))
    word = Word(text, piece.at(value[0]), piece.at(max(value[1], value[0])), "fixed", dynamic)
    reading.env.append(
        EnvVar(
            name=name[0],
            value=None if dynamic else text.text,
            start=piece.at(name[1]),
            end=word.end,
            place="yaml",
            word=word,
            raw=text.text,
            dynamic=dynamic,
        )
    )


def _loose_words(piece: Piece, start: int, end: int) -> list[Word]:
    from roadworthy.lint.shell_lexer import read_shell
    from roadworthy.lint.text import Piece as _Piece

    lead = re.match(r"\s*-\s+|\s*[\w-]+\s*:\s*", piece.text[start:end])
    begin = start + (lead.end() if lead else 0)
    part = piece.slice(begin, end)
    plain = _Piece(re.sub(r"[\[\],]", " ", part.text), part.segments)
    return [
        Word(word.piece, word.start, word.end, "fixed", word.dynamic or "{{" in word.value)
        for command in read_shell(plain, layout="fixed").commands
        for word in command.words
    ]
