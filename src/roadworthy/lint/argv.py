"""Words of a command to the programs that they start, through wrappers, containers and shells.

``sudo env A=1 numactl -N 0 docker run -e B=2 IMAGE vllm serve M`` starts four programs; rules look at each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from roadworthy.lint.values import EnvVar, Flag, Invocation, Place, Word

if TYPE_CHECKING:
    from roadworthy.lint.text import Piece

Arity = Callable[[str], int | None]
"""How many words follow a flag: 0, 1, -1 for several, None where the flag is not known."""

ENV_NAME = re.compile(
    r"(?:NCCL|VLLM|RAY|PYTORCH|TORCH|GLOO|UCX|NVSHMEM|CUDA|NVIDIA|HF|KDA|ZRD|LMCACHE|KV|EP|MOE|OMP|GPU|NIC"
    r"|LWS)_[A-Za-z0-9_]+"
)
_ENV_WORD = re.compile(rf"(?:-e|--env=|-x)?({ENV_NAME.pattern})=")
_ENV_OPTIONS = frozenset({"-e", "--env", "-x", "-genv"})
_PYTHON = re.compile(r"python(?:[23](?:\.\d+)?)?$")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ash", "ksh"})
_SHELL_COMMAND = re.compile(r"-[A-Za-z]*c$")
_IMAGE = re.compile(r"(?:^|/)vllm[\w.-]*(?:openai|ray)?[\w.-]*(?:[:@]|$)")

# Options of a wrapper that take the next word; what is not named here takes none.
_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D"}),
    "doas": frozenset({"-u", "-C"}),
    "env": frozenset({"-u", "--unset", "-C", "--chdir", "-S"}),
    "nohup": frozenset(),
    "exec": frozenset({"-a"}),
    "command": frozenset(),
    "setsid": frozenset(),
    "time": frozenset({"-f", "-o"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "tini": frozenset({"-e", "-p"}),
    "dumb-init": frozenset(),
    "eval": frozenset(),
    "catchsegv": frozenset(),
    "xargs": frozenset({"-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E"}),
    "numactl": frozenset(
        {"-N", "-m", "-i", "-C", "-p", "-l", "-P", "--cpunodebind", "--membind", "--interleave", "--physcpubind"}
        | {"--preferred", "--cpubind", "--localalloc", "--preferred-many", "-w"}
    )
    - {"-l", "--localalloc"},
    "taskset": frozenset(),
    "chrt": frozenset(),
}
_RUN_SWITCHES = frozenset({
    "-d", "-i", "-t", "-it", "-ti", "-dit", "-itd", "-idt", "-td", "-di", "--rm", "--init", "--privileged", "--detach",
    "--interactive", "--tty", "--read-only", "-P", "--publish-all", "--no-healthcheck", "--oom-kill-disable",
    "--sig-proxy", "--disable-content-trust", "--quiet", "-q", "--replace",
})  # fmt: skip
_SSH_VALUES = frozenset({
    "-p", "-i", "-o", "-l", "-J", "-F", "-L", "-R", "-D", "-b", "-c", "-E", "-I", "-m", "-O", "-Q", "-S", "-W", "-w",
})  # fmt: skip


@dataclass(slots=True)
class Found:
    """What the words start (outermost first), and strings in them that are scripts of their own."""

    invocations: list[Invocation] = field(default_factory=list)
    scripts: list[tuple[Piece, Word]] = field(default_factory=list)


def basename(word: Word) -> str:
    return PurePosixPath(word.value).name if "/" in word.value else word.value


def started(
    words: Sequence[Word], *, arity: Arity, place: Place = "shell", image: str = "", owner: object = None
) -> Found:
    """Programs that ``words`` start. ``image`` is that of the container they run in, whose entry point may be vLLM."""
    found = Found()
    _walk(list(words), found, arity=arity, place=place, image=image, owner=owner, wrappers=())
    return found


def _walk(
    words: list[Word],
    found: Found,
    *,
    arity: Arity,
    place: Place,
    image: str,
    owner: object,
    wrappers: tuple[Invocation, ...],
) -> None:
    for _ in range(40):  # each turn takes one wrapper off
        if not words:
            return
        program = basename(words[0])
        if program in _SHELLS and (at := _shell_string(words)) is not None:
            script = words[at]
            found.scripts.append((script.piece, script))
            words = words[at + 2 :]  # behind the script stand its $0 and its "$@"
            if words and re.search(r"\$[@*]", script.value):
                continue
            return
        rest = _wrapper(program, words, place, wrappers)
        if rest is None:
            break
        taken, words, image = rest
        wrappers = (*wrappers, taken)
        found.invocations.append(taken)
        if len(words) == 1 and taken.program in ("ssh", "eval", "su", "pdsh") and re.search(r"\s", words[0].value):
            found.scripts.append((words[0].piece, words[0]))
            return
    found.invocations.append(_program(words, arity=arity, place=place, image=image, owner=owner, wrappers=wrappers))


def _shell_string(words: list[Word]) -> int | None:
    """Where the script of ``bash -c SCRIPT`` stands, None without one."""
    for index, word in enumerate(words[1:], 1):
        if _SHELL_COMMAND.match(word.value):
            return index + 1 if index + 1 < len(words) else None
        if not word.value.startswith("-"):
            return None
    return None


def _wrapper(
    program: str, words: list[Word], place: Place, wrappers: tuple[Invocation, ...]
) -> tuple[Invocation, list[Word], str] | None:
    """The wrapper that ``words`` begin with, what it starts, and the image that runs it; None for no wrapper."""
    if program in ("docker", "podman", "nerdctl"):
        return _container(program, words, place, wrappers)
    if program == "kubectl" or program == "oc":
        split = next((index for index, word in enumerate(words) if word.value == "--"), None)
        if split is None or split + 1 >= len(words):
            return None
        return _taken(program, words[:split], place, wrappers), words[split + 1 :], ""
    if program == "ssh":
        index = _skip_options(words, 1, _SSH_VALUES)
        return (
            (_taken(program, words[: index + 1], place, wrappers), words[index + 1 :], "")
            if index + 1 < len(words)
            else None
        )
    if program == "su":
        for index, word in enumerate(words[:-1]):
            if word.value in ("-c", "--command"):
                return _taken(program, words[:index], place, wrappers), [words[index + 1]], ""
        return None
    if program not in _WRAPPERS:
        return None
    index = _skip_options(words, 1, _WRAPPERS[program])
    if program in ("timeout", "taskset", "chrt"):
        index += 1
    while program in ("env", "sudo") and index < len(words) and re.match(r"[A-Za-z_]\w*=", words[index].value):
        index += 1
    if program == "env" and index < len(words) and words[index].value.startswith("-"):
        index = _skip_options(words, index, _WRAPPERS[program])
    if index >= len(words):
        return None
    return _taken(program, words[:index], place, wrappers), words[index:], ""


def _taken(program: str, words: Sequence[Word], place: Place, wrappers: tuple[Invocation, ...]) -> Invocation:
    return Invocation(
        program=program,
        start=words[0].start,
        end=words[-1].end,
        words=words[1:],
        program_words=words[:1],
        place=place,
        wrappers=wrappers,
    )


def _skip_options(words: Sequence[Word], index: int, valued: frozenset[str]) -> int:
    while index < len(words) and words[index].value.startswith("-") and words[index].value != "-":
        if words[index].value == "--":
            return index + 1
        index += 2 if words[index].value in valued else 1
    return index


def _container(
    program: str, words: list[Word], place: Place, wrappers: tuple[Invocation, ...]
) -> tuple[Invocation, list[Word], str] | None:
    verb = next((index for index, word in enumerate(words) if word.value in ("run", "exec", "create")), None)
    if verb is None:
        return None
    index = verb + 1
    entry: Word | None = None
    while index < len(words) and words[index].value.startswith("-"):
        name, inline, _ = words[index].value.partition("=")
        if name == "--entrypoint":
            entry = words[index + 1] if not inline and index + 1 < len(words) else None
        index += 1 if inline or name in _RUN_SWITCHES or re.match(r"-[epvw].", name) else 2
    if index >= len(words):
        return _taken(f"{program} {words[verb].value}", words, place, wrappers), [], ""
    image = words[index].value if words[verb].value != "exec" else ""
    taken = _taken(f"{program} {words[verb].value}", words[: index + 1], place, wrappers)
    rest = words[index + 1 :]
    return taken, [entry, *rest] if entry is not None else rest, image if entry is None else ""


def is_vllm_image(image: str) -> bool:
    """Whether the image's own entry point is the vLLM server."""
    return bool(re.search(r"(^|/)vllm-openai[\w.-]*([:@]|$)", image))


def _program(
    words: list[Word], *, arity: Arity, place: Place, image: str, owner: object, wrappers: tuple[Invocation, ...]
) -> Invocation:
    program, taken, module = _name_of(words)
    if program == "?" or (program != "vllm serve" and is_vllm_image(image) and words[0].value.startswith("-")):
        program = "vllm serve" if is_vllm_image(image) else "?"
        taken = 0
    elif _may_hold_vllm(program, taken) and (inner := _vllm_inside(words)):
        program, module, skip = inner
        words = words[skip[0] :]
        taken = skip[1]
    made = Invocation(
        program=program,
        start=words[0].start,
        end=words[-1].end,
        words=words[taken:],
        program_words=words[:taken],
        place=place,
        wrappers=wrappers,
        owner=owner,
        module=module,
        fragment=program == "?",
    )
    return with_flags(made, arity)


def _may_hold_vllm(program: str, taken: int) -> bool:
    """Whether a program not known here may start vLLM further on in its words."""
    return program != "vllm serve" and (taken > 1 or not program.startswith(("vllm", "ray ")))


_SUBCOMMAND = re.compile(r"[a-z][a-z-]*")


def _name_of(words: Sequence[Word]) -> tuple[str, int, str]:
    """Program, how many words name it, and the module that it is."""
    first = basename(words[0])
    if first.startswith("-"):
        return "?", 0, ""
    if first in ("vllm", "ray") and len(words) > 1 and _SUBCOMMAND.fullmatch(words[1].value):
        return f"{first} {words[1].value}", 2, ""
    if _PYTHON.match(first):
        index = 1
        while index < len(words) and words[index].value in ("-u", "-O", "-B", "-I", "-s", "-E"):
            index += 1
        if index + 1 < len(words) and words[index].value == "-m":
            module = words[index + 1].value
            if module in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"):
                return "vllm serve", index + 2, module
            if module in ("vllm.entrypoints.cli.main", "vllm") and index + 2 < len(words):
                return f"vllm {words[index + 2].value}", index + 3, ""
            return f"python -m {module}", index + 2, module
        if index < len(words) and not words[index].value.startswith("-"):
            script = words[index].value
            if re.search(r"vllm/entrypoints/(openai/)?api_server\.py$", script):
                openai = "openai." if "/openai/" in script else ""
                return "vllm serve", index + 1, f"vllm.entrypoints.{openai}api_server"
            return f"python {basename(words[index])}", index + 1, ""
    return first, 1, ""


def _vllm_inside(words: Sequence[Word]) -> tuple[str, str, tuple[int, int]] | None:
    """vLLM started by a program that is not known here (``srun``, ``mpirun``, ``uv run``)."""
    for index in range(1, len(words)):
        value = words[index].value
        if value in ("vllm",) or value.endswith("/vllm"):
            if index + 1 < len(words) and words[index + 1].value in ("serve", "bench"):
                return f"vllm {words[index + 1].value}", "", (index, 2)
        elif _PYTHON.match(basename(words[index])):
            program, taken, module = _name_of(words[index:])
            if module.startswith("vllm.") or program.startswith("vllm"):
                return program, module, (index, taken)
    return None


def with_flags(invocation: Invocation, arity: Arity) -> Invocation:
    """The invocation with its words told apart into flags and positionals."""
    flags, positionals = split_flags(invocation.words, arity, positional_first=invocation.program == "vllm serve")
    return replace(invocation, flags=flags, positionals=positionals)


_MODEL_FLAG = re.compile(r"--model(?:=|$)")
_NEGATIVE_NUMBER = re.compile(r"-\d|-$")
_MODEL_ID = re.compile(r"[\w.-]+/[\w.-]+|/[\w./-]+")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*$")


def normal_name(name: str) -> str:
    """``--Max_Num_Seqs`` and ``--max-num-seqs`` are one flag to vLLM's parser, up to the first dot."""
    head, dot, tail = name.partition(".")
    if head.startswith("--"):
        head = "--" + head[2:].replace("_", "-")
    return head + dot + tail


def split_flags(
    words: Sequence[Word], arity: Arity, *, positional_first: bool = False
) -> tuple[tuple[Flag, ...], tuple[Word, ...]]:
    flags: list[Flag] = []
    positionals: list[Word] = []
    index = 0
    expects_model = positional_first and not any(_MODEL_FLAG.match(word.value) for word in words)
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, _ = word.value.partition("=")
        if not _FLAG.match(name):
            positionals.append(word)
            continue
        if equals:
            flags.append(Flag(normal_name(name), word, (), word.after(len(name) + 1)))
            continue
        count = arity(normal_name(name))
        values: list[Word] = []
        while index < len(words) and _is_value(words[index]):
            if count == 0 or (count in (1, None) and values):
                break
            if count is None and expects_model and not positionals and _MODEL_ID.fullmatch(words[index].value):
                break
            values.append(words[index])
            index += 1
        flags.append(Flag(normal_name(name), word, tuple(values)))
    return tuple(flags), tuple(positionals)


def _is_value(word: Word) -> bool:
    return not word.value.startswith("-") or bool(_NEGATIVE_NUMBER.match(word.value))


def _exported(word: Word, place: Place, owner: object) -> Iterator[EnvVar]:
    """``srun --export=ALL,NCCL_X=1``."""
    for match in re.finditer(rf"(?<=[=,])({ENV_NAME.pattern})=([^,]*)", word.value):
        piece = word.piece.slice(match.start(2), match.end(2))
        low, high = word.piece.at(match.start(1)), word.piece.at(match.end() - 1) + 1
        yield EnvVar(
            name=match.group(1),
            value=None if "$" in match.group(2) else match.group(2),
            start=low,
            end=high,
            place=place,
            word=Word(piece, word.piece.at(match.start(2)), high, "fixed", "$" in match.group(2)),
            owner=owner,
            raw=match.group(2),
            dynamic="$" in match.group(2),
            name_piece=word.piece.slice(match.start(1), match.end(1)),
        )


def env_words(words: Sequence[Word], place: Place, owner: object = None) -> Iterator[EnvVar]:
    """Variables given as words: ``-e NCCL_X=1``, ``env NCCL_X=1``, ``-x NCCL_X=1``, ``echo 'NCCL_X=1'``."""
    for index, word in enumerate(words):
        if word.value.startswith("--export="):
            yield from _exported(word, place, owner)
            continue
        match = _ENV_WORD.match(word.value)
        if not match:
            continue
        value = word.after(match.end())
        start = words[index - 1].start if index and words[index - 1].value in _ENV_OPTIONS else word.start
        yield EnvVar(
            name=match.group(1),
            value=None if word.dynamic else value.value,
            start=word.start,
            end=word.end,
            place=place,
            word=value,
            removable=(start, word.end),
            owner=owner,
            raw=value.value,
            dynamic=word.dynamic,
            name_piece=word.piece.slice(match.start(1), match.end(1)),
        )
