"""A deployment written back as a document, from the same tree that reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roadworthy.spec.fields import Field, ListOf, Section, Settings
from roadworthy.spec.kinds import Goodput, Kind
from roadworthy.spec.schema import DOCUMENT
from roadworthy.spec.values import Deployment, Sla


def document_text(deployment: Deployment) -> str:
    """JSON, which is YAML too, of everything that is set."""
    return json.dumps(_section(DOCUMENT, deployment), indent=1)


def _section(section: Section, value: Any) -> dict[str, Any]:
    written = {}
    for field in section.fields:
        held = _held(field, value)
        if held is not None:
            written[field.key] = _value(field, held)
    return written


def _held(field: Field, value: Any) -> Any:
    if field.attribute is not None:
        return getattr(value, field.attribute)
    assert isinstance(value, Sla)
    if value.goodput_per_s is None and value.goodput_ratio is None:
        return None
    return Goodput(per_s=value.goodput_per_s, ratio=value.goodput_ratio)


def _value(field: Field, value: Any) -> Any:
    match field.value:
        case Kind():
            return field.value.write(value)
        case Section():
            return _section(field.value, value)
        case ListOf(item=item):
            return [_section(item, one) if isinstance(item, Section) else item.write(one) for one in value]
        case Settings():
            assert isinstance(value, Mapping)
            return dict(value)
