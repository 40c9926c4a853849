"""Python that starts vLLM or sets its environment: keyword arguments, ``os.environ``, argument lists, shell strings.

Read with :mod:`ast`; nothing is fixed here, because what a name stands for may be decided elsewhere in the program.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING

from roadworthy.lint.argv import ENV_NAME, normal_name, started
from roadworthy.lint.shell_reader import flag_variable, read_shell_piece
from roadworthy.lint.text import Piece
from roadworthy.lint.values import EnvVar, Flag, Invocation, Word

if TYPE_CHECKING:
    from roadworthy.lint.reading import Reading

_ENGINES = frozenset({"LLM", "EngineArgs", "AsyncEngineArgs", "AsyncLLM", "LLMEngine", "AsyncLLMEngine", "VllmConfig"})
_COMMANDS = re.compile(
    r"\b(?:vllm\s+(?:serve|bench)|ray\s+(?:start|stop)|numactl|ipcrm|ipcs|sysctl|mstconfig|api_server|oom_score_adj)\b"
)


def read_python(reading: Reading, piece: Piece) -> None:
    """Settings of a Python program into ``reading``; a program that does not parse is read line by line."""
    _comments(reading, piece)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(piece.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        starts = [0, *(match.end() for match in re.finditer("\n", piece.text))]
        reading.not_read(
            piece.at(min(starts[min(line, len(starts)) - 1], len(piece.text))), "Python that does not parse"
        )
        from roadworthy.lint.yaml_reader import read_loose

        read_loose(reading, piece)
        return
    _Visitor(reading, piece).visit_all(tree)


def _comments(reading: Reading, piece: Piece) -> None:
    for match in re.finditer(r"^[ \t]*#[^\r\n]*", piece.text, re.MULTILINE):
        reading.comments.append((piece.at(match.start()), piece.at(match.end())))


class _Visitor:
    def __init__(self, reading: Reading, piece: Piece) -> None:
        self.reading, self.piece = reading, piece
        self.lines = piece.text.encode("utf-8", "surrogatepass").split(b"\n")
        self.starts: list[int] = []
        position = 0
        for line in piece.text.split("\n"):
            self.starts.append(position)
            position += len(line) + 1
        self.names: dict[str, ast.expr] = {}

    def visit_all(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.names[node.targets[0].id] = node.value
        docs = {id(first.value) for node in nodes for first in _docstrings(node)}
        for node in nodes:
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Assign):
                self._assign(node)
            elif isinstance(node, ast.Dict):
                self._dict(node)
            elif isinstance(node, (ast.List, ast.Tuple)):
                self._list(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                self._string(node)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                pass
        for node in nodes:
            for statement in _docstrings(node):
                low = self._offset(statement.lineno, statement.col_offset)
                high = self._offset(statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
                self.reading.comments.append((self.piece.at(low), self.piece.at(high)))

    def _offset(self, line: int, column: int) -> int:
        row = self.lines[line - 1] if line <= len(self.lines) else b""
        return self.starts[min(line, len(self.starts)) - 1] + len(row[:column].decode("utf-8", "replace"))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._offset(node.lineno, node.col_offset), self._offset(end_line, end_column)

    def _word(self, node: ast.expr) -> Word:
        """An expression as a word: the text of a literal, or what is written, marked dynamic."""
        low, high = self._span(node)
        seen = self.names.get(node.id) if isinstance(node, ast.Name) else None
        literal = seen if isinstance(seen, ast.Constant) else node
        if isinstance(literal, ast.Constant):
            value = str(literal.value)
            at = self.piece.text.find(value, low, high) if isinstance(literal.value, str) else low
            piece = Piece(value, ((0, self.piece.at(at if at >= 0 else low)),))
            return Word(piece, self.piece.at(low), self.piece.at(high), "fixed")
        text = self.piece.text[low:high]
        return Word(Piece(text, ((0, self.piece.at(low)),)), self.piece.at(low), self.piece.at(high), "fixed", True)

    def _call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _ENGINES:
            self._engine(node)
        elif name in ("setdefault", "putenv", "setenv") and len(node.args) >= 2 and _is_environ(node.func):
            self._variable(node.args[0], node.args[1])
        elif name == "init" and any(keyword.arg == "_system_config" for keyword in node.keywords):
            pass

    def _engine(self, node: ast.Call) -> None:
        flags: list[Flag] = []
        model = [self._word(argument) for argument in node.args[:1]]
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            low = self._offset(keyword.lineno, keyword.col_offset)
            high = low + len(keyword.arg)
            key = Word(self.piece.slice(low, high), self.piece.at(low), self.piece.at(high), "fixed")
            flag = normal_name("--" + keyword.arg)
            value = self._word(keyword.value)
            if flag == "--model":
                model = [value]
            if value.value in ("True", "False") and not value.dynamic:
                flags.append(Flag(flag if value.value == "True" else "--no-" + flag[2:], key, ()))
            else:
                flags.append(Flag(flag, key, (value,)))
        low, high = self._span(node)
        self.reading.invocations.append(
            Invocation(
                program="vllm serve",
                start=self.piece.at(low),
                end=self.piece.at(high),
                words=[],
                place="python",
                flags=tuple(flags),
                positionals=tuple(model),
                fragment=True,
                module="python",
            )
        )

    def _assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and _is_environ(target.value):
            self._variable(target.slice, node.value)

    def _dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and ENV_NAME.fullmatch(key.value):
                self._variable(key, value)

    def _variable(self, name: ast.expr, value: ast.expr) -> None:
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return
        word = self._word(value)
        key = self._word(name)
        variable = EnvVar(
            name=name.value,
            value=None if word.dynamic else word.value,
            start=key.start,
            end=word.end,
            place="python",
            word=word,
            raw=word.value,
            dynamic=word.dynamic,
        )
        self.reading.env.append(variable)
        flag_variable(self.reading, variable)

    def _list(self, node: ast.List | ast.Tuple) -> None:
        if not any(isinstance(child, ast.Constant) and isinstance(child.value, str) for child in node.elts):
            return
        words = [self._word(child) for child in node.elts]
        first = words[0].value
        if not (
            first.startswith("-")
            or any(word.value.startswith("--") for word in words)
            or first in ("vllm", "ray", "numactl")
        ):
            return
        found = started(words, arity=self.reading.arity, place="python")
        for invocation in found.invocations:
            if invocation.program == "?":
                invocation.fragment = True
            self.reading.invocations.append(invocation)

    def _string(self, node: ast.Constant) -> None:
        value = str(node.value)
        if not (_COMMANDS.search(value) or re.match(r"\s*--[a-z]", value)) or not re.search(r"\s", value.strip()):
            return
        low, high = self._span(node)
        at = self.piece.text.find(value, low, high)
        piece = self.piece.slice(at, at + len(value)) if at >= 0 else Piece(value, ((0, self.piece.at(low)),))
        read_shell_piece(self.reading, piece, place="python", layout="fixed")


def _docstrings(node: ast.AST) -> list[ast.Expr]:
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return [first]
    return []


def _is_environ(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return "environ" in text or "putenv" in text or "setenv" in text
