"""Laws of rendered YAML and JSON: any data reads back as itself, and no text of a document becomes structure."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.render.commented_yaml import Node, Said, Text, plain, yaml_text
from roadworthy.render.names import object_name
from roadworthy.spec.values import Tenant
from support.rendering import LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

TARGETS = ("lws", "kuberay", "check", "gateway-api", "envoy", "prometheus", "grafana")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NASTY = st.sampled_from(
    [
        "a\nkind: Secret", 'q"uote', "it's", "a: b", "- x", "#c", "{{ $labels.x }}", "$(reboot)", "`id`",
        "${HOME}", "$$(A)", "*alias", "&anchor", "!tag", "| block", "\u2028x: y", "\x85y: z", "%YAML 1.1",
        "---\nx: 1", "yes", "1e3", "~", "é日本", "a'; rm -rf / #", "tab\tx", "trailing ", "PYTHON\nx",
        "</script>", "a\\", "--help", "\U0001f600",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    NASTY,
)


def nodes() -> st.SearchStrategy[Node]:
    return st.recursive(
        st.one_of(SCALARS, st.builds(Text, text=TEXT)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(TEXT | NASTY, inner, max_size=4),
            st.builds(Said, value=inner, why=TEXT | NASTY),
        ),
        max_leaves=12,
    )


@given(nodes(), TEXT)
def test_any_tree_reads_back_as_its_data(tree: Node, header: str) -> None:
    assert yaml.safe_load(yaml_text({"top": tree}, header=header)) == {"top": plain(tree)}


@given(TEXT | NASTY)
def test_object_names_are_ones_that_kubernetes_takes(text: str) -> None:
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", object_name(text))
    assert len(object_name(text)) <= 40


@given(st.text("abcdefghijklmnop-", min_size=60, max_size=90), st.text("abcdefghijklmnop-", min_size=60, max_size=90))
def test_long_names_that_differ_stay_different(one: str, other: str) -> None:
    if one.strip("-") != other.strip("-"):
        assert (object_name(one) == object_name(other)) == (one == other)


@lru_cache(maxsize=4)
def benign(document: str) -> RenderInput:
    return render_input(document)


def hostile(inputs: RenderInput, text: str) -> RenderInput:
    """The same deployment with ``text`` in every place that takes words of an operator's own."""
    deployment = inputs.deployment
    return replace(
        inputs,
        deployment=replace(
            deployment,
            name=text,
            model=replace(deployment.model, served_name=text),
            tenants=(Tenant(id=text, key="sk-not-to-be-seen", models=(text,), fallback=text),),
        ),
    )


def shape(value: Any) -> Any:
    """Keys and kinds without the texts; how many words a list of words has is no structure."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return "words"
        return [shape(item) for item in value]
    return type(value).__name__


def read(path: str, text: str) -> list[Any]:
    if path.endswith(".json"):
        return [json.loads(text)]
    return list(yaml.load_all(text, LOADER)) if path.endswith((".yaml", ".yml")) else []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("document", [V4_ON_32_H100, LLAMA_ON_8_H100], ids=["v4", "llama"])
@given(text=NASTY | TEXT.filter(bool))
@settings(max_examples=12)
def test_no_name_of_a_document_changes_the_shape_of_a_file(target: str, document: str, text: str) -> None:
    inputs = benign(document)
    harmless = rendered(target, hostile(inputs, "harmless"))
    files = rendered(target, hostile(inputs, text))
    assert files.keys() == harmless.keys()
    for path, artifact in files.items():
        assert shape(read(path, artifact.text)) == shape(read(path, harmless[path].text)), path
        assert "sk-not-to-be-seen" not in artifact.text


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_document_gives_the_same_bytes(target: str) -> None:
    render_once, render_again = (rendered(target, render_input(V4_ON_32_H100)) for _ in range(2))
    assert render_once == render_again
