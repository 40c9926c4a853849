"""What must hold between keys. Works on whatever could be read, so that a typo elsewhere does not hide a clash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Problem
from roadworthy.spec.cost_checks import cost_problems
from roadworthy.spec.governance_checks import governance_problems
from roadworthy.spec.routing_checks import routing_problems
from roadworthy.spec.values import default_served_name
from roadworthy.spec.workload_checks import workload_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def crosscheck(values: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Problems between the values in ``values``, which maps the dotted path of each key that was right to its value."""
    return tuple(
        problem
        for check in (
            _tenants,
            _ports,
            _endpoints,
            _hosts,
            routing_problems,
            governance_problems,
            cost_problems,
            workload_problems,
        )
        for problem in check(values)
    )


def _tenants(values: Mapping[str, Any]) -> Iterator[Problem]:
    ids: dict[str, str] = {}
    keys: dict[str, str] = {}
    served = values.get("model.served_name") or default_served_name(values.get("model.config", ""))
    for index in _indices(values, "tenants"):
        path = f"tenants[{index}]"
        own = {key: values.get(f"{path}.{key}") for key in ("id", "key", "key_env", "models", "fallback")}
        if own["id"] is not None:
            if own["id"] in ids:
                yield Problem(
                    path=f"{path}.id", seen=f"{own['id']}, as in {ids[own['id']]}", wanted="an id of its own",
                    hint="give each tenant another id",
                )  # fmt: skip
            ids.setdefault(own["id"], path)
        if own["key"] is not None and own["key_env"] is not None:
            yield Problem(
                path=path, seen="both key and key_env", wanted="one of the two",
                hint="keep key_env, which keeps the key out of the file",
            )  # fmt: skip
        for kind in ("key", "key_env"):
            held = own[kind]
            if held is None:
                continue
            name = f"{kind} {held}"
            if name in keys:
                shown = "the same key" if kind == "key" else f"{held}"
                yield Problem(
                    path=f"{path}.{kind}", seen=f"{shown} as {keys[name]}", wanted="a key of its own",
                    hint="the key alone tells tenants apart",
                )  # fmt: skip
            keys.setdefault(name, path)
        yield from _models(path, own["models"] or (), own["fallback"], served)


def _models(path: str, models: tuple[str, ...], fallback: str | None, served: str) -> Iterator[Problem]:
    if len(set(models)) != len(models):
        twice = next(model for model in models if models.count(model) > 1)
        yield Problem(path=f"{path}.models", seen=f"{twice} twice", wanted="each model once")
    if fallback is not None and fallback in (models or (served,)):
        yield Problem(
            path=f"{path}.fallback",
            seen=f"{fallback}, which the tenant asks for itself",
            wanted="another model",
            hint="name the model that stands in, or leave fallback out",
        )


def _ports(values: Mapping[str, Any]) -> Iterator[Problem]:
    port, admin = values.get("gateway.port", 0), values.get("gateway.admin_port", 0)
    if port and port == admin:
        yield Problem(
            path="gateway.admin_port", seen=f"{admin}, which is the data port too", wanted="another port",
            hint=f"{admin + 1 if admin < 65535 else admin - 1}, or 0 for a free one",
        )  # fmt: skip


def _endpoints(values: Mapping[str, Any]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index in _indices(values, "engine.endpoints"):
        url = values.get(f"engine.endpoints[{index}].url")
        if url is None:
            continue
        if url in seen:
            yield Problem(
                path=f"engine.endpoints[{index}].url", seen=f"{url}, as in engine.endpoints[{seen[url]}]",
                wanted="each engine once",
            )  # fmt: skip
        seen.setdefault(url, index)


def _hosts(values: Mapping[str, Any]) -> Iterator[Problem]:
    hosts, nodes = values.get("cluster.hosts"), values.get("cluster.nodes", 1)
    if hosts and len(hosts) != nodes:
        yield Problem(
            path="cluster.hosts", seen=f"{len(hosts)} hosts", wanted=f"{nodes}, as cluster.nodes says",
            hint="name every node once, in order of its rank",
        )  # fmt: skip
    addresses = [host.address for host in hosts or ()]
    if len(set(addresses)) != len(addresses):
        twice = next(address for address in addresses if addresses.count(address) > 1)
        yield Problem(path="cluster.hosts", seen=f"{twice} twice", wanted="an address of its own for each node")
    sockets, gpus = values.get("cluster.gpu_numa_nodes"), values.get("cluster.gpus_per_node", 1)
    if sockets and len(sockets) != gpus:
        yield Problem(
            path="cluster.gpu_numa_nodes", seen=f"{len(sockets)} numbers",
            wanted=f"{gpus}, one for each GPU of a node", hint="`nvidia-smi topo -m` prints them",
        )  # fmt: skip
    if values.get("cluster.roce_dscp") is not None and values.get("cluster.fabric") == "infiniband":
        yield Problem(
            path="cluster.roce_dscp", seen="a DSCP on InfiniBand", wanted="cluster.fabric: ethernet, or no DSCP",
            hint="InfiniBand has service levels and link credits, no DSCP",
        )  # fmt: skip


def _indices(values: Mapping[str, Any], path: str) -> list[int]:
    """Positions in the list at ``path`` for which anything could be read."""
    prefix = f"{path}["
    return sorted({int(place[len(prefix) :].partition("]")[0]) for place in values if place.startswith(prefix)})
