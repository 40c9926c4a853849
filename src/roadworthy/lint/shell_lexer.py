"""Shell text to commands, every word with its place.

Not a shell: nothing is expanded or run. Words are unquoted, commands are split at operators, substitutions become
commands of their own, here-documents are kept as text. Whatever does not close (a quote, a bracket) ends with the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from roadworthy.lint.text import Piece, PieceBuilder
from roadworthy.lint.values import Layout, Word

_PLAIN = re.compile(r"[^\s;&|()<>'\"\\$`#]+")
_DOUBLE = re.compile(r"[^\"\\$`]+")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_OPENERS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!", "{", "time"})
_CLOSERS = frozenset({"fi", "done", "esac", "}"})
_REDIRECT = re.compile(r"\d*(?:<<<|<<-?|<>|>>|>\||>&|<&|&>>|&>|>|<)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_DEPTH = 12
"""Substitutions nested deeper than this are left unread."""


@dataclass(slots=True)
class Assign:
    """``NAME=value`` or ``NAME=(words)``; ``word`` spans the assignment whole, ``value`` only its value."""

    name: str
    word: Word
    value: Word | None
    items: list[Word] | None = None
    appends: bool = False


@dataclass(slots=True)
class ShellCommand:
    """One simple command. Members of a pipeline share ``pipe``; ``separator`` is the operator that ended it."""

    assigns: list[Assign] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[tuple[str, Word]] = field(default_factory=list)
    heredocs: list[Piece] = field(default_factory=list)
    pipe: int = 0
    separator: str = ""
    depth: int = 0

    @property
    def start(self) -> int:
        return min([word.start for word in self.words] + [assign.word.start for assign in self.assigns], default=0)

    @property
    def end(self) -> int:
        ends = [word.end for word in self.words] + [assign.word.end for assign in self.assigns]
        return max(ends + [word.end for _, word in self.redirects], default=0)


@dataclass(slots=True)
class Script:
    """Commands in order (those of a substitution after the command that holds it) and comments (offset spans)."""

    commands: list[ShellCommand] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)


def read_shell(piece: Piece, *, layout: Layout = "shell") -> Script:
    """The commands of ``piece``. ``layout`` tells how words may be taken out of the file again."""
    lexer = _Lexer(piece, layout)
    lexer.block("", 0)
    return lexer.script


class _Lexer:
    def __init__(self, piece: Piece, layout: Layout) -> None:
        self.piece, self.text, self.layout = piece, piece.text, layout
        self.index = 0
        self.length = len(piece.text)
        self.script = Script()
        self.pipes = 0
        self.pending: list[tuple[ShellCommand, str, bool]] = []

    def block(self, closer: str, depth: int) -> None:
        """Read commands up to ``closer`` (or the end), leaving the index after it."""
        command = self._fresh(depth)
        while self.index < self.length:
            character = self.text[self.index]
            if character in " \t\f\v":
                self.index += 1
            elif character == "\\" and self._continues():
                pass
            elif character == "#":
                self._comment()
            elif character in "\r\n":
                command = self._finish(command, "\n", depth)
                self._newline()
            elif closer and character == closer:
                self._finish(command, closer, depth)
                self.index += 1
                return
            elif match := _REDIRECT.match(self.text, self.index):
                self._redirect(match, command, depth)
            elif character in ";&|()":
                command = self._operator(character, command, depth)
            else:
                self._word_of(command, depth)
        self._finish(command, "", depth)

    def _fresh(self, depth: int) -> ShellCommand:
        self.pipes += 1
        return ShellCommand(pipe=self.pipes, depth=depth)

    def _finish(self, command: ShellCommand, separator: str, depth: int) -> ShellCommand:
        if command.words or command.assigns or command.redirects:
            command.separator = separator
            self.script.commands.append(command)
            return self._fresh(depth)
        return command

    def _operator(self, character: str, command: ShellCommand, depth: int) -> ShellCommand:
        text = self.text[self.index : self.index + 2]
        operator = text if text in ("&&", "||", "|&", ";;") else character
        self.index += len(operator)
        pipe = command.pipe
        finished = self._finish(command, operator, depth)
        if operator in ("|", "|&") and finished is not command:
            finished.pipe = pipe
        return finished

    def _comment(self) -> None:
        end = self.index
        while end < self.length and self.text[end] not in "\r\n":
            end += 1
        self.script.comments.append((self.piece.at(self.index), self.piece.at(end)))
        self.index = end

    def _continues(self) -> bool:
        """Step over a backslash that joins two lines."""
        if self.text.startswith("\\\r\n", self.index):
            self.index += 3
        elif self.text.startswith("\\\n", self.index):
            self.index += 2
        else:
            return False
        return True

    def _newline(self) -> None:
        self.index += 2 if self.text.startswith("\r\n", self.index) else 1
        for command, delimiter, _ in self.pending:
            command.heredocs.append(self._heredoc(delimiter))
        self.pending.clear()

    def _heredoc(self, delimiter: str) -> Piece:
        start = self.index
        while self.index < self.length:
            end = self.text.find("\n", self.index)
            end = self.length if end < 0 else end
            line_start, line = self.index, self.text[self.index : end]
            self.index = min(end + 1, self.length)
            if line.strip() == delimiter:
                return self.piece.slice(start, line_start)
        return self.piece.slice(start, self.length)

    def _redirect(self, match: re.Match[str], command: ShellCommand, depth: int) -> None:
        operator = match.group().lstrip("0123456789")
        self.index = match.end()
        if operator in ("<", ">") and self.text.startswith("(", self.index):
            self.index += 1
            self._nested(")", depth)
            return
        while self.index < self.length and self.text[self.index] in " \t":
            self.index += 1
        if self.index >= self.length or self.text[self.index] in "\r\n;&|()":
            if operator in (">&", "<&") and self.text.startswith("-", self.index):
                self.index += 1
            return
        target = self._word(depth)
        if target is None:
            self.index += 1
            return
        if operator in ("<<", "<<-"):
            self.pending.append((command, target.value, operator == "<<-"))
        else:
            command.redirects.append((operator, target))

    def _word_of(self, command: ShellCommand, depth: int) -> None:
        begin = self.index
        word = self._word(depth)
        if word is None:
            self.index += 1
            return
        bare = self.text[begin : self.index]
        if not command.words and (match := _ASSIGN.match(bare)) and not bare[: match.end()].startswith(("'", '"')):
            command.assigns.append(self._assign(word, match, depth))
            return
        if not command.words and not command.assigns and bare in _OPENERS | _CLOSERS:
            return
        if command.words and command.words[0].value in ("export", "declare", "local", "readonly", "typeset"):
            match = _ASSIGN.match(bare)
            if match:
                command.assigns.append(self._assign(word, match, depth))
                return
        command.words.append(word)

    def _assign(self, word: Word, match: re.Match[str], depth: int) -> Assign:
        name, appends = match.group(1), bool(match.group(2))
        if word.value == match.group() and self.text.startswith("(", self.index):
            self.index += 1
            items = self._array(depth)
            whole = Word(word.piece, word.start, self.piece.at(self.index - 1) + 1, self.layout)
            return Assign(name, whole, None, items, appends)
        cut = match.end()
        inner_start = word.piece.at(cut) if cut < len(word.value) else word.end
        value = Word(word.piece.slice(cut, len(word.value)), inner_start, word.end, word.layout, word.dynamic)
        return Assign(name, word, value, None, appends)

    def _array(self, depth: int) -> list[Word]:
        items: list[Word] = []
        while self.index < self.length:
            character = self.text[self.index]
            if character == ")":
                self.index += 1
                break
            if character == "#":
                self._comment()
            elif character.isspace():
                self.index += 1
            elif character == "\\" and self._continues():
                pass
            else:
                word = self._word(depth)
                if word is None:
                    self.index += 1
                    continue
                items.append(Word(word.piece, word.start, word.end, "array", word.dynamic))
        return items

    def _nested(self, closer: str, depth: int) -> None:
        if depth < MAX_DEPTH:
            self.block(closer, depth + 1)
        else:
            end = self.text.find(closer, self.index)
            self.index = self.length if end < 0 else end + 1

    def _word(self, depth: int) -> Word | None:
        """The word at the index, or None where no word begins."""
        builder = PieceBuilder()
        begin, text = self.index, self.text
        dynamic = False
        while self.index < self.length:
            character = text[self.index]
            if match := _PLAIN.match(text, self.index):
                builder.add_from(self.piece, self.index, match.end())
                self.index = match.end()
            elif character == "'":
                end = text.find("'", self.index + 1)
                end = self.length if end < 0 else end
                builder.add_from(self.piece, self.index + 1, end)
                self.index = min(end + 1, self.length)
            elif character == '"':
                self.index += 1
                dynamic |= self._double(builder, depth)
            elif character == "\\":
                if self._continues():
                    continue
                builder.add_from(self.piece, self.index + 1, min(self.index + 2, self.length))
                self.index = min(self.index + 2, self.length)
            elif character in "$`":
                dynamic |= self._expansion(builder, depth)
            elif character == "#" and self.index > begin:
                builder.add_from(self.piece, self.index, self.index + 1)
                self.index += 1
            else:
                break
        if self.index == begin:
            return None
        where = self.piece.at(begin)
        return Word(builder.build(where), where, self.piece.at(self.index - 1) + 1, self.layout, dynamic)

    def _double(self, builder: PieceBuilder, depth: int) -> bool:
        """Inside double quotes, up to the closing one; says whether anything expands."""
        text, dynamic = self.text, False
        while self.index < self.length:
            character = text[self.index]
            if match := _DOUBLE.match(text, self.index):
                builder.add_from(self.piece, self.index, match.end())
                self.index = match.end()
            elif character == '"':
                self.index += 1
                break
            elif character == "\\":
                if self._continues():
                    continue
                follower = text[self.index + 1 : self.index + 2]
                start = self.index + 1 if follower in ('"', "\\", "$", "`") else self.index
                builder.add_from(self.piece, start, min(self.index + 2, self.length))
                self.index = min(self.index + 2, self.length)
            else:
                dynamic |= self._expansion(builder, depth)
        return dynamic

    def _expansion(self, builder: PieceBuilder, depth: int) -> bool:
        """``$x``, ``${x}``, ``$(x)`` or a backtick: kept as written; what runs inside becomes commands."""
        text, begin = self.text, self.index
        if text.startswith("$$", begin) and re.match(r"[({@*A-Za-z_]", text[begin + 2 : begin + 3]):
            # Kubernetes, Compose and systemd write $$ for the $ that the shell is to see.
            builder.add_from(self.piece, begin, begin + 1)
            self.index += 1
            return self._expansion(builder, depth)
        if text.startswith("$'", begin):
            end = text.find("'", begin + 2)
            end = self.length if end < 0 else end
            builder.add_from(self.piece, begin + 2, end)
            self.index = min(end + 1, self.length)
            return False
        if text.startswith("$((", begin):
            end = text.find("))", begin)
            self.index = self.length if end < 0 else end + 2
        elif text.startswith("$(", begin):
            self.index += 2
            self._nested(")", depth)
        elif text.startswith("${", begin):
            self._braces()
        elif text[begin] == "`":
            end = text.find("`", begin + 1)
            end = self.length if end < 0 else end
            if depth < MAX_DEPTH:
                inner = _Lexer(self.piece.slice(begin + 1, end), self.layout)
                inner.pipes = self.pipes + 1000
                inner.block("", depth + 1)
                self.script.commands.extend(inner.script.commands)
            self.index = min(end + 1, self.length)
        else:
            match = _NAME.match(text, begin + 1)
            self.index = match.end() if match else min(begin + 2, self.length)
            if not match and text[begin + 1 : begin + 2] in ("", " ", '"', "\n"):
                self.index = begin + 1
                builder.add_from(self.piece, begin, begin + 1)
                return False
        builder.add_from(self.piece, begin, self.index)
        return True

    def _braces(self) -> None:
        depth, text = 0, self.text
        while self.index < self.length:
            if text.startswith("${", self.index):
                depth += 1
                self.index += 2
                continue
            character = text[self.index]
            self.index += 1
            if character == "\\":
                self.index += 1
            elif character == "}":
                depth -= 1
                if depth == 0:
                    break
            elif character == "\n" and depth == 1 and self.index - 1 > 4000:
                break
        self.index = min(self.index, self.length)
