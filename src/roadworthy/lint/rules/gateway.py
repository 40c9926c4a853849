"""Session affinity in front of engines: nginx, Envoy, Istio, Envoy Gateway."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.yaml_source import Item

_NGINX_HASH = re.compile(r"\bhash\s+\$\w+[^;\n]*(?:consistent)?\s*;")


def check_gateway(judge: Judge) -> None:
    if judge.reading.kind == "nginx":
        for match in judge.found(_NGINX_HASH):
            _nginx(judge, match)
    for document in judge.reading.documents:
        for item in document.walk():
            if item.key is None:
                continue
            if item.key.value == "hash_policy":
                _envoy(judge, document, item)
            elif (
                item.key.value == "consistentHash"
                or (item.key.value == "type" and item.value == "ConsistentHash")
                or item.key.value == "nginx.ingress.kubernetes.io/upstream-hash-by"
            ):
                _unknown(judge, item)


def _nginx(judge: Judge, match: re.Match[str]) -> None:
    begin = judge.code.rfind("upstream", 0, match.start())
    end = judge.code.find("}", match.end())
    servers = re.findall(r"^\s*server\s+\S+", judge.code[begin : end if end >= 0 else None], re.MULTILINE)
    if begin >= 0 and len(servers) > 1:
        return
    judge.report("gw.session-affinity", match.start(), match.group().strip(), reason=_ONE if servers else _MAYBE)


_ONE = "There is one endpoint behind it: `vllm serve` balances among its own engines, and affinity gains nothing."
_MAYBE = "Only useful with more than one independent endpoint; how many there are is not given here, --spec says it."


def _envoy(judge: Judge, document: Item, item: Item) -> None:
    endpoints = sum(
        len(one.items) for one in document.walk() if one.key is not None and one.key.value == "lb_endpoints"
    )
    if endpoints > 1 or _by_name(document):
        return
    if item.key is not None:
        judge.report("gw.session-affinity", item.key.start, "hash_policy", reason=_ONE if endpoints == 1 else _MAYBE)


def _by_name(document: Item) -> bool:
    """Whether hosts come from names or a control plane: then each may stand for several."""
    kinds = ("STRICT_DNS", "EDS", "LOGICAL_DNS")
    return any(one.value in kinds for one in document.walk() if one.key is not None and one.key.value == "type")


def _unknown(judge: Judge, item: Item) -> None:
    endpoints = judge.context.options.endpoints
    if endpoints is not None and endpoints > 1:
        return
    replicas = [
        int(one.value)
        for d in judge.reading.documents
        for one in d.walk()
        if one.key is not None and one.key.value == "replicas" and one.value.isdecimal()
    ]
    if any(count > 1 for count in replicas):
        return
    assert item.key is not None
    judge.report(
        "gw.session-affinity",
        item.key.start,
        f"{item.key.value}: {item.value}".rstrip(": "),
        reason=_ONE if endpoints == 1 else _MAYBE,
    )
