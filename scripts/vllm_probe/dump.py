"""Print what vLLM's own parser and environment list hold, as one JSON document: dump.py [UNPACKED_WHEEL]

Runs under a Python that has vLLM's requirements. A kind is found by giving the parser's own conversion some texts and
looking at what it makes of them, so that a new wrapper around ``int`` in a later release is still an integer.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import enum
import inspect
import io
import json
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import serve_parser
import stand_in_gpu

UNSET = object()


def flags(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """Every flag by its first long spelling."""
    spellings: dict[int, list[str]] = {}
    for spelling, action in parser._option_string_actions.items():
        spellings.setdefault(id(action), []).append(spelling)
    deprecated = getattr(parser, "_deprecated", set())
    found = {}
    for action in parser._actions:
        if not action.option_strings or isinstance(action, argparse._HelpAction):
            continue
        name = next((one for one in action.option_strings if one.startswith("--")), action.option_strings[0])
        found[name] = flag(action, tuple(spellings[id(action)]), deprecated=action in deprecated)
    return dict(sorted(found.items()))


def flag(action: argparse.Action, spellings: tuple[str, ...], *, deprecated: bool) -> dict[str, Any]:
    negative = getattr(action, "negative_option_strings", None)
    if negative is None and isinstance(action, argparse.BooleanOptionalAction):
        negative = {one for one in spellings if one.startswith("--no-")}
    negative = sorted(negative or ())
    entry: dict[str, Any] = {
        "dest": action.dest,
        "spellings": sorted((one for one in spellings if one not in negative), key=lambda one: (-len(one), one)),
        "kind": kind(action),
    }
    if negative:
        entry["negative"] = negative
    if action.nargs is not None and action.nargs != 0:
        entry["nargs"] = action.nargs
    if isinstance(action, argparse._AppendAction):
        entry["repeated"] = True
    choices = [str(one) for one in action.choices or () if one is not None] or metavar_choices(action)
    if choices:
        entry["choices"] = sorted(choices)
        entry["open_choices"] = action.choices is None
    if entry["kind"] == "integer":
        entry |= {"suffixes": True} if converts(action.type, "1k") == 1000 else {}
        entry |= {"words": ["auto"]} if isinstance(converts(action.type, "auto"), int) else {}
    entry |= json_parts(action) if entry["kind"] == "json" else {}
    default = plain(action.default)
    if default is not UNSET:
        entry["default"] = default
    if deprecated or "Deprecated" in type(action).__name__ or announced_deprecated(spellings):
        entry["deprecated"] = True
    return entry


def announced_deprecated(spellings: tuple[str, ...]) -> bool:
    """Whether one of vLLM's own deprecation messages begins with the flag."""
    import vllm.engine.arg_utils as arg_utils

    messages = [str(value) for name, value in vars(arg_utils).items() if name.endswith("_DEPRECATION_MESSAGE")]
    named = {name for message in messages for name in re.findall(r"--[a-z][a-z-]+", message.split(" deprecated")[0])}
    return not named.isdisjoint(spellings)


def metavar_choices(action: argparse.Action) -> list[str]:
    """vLLM shows known values of an open setting as the metavar."""
    shown = action.metavar
    return [str(one) for one in shown if one is not None] if isinstance(shown, list) else []


def kind(action: argparse.Action) -> str:
    if isinstance(action, (argparse.BooleanOptionalAction, argparse._StoreTrueAction, argparse._StoreFalseAction)):
        return "switch"
    if action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 1):
        return "list"
    if action.choices and all(isinstance(one, (str, type(None))) for one in action.choices):
        return "text"
    return scalar_kind(action.type)


def scalar_kind(convert: Any) -> str:
    """integer, number, json or text, by what ``convert`` makes of samples."""
    if convert is None or convert is str:
        return "text"
    if isinstance(converts(convert, "7"), int) and converts(convert, "7") is not True:
        return "integer" if converts(convert, "0.5") is UNSET else "json"
    if isinstance(converts(convert, "0.5"), float):
        return "number"
    if isinstance(converts(convert, "a,b"), list):
        return "text"  # values with commas between them, one argument to the shell
    made = [converts(convert, sample) for sample in ("{}", '{"a": 1}', "[]", '["a"]')]
    if any(isinstance(one, (dict, list)) or dataclasses.is_dataclass(one) for one in made) or dataclass_of(convert):
        return "json"
    return "text"


def converts(convert: Callable[[str], Any], sample: str) -> Any:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
        return convert(sample)
    return UNSET


def dataclass_of(convert: Any) -> type | None:
    """The dataclass that a conversion builds: its default argument, or inside the function that it wraps."""
    if not isinstance(convert, types.FunctionType):
        return None
    for held in (*(convert.__defaults__ or ()), *(cell.cell_contents for cell in convert.__closure__ or ())):
        if isinstance(held, type) and dataclasses.is_dataclass(held):
            return held
        inner = dataclass_of(held)
        if inner:
            return inner
    return None


def json_parts(action: argparse.Action) -> dict[str, Any]:
    """Keys of a JSON flag; ``open_keys`` where other keys pass the parser as well."""
    import vllm.config

    built = dataclass_of(action.type)
    named = getattr(vllm.config, "".join(part.capitalize() for part in action.dest.split("_")), None)
    described = built or (named if isinstance(named, type) and dataclasses.is_dataclass(named) else None)
    parts: dict[str, Any] = {}
    if isinstance(converts(action.type, "abc"), str):
        parts["text_too"] = True
    if described is None:
        return parts | {"open_keys": True}
    return parts | {"keys": keys(described, ()), "open_keys": is_open(described)}


def is_open(cls: type) -> bool:
    config = getattr(cls, "__pydantic_config__", None) or {}
    return config.get("extra", "ignore") != "forbid"


def keys(cls: type, above: tuple[type, ...]) -> dict[str, Any]:
    """Fields that a caller may give, with kind and choices, nested configurations below ``keys``."""
    hints = type_hints(cls)
    found = {}
    for field in dataclasses.fields(cls):
        if not field.init or field.name.startswith("_"):
            continue
        entry: dict[str, Any] = of_hint(hints.get(field.name, Any), (*above, cls))
        default = plain(default_of(field))
        if default is not UNSET:
            entry["default"] = default
        found[field.name] = entry
    return dict(sorted(found.items()))


def type_hints(cls: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:  # a name that exists for type checkers only
        return {field.name: field.type for field in dataclasses.fields(cls)}


def default_of(field: Any) -> Any:
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        with contextlib.suppress(Exception):
            value = field.default_factory()
    if type(value).__name__ == "FieldInfo":
        value = value.default if value.default_factory is None else UNSET
    return UNSET if value is dataclasses.MISSING or type(value).__name__ == "PydanticUndefinedType" else value


def of_hint(hint: Any, above: tuple[type, ...]) -> dict[str, Any]:
    options = [one for one in union(hint) if one is not type(None)]
    choices = [
        str(value) for one in options if typing.get_origin(one) is typing.Literal for value in typing.get_args(one)
    ]
    entry: dict[str, Any] = {"kind": hint_kind(options)}
    nested = next((one for one in options if isinstance(one, type) and dataclasses.is_dataclass(one)), None)
    if choices:
        entry["choices"] = sorted(dict.fromkeys(choices))
        entry["open_choices"] = any(typing.get_origin(one) is not typing.Literal for one in options)
    if nested is not None and nested not in above:
        entry |= {"kind": "json", "keys": keys(nested, above), "open_keys": is_open(nested)}
    return entry


def union(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is typing.Annotated:
        return union(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [one for part in typing.get_args(hint) for one in union(part)]
    return [hint]


def hint_kind(options: list[Any]) -> str:
    bare = {typing.get_origin(one) or one for one in options}
    if typing.Literal in bare:
        bare = (bare - {typing.Literal}) | {
            type(v) for o in options if typing.get_origin(o) is typing.Literal for v in typing.get_args(o)
        }
    if bare == {bool}:
        return "switch"
    if str in bare or any(isinstance(one, type) and issubclass(one, enum.Enum) for one in bare):
        return "text"
    for wanted, name in (
        (float, "number"),
        (int, "integer"),
        (bool, "switch"),
        (dict, "json"),
        (list, "list"),
        (tuple, "list"),
        (set, "list"),
    ):
        if wanted in bare:
            return name
    return "json" if any(dataclasses.is_dataclass(one) for one in bare) else "any"


def plain(value: Any) -> Any:
    """``value`` as JSON, or UNSET for what has no such form (objects, classes, paths of this machine)."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (tuple, list)):
        items = [plain(one) for one in value]
        return UNSET if UNSET in items else items
    if isinstance(value, (set, frozenset)):
        items = [plain(one) for one in value]
        return UNSET if UNSET in items else sorted(items)
    if isinstance(value, dict):
        made = {str(key): plain(one) for key, one in value.items()}
        return UNSET if UNSET in made.values() else made
    if isinstance(value, str) and (str(Path.home()) in value or value.startswith("/tmp/")):
        return UNSET
    return value if isinstance(value, (str, int, float, bool, type(None))) else UNSET


def environment() -> dict[str, dict[str, Any]]:
    """Every variable of vLLM's list, with its type as annotated, the choices and the default."""
    import vllm.envs as envs

    annotated = annotations(Path(inspect.getfile(envs)))
    found = {}
    for name, read in sorted(envs.environment_variables.items()):
        entry: dict[str, Any] = {"type": annotated.get(name, "")}
        choices = choices_of(read)
        if choices:
            entry["choices"] = choices
        with contextlib.suppress(Exception):
            default = plain(read())
            os.environ.pop(name, None)  # a few readers set what they made up
            if default is not UNSET and default == plain(read()):
                entry["default"] = default
        found[name] = entry
    for name in read_elsewhere(Path(inspect.getfile(envs)).parent) - set(found):
        found[name] = {"type": "", "unlisted": True}
    return found


def read_elsewhere(package: Path) -> set[str]:
    """Variables that some module looks up by itself; vLLM's own check of the environment calls them unknown."""
    lookup = re.compile(r"""(?:environ(?:\.get)?|getenv)[\[(]\s*["'](VLLM_[A-Z0-9_]+)["']""")
    return {name for path in package.rglob("*.py") for name in lookup.findall(path.read_text(encoding="utf-8"))}


def annotations(source: Path) -> dict[str, str]:
    """Type of each variable as the block for type checkers says it."""
    found = {}
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            found.setdefault(node.target.id, ast.unparse(node.annotation))
    return found


def choices_of(read: Callable[[], Any]) -> list[str]:
    held = dict(zip(read.__code__.co_freevars, (cell.cell_contents for cell in read.__closure__ or ()), strict=True))
    choices = held.get("choices")
    if callable(choices):
        choices = converts(lambda _: choices(), "")
    return sorted(str(one) for one in choices) if isinstance(choices, (list, tuple, set)) else []


def main() -> None:
    for name in [name for name in os.environ if name.startswith(("VLLM_", "CUDA_", "NCCL_", "XDG_", "LD_"))]:
        del os.environ[name]
    stand_in_gpu.install(wheel=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    stdout, sys.stdout = sys.stdout, sys.stderr  # vLLM prints
    _, parser, _ = serve_parser.build()
    import vllm

    document = {
        "engine": "vllm",
        "version": vllm.__version__.split("+")[0],
        "flags": flags(parser),
        "environment": environment(),
    }
    json.dump(document, stdout)


if __name__ == "__main__":
    main()
