"""A deployment written back as plain data, by the same tree that reads it: for documents that a target hands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roadworthy.spec.fields import Field, ListOf, Section, Settings
from roadworthy.spec.kinds import Goodput, Kind
from roadworthy.spec.schema import DOCUMENT
from roadworthy.spec.values import Deployment, Sla


def document_tree(deployment: Deployment) -> dict[str, Any]:
    """What ``deployment`` says beyond the defaults, keys in the order of the reference. Secrets are left out."""
    return _section(DOCUMENT, deployment)


def _section(section: Section, value: Any) -> dict[str, Any]:
    written = {}
    for field in section.fields:
        if field.secret:
            continue
        held = _held(field, value)
        if held is None or held in ((), {}) or (held == section.default(field) and not section.required(field)):
            continue
        written[field.key] = _value(field, held)
    return written


def _held(field: Field, value: Any) -> Any:
    if field.attribute is not None:
        return getattr(value, field.attribute)
    if isinstance(value, Sla) and (value.goodput_per_s is not None or value.goodput_ratio is not None):
        return Goodput(per_s=value.goodput_per_s, ratio=value.goodput_ratio)
    return None


def _value(field: Field, value: Any) -> Any:
    match field.value:
        case Kind():
            return field.value.write(value)
        case Section():
            return _section(field.value, value)
        case ListOf(item=item):
            return [_section(item, one) if isinstance(item, Section) else item.write(one) for one in value]
        case Settings():
            return dict(value) if isinstance(value, Mapping) else {}
