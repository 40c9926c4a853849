"""Which form a text has, told from what it says and never from its name; and the reader of that form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from roadworthy.lint.plain_readers import (
    ENV_LINE,
    is_cron_line,
    read_crontab,
    read_dockerfile,
    read_env_file,
    read_limits,
    read_sysctl,
    read_unit,
)
from roadworthy.lint.shell_reader import read_shell_piece
from roadworthy.lint.text import Piece
from roadworthy.lint.yaml_reader import read_yaml_piece

if TYPE_CHECKING:
    from roadworthy.lint.reading import Reading
    from roadworthy.lint.values import Place

Form = Literal[
    "empty", "python", "dockerfile", "unit", "yaml", "env", "sysctl", "limits", "crontab", "nginx", "shell", "markdown"
]

_PYTHON = re.compile(
    r"^(?:from\s+[\w.]+\s+import\s|import\s+\w|(?:async\s+)?def\s+\w+\(.*|class\s+\w+.*:\s*$|\w+\s*=\s*\w+\()",
    re.MULTILINE,
)
_PYTHON_STRONG = re.compile(r"^(?:from\s+[\w.]+\s+import\s|import\s+[\w.]+(?:\s+as\s+\w+)?\s*$)", re.MULTILINE)
_UNIT = re.compile(
    r"^\s*\[(?:Unit|Service|Install|Socket|Timer|Slice|Manager|Container|program:\S+)\]\s*$", re.MULTILINE
)
_UNIT_LINE = re.compile(
    r"^\s*(?:Exec(?:Start|StartPre|StartPost|Stop)|Environment|OOMScoreAdjust|Limit[A-Z]+)=", re.MULTILINE
)
_DOCKER = re.compile(r"^FROM\s+(?:--\S+\s+)*\S+(?:\s+AS\s+\S+)?$", re.IGNORECASE)
_YAML_START = re.compile(r"^(?:%YAML|---(?:\s|$)|[\"']?[\w./-]+[\"']?\s*:(?:\s|$)|-\s+\S|\{|\[\s*(?:\{|\"|$))")
_NGINX = re.compile(
    r"^\s*(?:http|server|upstream\s+[\w.-]+|stream|location\s+\S+(?:\s+\S+)?|events)\s*\{", re.MULTILINE
)
_LIMIT = re.compile(
    r"^\s*\S+\s+(?:soft|hard|-)\s+(?:memlock|nofile|nproc|stack|core|rtprio|as|nice|priority|msgqueue)\s+\S+",
    re.MULTILINE,
)
_SYSCTL = re.compile(r"^\s*-?[a-z][\w-]*(?:[./][\w*-]+)+\s*=")
_SHELL_SYNTAX = re.compile(
    r"(?:^|\s)(?:if\s+\[|then\b|fi\b|done\b|esac\b|function\s|set\s+-[a-z]|source\s|exec\s)|\$\(|&&|\|\|", re.MULTILINE
)


def form_of(text: str) -> Form:
    """The form of ``text``."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("#", ";"))]
    if not said:
        return "empty"
    shebang = lines[0] if lines[0].startswith("#!") else ""
    if shebang:
        return "python" if "python" in shebang else "shell"
    if _UNIT.search(text) or (_UNIT_LINE.match(said[0]) and not said[0].lower().startswith("export")):
        return "unit"
    if any(_DOCKER.match(line) for line in said[:1]) or (
        said[0].upper().startswith("ARG ") and re.search(r"^FROM\s", text, re.MULTILINE)
    ):
        return "dockerfile"
    if (re.match(r"^(?:\{\{|\{%)", said[0]) or _YAML_START.match(said[0])) and _looks_like_yaml(text, said):
        return "yaml"
    if _PYTHON_STRONG.search(text) or (_PYTHON.match(said[0]) and not _SHELL_SYNTAX.search(text) and "(" in text):
        return "python"
    if all(_SYSCTL.match(line) for line in said):
        return "sysctl"
    if all(_LIMIT.match(line) for line in said):
        return "limits"
    if _NGINX.search(text) and ";" in text:
        return "nginx"
    if _is_markdown(text, said):
        return "markdown"
    if any(is_cron_line(line) for line in said) and all(is_cron_line(line) or ENV_LINE.match(line) for line in said):
        return "crontab"
    if all(ENV_LINE.match(line) for line in said) and not any(_needs_shell(line) for line in said):
        return "env"
    return "shell"


def _is_markdown(text: str, said: list[str]) -> bool:
    """Headings, and fences, tables or sentences with `words` in them."""
    if not re.search(r"^#{1,4} \S", text, re.MULTILINE):
        return False
    if re.search(r"^\s*```", text, re.MULTILINE) or re.search(r"^\|(?:\s*:?-+:?\s*\|)+\s*$", text, re.MULTILINE):
        return True
    prose = sum(bool(re.search(r"[a-z]{2,}[.,:]$|\s`[^`$]+`[\s,.)]", line)) for line in said)
    return prose * 2 > len(said) and not any(re.match(r"(?:export|set|if|for|exec|vllm|ray)\s", line) for line in said)


def _needs_shell(line: str) -> bool:
    """Whether a ``NAME=value`` line only makes sense to a shell: a substitution, an array, a command behind it."""
    match = ENV_LINE.match(line)
    value = match.group(2).strip() if match else ""
    if "$(" in value or "`" in value or value.startswith("(") or value.endswith("\\") or line.startswith("export "):
        return True
    if re.match(r"\s*(?:NCCL|VLLM|RAY|PYTORCH|GLOO|CUDA|HF|UCX)_\w+=[^\s'\"-][^\s'\"]*\s+[\w./]", line):
        return True
    return (
        bool(re.match(r"[^\s'\"]+\s+(?:[\w./-]*/)?(?:vllm|python3?|ray|docker|exec|env|numactl|nohup|\w+=)\b", value))
        or "; " in value
    )


def _looks_like_yaml(text: str, said: list[str]) -> bool:
    if said[0].startswith(("{", "[")) and not said[0].startswith(("{{", "{%")):
        return True
    pairs = sum(bool(re.match(r"(?:-\s+)?[\"']?[\w./$-]+[\"']?\s*:(?:\s|$)|-\s", line)) for line in said)
    return pairs * 3 >= len(said) or bool(re.search(r"^(?:apiVersion|kind|services|version)\s*:", text, re.MULTILINE))


def read_piece(reading: Reading, piece: Piece, *, place: Place = "shell", owner: object = None) -> None:
    """Read ``piece`` by its form into ``reading``."""
    form = form_of(piece.text)
    if reading.depth == 0:
        reading.kind = form
    if form == "python":
        from roadworthy.lint.python_reader import read_python

        read_python(reading, piece)
    elif form == "dockerfile":
        read_dockerfile(reading, piece)
    elif form == "unit":
        read_unit(reading, piece, owner=owner)
    elif form == "yaml":
        read_yaml_piece(reading, piece)
    elif form == "sysctl":
        read_sysctl(reading, piece)
    elif form == "limits":
        read_limits(reading, piece)
    elif form == "crontab":
        read_crontab(reading, piece)
    elif form == "env":
        read_env_file(reading, piece, place="env-file" if reading.depth == 0 else place, owner=owner)
    elif form == "nginx":
        _line_comments(reading, piece)
    elif form == "markdown":
        _markdown(reading, piece, place, owner)
    elif form == "shell":
        _templated_shell(reading, piece, place, owner)
    else:
        _line_comments(reading, piece)


def _line_comments(reading: Reading, piece: Piece) -> None:
    for match in re.finditer(r"(?:^|\s)#[^\r\n]*|^[ \t]*;[^\r\n]*", piece.text, re.MULTILINE):
        reading.comments.append((piece.at(match.start()), piece.at(match.end())))


def _templated_shell(reading: Reading, piece: Piece, place: Place, owner: object) -> None:
    from roadworthy.lint.yaml_source import mask_templates

    if re.search(r"\{%|\{\{-|\{\{ *(?:\.|include|toYaml|if|end|range|with)", piece.text):
        masked, templates = mask_templates(piece.text)
        for offset in templates:
            reading.not_read(piece.at(offset), "template")
        piece = Piece(masked, piece.segments)
    read_shell_piece(reading, piece, place=place, owner=owner)


def _markdown(reading: Reading, piece: Piece, place: Place, owner: object) -> None:
    """Only what stands in fences is a file; the words around it are remarks."""
    last = 0
    for match in re.finditer(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", piece.text, re.MULTILINE | re.DOTALL):
        reading.comments.append((piece.at(last), piece.at(match.start(1))))
        last = match.end(1)
        reading.depth += 1
        read_piece(reading, piece.slice(match.start(1), match.end(1)), place=place, owner=owner)
        reading.depth -= 1
    reading.comments.append((piece.at(last), piece.at(len(piece.text))))
