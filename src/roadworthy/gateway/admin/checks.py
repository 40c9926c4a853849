"""Values held against the JSON Schemas that the API's own description shows: what is shown is what is checked.

It knows the words that the schemas here use and refuses a schema with any other, so that none is shown unchecked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SAID = frozenset({"description", "examples", "default", "title", "format", "readOnly"})
_CHECKED = frozenset(
    {
        "type", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "items",
        "maxItems", "uniqueItems", "properties", "required", "additionalProperties", "minProperties",
    }
)  # fmt: skip
_TYPE_OF = {"string": str, "boolean": bool, "array": list, "object": dict}


class WrongSchemaError(Exception):
    """A schema with a word that is not checked here; a test goes over all of them."""


def problems(schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[dict[str, str]]:
    """What keeps ``value`` from being what ``schema`` describes, each as ``{path, seen, wanted, hint}``."""
    unknown = schema.keys() - _SAID - _CHECKED
    if unknown:
        raise WrongSchemaError(f"{path}: {', '.join(sorted(unknown))}")
    types = schema.get("type", ())
    types = (types,) if isinstance(types, str) else tuple(types)
    if types and not any(_is(one, value) for one in types):
        yield _problem(path, value, " or ".join(_WORDS[one] for one in types))
    elif "enum" in schema and value not in schema["enum"]:
        yield _problem(path, value, "one of " + ", ".join(str(one) for one in schema["enum"]))
    elif isinstance(value, str):
        yield from _text(schema, value, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number(schema, value, path)
    elif isinstance(value, list):
        yield from _list(schema, value, path)
    elif isinstance(value, dict):
        yield from _object(schema, value, path)


_WORDS = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            return isinstance(value, _TYPE_OF[kind])


def _text(schema: Mapping[str, Any], value: str, path: str) -> Iterator[dict[str, str]]:
    try:
        value.encode()
    except UnicodeEncodeError:
        yield _problem(path, value, "text without half a character")
        return
    if len(value) < schema.get("minLength", 0):
        yield _problem(path, value, f"text of {schema['minLength']} or more characters")
    elif len(value) > schema.get("maxLength", len(value)):
        yield _problem(path, value, f"text of at most {schema['maxLength']} characters")
    elif "pattern" in schema and not re.fullmatch(schema["pattern"].removeprefix("^").removesuffix("$"), value):
        yield _problem(path, value, schema.get("title") or f"text like {schema['pattern']}")


def _number(schema: Mapping[str, Any], value: float, path: str) -> Iterator[dict[str, str]]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and not value >= least:
        yield _problem(path, value, f"a number from {least:,} on")
    elif most is not None and not value <= most:
        yield _problem(path, value, f"a number up to {most:,}")


def _list(schema: Mapping[str, Any], value: list[Any], path: str) -> Iterator[dict[str, str]]:
    if len(value) > schema.get("maxItems", len(value)):
        yield _problem(path, value, f"at most {schema['maxItems']} entries")
        return
    for index, item in enumerate(value):
        yield from problems(schema.get("items", {}), item, f"{path}[{index}]")
    if schema.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)):
        yield _problem(path, value, "each entry once")


def _object(schema: Mapping[str, Any], value: dict[str, Any], path: str) -> Iterator[dict[str, str]]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield {"path": _below(path, name), "seen": "nothing", "wanted": "a value", "hint": ""}
    if len(value) < schema.get("minProperties", 0):
        yield {"path": path, "seen": "an empty object", "wanted": f"one of {', '.join(known)}", "hint": ""}
    for name, item in value.items():
        if name in known:
            yield from problems(known[name], item, _below(path, name))
        elif schema.get("additionalProperties", True) is False:
            yield {
                "path": _below(path, name[:100]), "seen": "an unknown field", "wanted": f"one of {', '.join(known)}",
                "hint": "",
            }  # fmt: skip


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _problem(path: str, value: Any, wanted: str) -> dict[str, str]:
    return {"path": path, "seen": _shown(value), "wanted": wanted, "hint": ""}


def _shown(value: Any) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case str() | bool() | int() | float() | None:
            text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
