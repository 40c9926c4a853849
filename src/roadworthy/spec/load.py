"""From text to a :class:`Deployment`, with every problem in one pass.

Each problem gives the dotted path of the key, what was seen, what was wanted and, where one is known, the next step.
What only the catalog knows (GPUs, models, engine versions and settings) comes in as a :class:`Vocabulary`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from roadworthy.core.errors import Problem, SpecError
from roadworthy.spec.crosschecks import crosscheck
from roadworthy.spec.fields import Field, ListOf, Section, Settings
from roadworthy.spec.kinds import Kind, WrongValueError, did_you_mean
from roadworthy.spec.schema import DOCUMENT, walk
from roadworthy.spec.values import Deployment, EngineSpec, ModelRef, Scalar
from roadworthy.spec.yaml_text import ListNode, MapNode, Node, ScalarNode, describe, join, read_yaml, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping


class Vocabulary(Protocol):
    """Names beyond the schema. Each method answers the name to use from here on, or raises :class:`WrongValueError`."""

    def gpu(self, name: str) -> str: ...
    def model(self, config: str) -> str: ...
    def version(self, version: str) -> str: ...
    def setting(self, version: str, name: str, value: Scalar) -> Scalar: ...


class AnyName:
    """The vocabulary that takes every name, for checks of form alone."""

    def gpu(self, name: str) -> str:
        return name

    def model(self, config: str) -> str:
        return config

    def version(self, version: str) -> str:
        return version

    def setting(self, version: str, name: str, value: Scalar) -> Scalar:  # noqa: ARG002 the catalog needs all three
        return value


def load_text(text: str, *, source: str, vocabulary: Vocabulary | None = None) -> Deployment:
    """The deployment that ``text`` describes. Raises SpecError with every problem."""
    deployment, problems = check_text(text, source=source, vocabulary=vocabulary)
    if deployment is None:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        raise SpecError(f"{source}: {count}", problems=problems)
    return deployment


def check_text(
    text: str, *, source: str, vocabulary: Vocabulary | None = None
) -> tuple[Deployment | None, tuple[Problem, ...]]:
    """The deployment, or None and every problem found; one of the two is always empty.

    Args:
        source: what the text came from; its stem names a deployment that does not name itself.
    """
    node, problems = read_yaml(text, source=source)
    reader = _Reader(vocabulary or AnyName())
    reader.problems.extend(problems)
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        if not problems:
            reader.note(
                source, "an empty document", "a mapping with at least model",
                "start with model: {config: tiny}; `roadworthy spec schema` tells what else there is",
            )  # fmt: skip
        return None, tuple(reader.problems)
    values = reader.section(DOCUMENT, node, "", extra={"name": _stem(source)})
    if values is None or reader.problems:
        reader.problems.extend(crosscheck(reader.partial))
        return None, tuple(dict.fromkeys(reader.problems))
    crossed = crosscheck(reader.partial)
    if crossed:
        return None, crossed
    deployment: Deployment = values
    return replace(deployment, digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()), ()


def _stem(source: str) -> str:
    stem = PurePath(source).stem.strip()
    return stem if stem and stem not in {"-", "<stdin>"} else "roadworthy"


@dataclass(frozen=True, slots=True)
class _Missing:
    """Stands for a value that had a problem, so that its section is still read to the end."""


_BAD = _Missing()


class _Reader:
    """Walks the tree beside the schema and gathers problems; ``partial`` maps paths to the values that were right."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.problems: list[Problem] = []
        self.partial: dict[str, Any] = {}
        self._vocabulary = vocabulary

    def note(self, path: str, seen: str, wanted: str, hint: str = "") -> None:
        self.problems.append(Problem(path=path, seen=seen, wanted=wanted, hint=hint))

    def section(self, section: Section, node: Node, path: str, extra: Mapping[str, Any] | None = None) -> Any:
        """The section's value, or None when it had a problem."""
        if not isinstance(node, MapNode):
            self.note(
                path or "document",
                describe(node),
                f"a mapping of {_some(section.keys)}",
                _shape_hint(section, node, path),
            )
            return None
        before = len(self.problems)
        self._unknown_keys(section, node, path)
        values: dict[str, Any] = dict(extra or {})
        for field in section.fields:
            place = join(path, field.key)
            child = node.entries.get(field.key)
            if child is None or (isinstance(child, ScalarNode) and child.value is None):
                if section.required(field):
                    self.note(place, "nothing", _wanted(field), f"for example {field.key}: {_example(field)}")
                continue
            value = self._value(field, child, place)
            if value is not _BAD:
                values[field.attribute or field.key] = value
                self.partial[place] = value
        settings = node.entries.get("settings")
        if section.cls is EngineSpec and isinstance(settings, MapNode) and "settings" in values:
            values["settings"] = self._known_settings(values, settings, path)
        if len(self.problems) > before:
            return None
        try:
            return section.build(values) if section.build else section.cls(**values)
        except ValueError as error:  # what __post_init__ refuses, such as quantiles that fall
            wanted, _, _ = str(error).partition(":")
            self.note(path, _entries(node), wanted, "from least to most, such as {p50: 512, p90: 1024, p99: 2048}")
            return None

    def _unknown_keys(self, section: Section, node: MapNode, path: str) -> None:
        for key in node.entries:
            if section.field(key) is not None:
                continue
            place = join(path, key)
            hint = _elsewhere(key) or did_you_mean(key, section.keys) or f"keys here: {', '.join(section.keys)}"
            self.note(place, f"an unknown key on line {node.lines[key]}", f"one of {_some(section.keys)}", hint)

    def _value(self, field: Field, node: Node, path: str) -> Any:
        match field.value:
            case Section():
                value = self.section(field.value, node, path)
                return _BAD if value is None else value
            case ListOf():
                return self._list(field.value, node, path)
            case Settings():
                return self._settings(field.value, node, path)
            case Kind():
                return self._scalar(field.value, node, path, known=field.known, secret=field.secret)

    def _list(self, wanted: ListOf, node: Node, path: str) -> Any:
        if not isinstance(node, ListNode):
            hint = "begin each with a dash" if isinstance(node, MapNode) else "a list of one is written [value]"
            self.note(path, describe(node), "a list", hint)
            return _BAD
        if len(node.items) > wanted.most:
            self.note(path, f"{len(node.items):,} entries", f"at most {wanted.most:,}")
            return _BAD
        values = []
        for index, item in enumerate(node.items):
            place = f"{path}[{index}]"
            if isinstance(wanted.item, Section):
                value = self.section(wanted.item, item, place)
                values.append(_BAD if value is None else value)
            else:
                values.append(self._scalar(wanted.item, item, place))
        return _BAD if any(value is _BAD for value in values) else tuple(values)

    def _scalar(self, kind: Kind, node: Node, path: str, *, known: str | None = None, secret: bool = False) -> Any:
        seen = describe(node)
        if not isinstance(node, ScalarNode):
            self.note(path, seen, kind.name, f"for example {kind.example}")
            return _BAD
        seen = re.sub(r"//[^/@\s]+@", "//…@", seen)  # a password has no place in a message
        trap = node.trap
        if secret:
            trap = trap and "quote it"  # the usual words repeat what was written
            seen = f"a value of {len(node.text)} characters, not shown"
        try:
            value = kind.read(node)
            if node.trap and not kind.same_in_yaml_11:
                self.note(path, seen, kind.name, trap)
                return _BAD
            return getattr(self._vocabulary, known)(value) if known else value
        except WrongValueError as wrong:
            self.note(path, seen, wrong.wanted, trap or wrong.hint)
            return _BAD

    def _settings(self, wanted: Settings, node: Node, path: str) -> Any:
        if not isinstance(node, MapNode):
            self.note(path, describe(node), "a mapping of engine settings", "for example settings: {max_num_seqs: 64}")
            return _BAD
        if len(node.entries) > wanted.most:
            self.note(path, f"{len(node.entries)} settings", f"at most {wanted.most}")
            return _BAD
        settings: dict[str, Scalar] = {}
        for name, child in node.entries.items():
            place = join(path, name)
            if not isinstance(child, ScalarNode):
                self.note(
                    place,
                    describe(child),
                    "one value",
                    f"""write JSON as text in quotes, such as {name}: '{{"a": 1}}'""",
                )
            elif child.trap:
                self.note(place, describe(child), "a value that reads the same everywhere", child.trap)
            elif isinstance(child.value, float) and child.value - child.value != 0:
                self.note(place, describe(child), "a finite number")
            else:
                settings[name] = child.value
        return MappingProxyType(settings)

    def _known_settings(self, values: Mapping[str, Any], node: MapNode, path: str) -> Mapping[str, Scalar]:
        """The settings as the catalog spells them; each that the version does not have is a problem."""
        version = values.get("version", EngineSpec.__dataclass_fields__["version"].default)
        settings: dict[str, Scalar] = {}
        for name, value in values["settings"].items():
            try:
                settings[name] = self._vocabulary.setting(version, name, value)
            except WrongValueError as wrong:
                self.note(join(f"{path}.settings", name), describe(node.entries[name]), wrong.wanted, wrong.hint)
        return MappingProxyType(settings)


def _entries(node: MapNode) -> str:
    return ", ".join(f"{key} {describe(child)}" for key, child in list(node.entries.items())[:4])


def _some(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) if len(keys) <= 6 else f"{', '.join(keys[:5])}, …"


def _wanted(field: Field) -> str:
    match field.value:
        case Kind():
            return field.value.name
        case ListOf():
            return "a list"
        case Settings():
            return "a mapping"
        case Section():
            return f"a mapping of {_some(field.value.keys)}"


def _example(field: Field) -> str:
    match field.value:
        case Kind():
            return field.value.example
        case Section():
            first = field.value.fields[0]
            return "{" + f"{first.key}: {_example(first)}" + "}"
        case ListOf() | Settings():
            return "[]"


def _shape_hint(section: Section, node: Node, path: str) -> str:
    first = section.fields[0] if path else section.field("model") or section.fields[0]
    given = shorten(node.text) if isinstance(node, ScalarNode) and section.cls is ModelRef else ""
    return f"for example {{{first.key}: {given or _example(first)}}}"


def _elsewhere(key: str) -> str:
    """Where a key lives when it is known in another section only."""
    places = [place for place, _, field in walk() if field.key == key]
    return f"it belongs at {places[0]}" if len(places) == 1 and "[]" not in places[0] else ""
