"""Shell scripts: commands with their variables put in, exports, arrays of flags, here-documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.argv import env_words, started
from roadworthy.lint.reading import Reading, nested
from roadworthy.lint.shell_lexer import Assign, ShellCommand, read_shell
from roadworthy.lint.values import EnvVar, Invocation, Layout, Place, Word

if TYPE_CHECKING:
    from roadworthy.lint.text import Piece

_REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=?][^}]*)?\}?$")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]([^${}`]*)\}$")
_LOOKS_LIKE_FLAGS = re.compile(r"(?:^|\s)--?[A-Za-z][\w-]*")
_HOLDS_A_COMMAND = re.compile(r"\s*(?:--?[A-Za-z]|(?:[\w./-]*/)?(?:vllm|ray|python3?|docker|numactl|env|sudo)\s)")
_EXPORTERS = frozenset({"export", "declare", "typeset", "readonly", "local"})
MAX_EXPANDED_WORDS = 4000


class ShellVariables:
    """What a script has given its names so far: words of arrays, texts of plain variables."""

    def __init__(self) -> None:
        self.items: dict[str, list[Word]] = {}
        self.values: dict[str, Word] = {}
        self.used: set[str] = set()

    def assign(self, assign: Assign) -> None:
        if assign.items is not None:
            self.items[assign.name] = [*(self.items.get(assign.name, []) if assign.appends else []), *assign.items]
            return
        if assign.value is None:
            return
        if assign.appends and (_LOOKS_LIKE_FLAGS.search(assign.value.value) or assign.name in self.items):
            self.items[assign.name] = [*self._as_items(assign.name), *_split(assign.value)]
            return
        self.values[assign.name] = assign.value
        self.items.pop(assign.name, None)

    def _as_items(self, name: str) -> list[Word]:
        if name in self.items:
            return self.items[name]
        return _split(self.values[name]) if name in self.values else []

    def expand(self, words: list[Word]) -> list[Word]:
        """``words`` with arrays, flag strings and plain values put in where the file gives them."""
        out: list[Word] = []
        for word in words:
            out.extend(self._expanded(word, 0))
            if len(out) > MAX_EXPANDED_WORDS:
                break
        return out

    def _expanded(self, word: Word, depth: int) -> list[Word]:
        if not word.dynamic or depth > 6:
            return [word]
        match = _REFERENCE.match(word.value)
        if match:
            name = match.group(1)
            if name in self.items:
                self.used.add(name)
                return [one for item in self.items[name] for one in self._expanded(item, depth + 1)]
            value = self.values.get(name)
            if value is not None:
                self.used.add(name)
                if _HOLDS_A_COMMAND.match(value.value):
                    return [one for item in _split(value) for one in self._expanded(item, depth + 1)]
                own = _DEFAULT.match(value.value) if value.dynamic else None
                if own and own.group(1) == name:  # TP=${TP:-8}
                    begin = value.value.rindex(own.group(2))
                    piece = value.piece.slice(begin, begin + len(own.group(2)))
                    return [Word(piece, word.start, word.end, word.layout, False)]
                if value.dynamic:
                    inner = self._expanded(Word(value.piece, word.start, word.end, word.layout, True), depth + 1)
                    return inner if len(inner) == 1 else [word]
                return [Word(value.piece, word.start, word.end, word.layout, False)]
            default = _DEFAULT.match(word.value)
            if default:
                begin = word.value.index(default.group(2), len(name) + 2) if default.group(2) else len(word.value) - 1
                piece = word.piece.slice(begin, begin + len(default.group(2)))
                return [Word(piece, word.start, word.end, word.layout, False)]
            return [word]
        flag, equals, rest = word.value.partition("=")
        if equals and flag.startswith("--") and (match := _REFERENCE.match(rest)):
            value = self.values.get(match.group(1))
            if value is not None and not value.dynamic and not re.search(r"\s", value.value):
                from roadworthy.lint.text import PieceBuilder

                builder = PieceBuilder()
                builder.add_from(word.piece, 0, len(flag) + 1)
                builder.add_from(value.piece, 0, len(value.value))
                return [Word(builder.build(word.start), word.start, word.end, word.layout, False)]
        return [word]


def _split(value: Word) -> list[Word]:
    """A string of words, as unquoted expansion would split it."""
    words: list[Word] = []
    for command in read_shell(value.piece, layout="shell").commands:
        words.extend(assign.word for assign in command.assigns)
        words.extend(command.words)
    return words


def read_shell_piece(
    reading: Reading, piece: Piece, *, place: Place, owner: object = None, layout: Layout = "shell", image: str = ""
) -> None:
    """Commands, variables and comments of a script (or of one command line) into ``reading``."""
    script = read_shell(piece, layout=layout)
    reading.comments.extend(script.comments)
    reading.commands.extend(script.commands)
    variables = ShellVariables()
    for command in script.commands:
        for assign in command.assigns:
            if not command.words or command.words[0].value in _EXPORTERS:
                variables.assign(assign)
    for command in script.commands:
        _command(reading, command, variables, place=place, owner=owner, image=image)
    for command in script.commands:
        for assign in command.assigns:
            _loose_flags(reading, assign, variables, place=place, owner=owner)


def _command(
    reading: Reading, command: ShellCommand, variables: ShellVariables, *, place: Place, owner: object, image: str
) -> None:
    exported = bool(command.words) and command.words[0].value in _EXPORTERS
    scope = command if command.words and not exported else owner
    for assign in command.assigns:
        if assign.value is not None:
            reading.env.append(_variable(assign, command, place, scope, alone=exported or not command.words))
    prints = bool(command.words) and command.words[0].value in ("echo", "printf")
    words = [] if exported else list(command.words) if prints else variables.expand(command.words)
    if words:
        found = started(words, arity=reading.arity, place=place, image=image, owner=owner)
        given = [one for one in reading.env[-len(command.assigns) :] if one.owner is command] if command.assigns else []
        scripts = {id(word) for _, word in found.scripts}
        searches = words[0].value.rpartition("/")[2] in _TALKERS
        plain = [] if searches else [word for word in words if id(word) not in scripts]
        given += list(env_words(plain, _place(found.invocations) if place == "shell" else place, command))
        reading.env.extend(one for one in given if one.removable and one not in reading.env)
        for invocation in found.invocations:
            invocation.pipe = command.pipe
            invocation.env = given
            invocation.redirects = tuple((operator, word.value) for operator, word in command.redirects)
            invocation.unexpanded = any(word.dynamic and _REFERENCE.match(word.value) for word in invocation.words)
            if invocation.program == "?" or (invocation.program not in ("vllm serve",) and _is_variable(invocation)):
                invocation.fragment = True
            reading.invocations.append(invocation)
            _note_image(reading, invocation)
        for inner, _ in found.scripts:
            _nested_script(reading, inner, place=place, owner=owner)
        if not found.scripts:
            _words_that_are_scripts(reading, command, words, place=place, owner=owner)
    for body in command.heredocs:
        nested(reading, body, place=place, owner=owner)


_SPACE = re.compile(r"\s")
_TALKERS = frozenset({"grep", "egrep", "rg", "sed", "awk", "die", "log", "read", "test", "[", "[["})
_A_COMMAND = re.compile(
    r"(?:^|[;&|]\s*)(?:\w+=\S*\s+|sudo\s+|exec\s+|nohup\s+|export\s+)*(?:vllm\s+serve|python3?\s+-m\s+vllm|ray\s+(?:start|stop)"
    r"|numactl\s|ipcs\s|ipcrm\s|sysctl\s|mstconfig\s|docker\s+run|(?:NCCL|RAY|VLLM|PYTORCH)_\w+=)|^[\d*@][^\n]*\bipcrm\b"
)


def _words_that_are_scripts(
    reading: Reading, command: ShellCommand, words: list[Word], *, place: Place, owner: object
) -> None:
    """Commands handed to other programs as one word: ``tmux new -d 'vllm serve M'``, ``pdsh -w n[1-4] 'ray stop'``.

    What `echo` says is only a file's text where it goes to a file or into another program.
    """
    program = words[0].value.rpartition("/")[2]
    prints = program in ("echo", "printf")
    if program in _TALKERS or (prints and not command.redirects and command.separator != "|"):
        return
    if prints and any(operator in (">&",) for operator, _ in command.redirects):
        return
    for word in words[1:]:
        if _SPACE.search(word.value) and _A_COMMAND.search(word.value):
            nested(reading, word.piece, place=place, owner=owner)


def _nested_script(reading: Reading, piece: Piece, *, place: Place, owner: object) -> None:
    if reading.depth < 8:
        reading.depth += 1
        read_shell_piece(reading, piece, place=place, owner=owner)
        reading.depth -= 1


def _place(invocations: list[Invocation]) -> Place:
    return "docker" if any(one.program.startswith(("docker", "podman", "nerdctl")) for one in invocations) else "shell"


def _is_variable(invocation: Invocation) -> bool:
    return bool(invocation.program_words) and invocation.program_words[0].dynamic


def _variable(assign: Assign, command: ShellCommand, place: Place, scope: object, *, alone: bool) -> EnvVar:
    value = assign.value
    assert value is not None
    whole = alone and len(command.assigns) == 1 and len(command.words) <= 1
    start = command.start if whole else assign.word.start
    end = command.end if whole else assign.word.end
    return EnvVar(
        name=assign.name,
        value=None if value.dynamic else value.value,
        start=assign.word.start,
        end=assign.word.end,
        place=place,
        word=value,
        removable=(start, end),
        owner=scope,
        raw=value.value,
        dynamic=value.dynamic,
        name_piece=assign.word.piece.slice(0, len(assign.name)) if assign.word.value.startswith(assign.name) else None,
    )


def _note_image(reading: Reading, invocation: Invocation) -> None:
    from roadworthy.lint.values import KeyValue

    if invocation.program.endswith((" run", " create")) and invocation.words:
        word = invocation.words[-1]
        if not word.value.startswith("-"):
            reading.images.append(KeyValue("image", "image", word.value, word.start, word.end, word))
    elif invocation.program in ("docker", "podman", "nerdctl", "crictl", "ctr"):
        for word in invocation.words:
            if re.search(r"[\w./-]+:[\w.-]+$", word.value) and "/" in word.value:
                reading.images.append(KeyValue("image", "image", word.value, word.start, word.end, word))


def _loose_flags(reading: Reading, assign: Assign, variables: ShellVariables, *, place: Place, owner: object) -> None:
    """Flags kept in a variable that no command of this file uses: they still go to some command."""
    if assign.name in variables.used:
        return
    words = assign.items
    if words is None:
        if assign.value is None or not _LOOKS_LIKE_FLAGS.match(assign.value.value):
            if assign.value is not None and re.search(r"\bvllm\s+serve\b|api_server", assign.value.value):
                _nested_script(reading, assign.value.piece, place=place, owner=owner)
            return
        words = _split(assign.value)
    flags = [word for word in words if word.value.startswith("-")]
    if not flags:
        return
    found = started(words, arity=reading.arity, place=place, owner=owner)
    for invocation in found.invocations:
        invocation.fragment = True
        invocation.program = _for_program(assign.name, invocation.program)
        reading.invocations.append(invocation)
    for inner, _ in found.scripts:
        _nested_script(reading, inner, place=place, owner=owner)


def _for_program(name: str, program: str) -> str:
    if program != "?":
        return program
    lowered = name.lower()
    if "docker" in lowered or "podman" in lowered:
        return "docker"
    if "ray" in lowered.split("_"):
        return "ray start"
    return "vllm serve" if "vllm" in lowered else "?"


def flag_variable(reading: Reading, variable: EnvVar) -> None:
    """Flags given as the value of an environment variable (``VLLM_ARGS=--a 1``)."""
    word = variable.word
    if word is None or not _LOOKS_LIKE_FLAGS.search(word.value):
        return
    if not _LOOKS_LIKE_FLAGS.match(word.value) and not re.search(r"\bvllm\s+serve\b|api_server", word.value):
        return
    found = started(_split(word), arity=reading.arity, place=variable.place, owner=variable.owner)
    for invocation in found.invocations:
        invocation.fragment = invocation.program == "?"
        invocation.program = _for_program(variable.name, invocation.program)
        reading.invocations.append(invocation)
