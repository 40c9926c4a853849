"""What a key of the document is made of: the parts that ``schema`` builds its tree from."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.spec.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

Known = Literal["gpu", "model", "version"]
"""Names that only the catalog can judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key.

    Args:
        key: as written in the document.
        attribute: of the section's dataclass; None where the value becomes several (``goodput``).
        value: a scalar kind, a section, a list of either, or ``Settings``.
        doc: what it is and what happens when it is left out.
        known: set when the catalog has the last word on the value.
        preset: what stands in for a default that is not the dataclass's own.
        secret: its value never appears in a message.
    """

    key: str
    attribute: str | None
    value: Kind | Section | ListOf | Settings
    doc: str
    known: Known | None = None
    preset: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping with known keys that becomes one dataclass."""

    cls: type[Any]
    doc: str
    fields: tuple[Field, ...]
    build: Callable[[dict[str, Any]], Any] | None = None

    def field(self, key: str) -> Field | None:
        return next((field for field in self.fields if field.key == key), None)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(field.key for field in self.fields)

    def required(self, field: Field) -> bool:
        return field.attribute is not None and field.attribute in _required(self.cls) and not field.preset

    def default(self, field: Field) -> Any:
        """The dataclass's default of ``field``; None for a key that has none."""
        if field.attribute is None:
            return None
        spec = next(one for one in fields(self.cls) if one.name == field.attribute)
        if spec.default is not MISSING:
            return spec.default
        return spec.default_factory() if spec.default_factory is not MISSING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list, kept as a tuple."""

    item: Kind | Section
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Engine settings: names and scalars kept as given; the catalog knows which exist."""

    most: int = 200


def _required(cls: type[Any]) -> set[str]:
    return {one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING}


def written_default(section: Section, field: Field) -> str | int | float | bool | None:
    """The default as a document would say it; None when leaving the key out is the only way to say it."""
    default = section.default(field)
    return (
        field.value.write(default)
        if isinstance(field.value, Kind) and default is not None and not field.preset
        else None
    )
