"""Several workers' status and metrics as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ADDED = ("client_connections", "in_flight", "requests", "stream_events_per_s", "output_tokens_per_s")
_ENDPOINT_ADDED = ("in_flight", "dispatched_total")


def merged_status(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums of what each worker counts; of what an engine says of itself the word of the worker that asked last.

    An engine is healthy if it is for any worker. ``statuses`` must not be empty.
    """
    first = statuses[0]
    return {
        **first,
        **{name: sum(one[name] for one in statuses) for name in _ADDED},
        "ready": any(one["ready"] for one in statuses),
        "draining": all(one["draining"] for one in statuses),
        "uptime_s": max(one["uptime_s"] for one in statuses),
        "endpoints": [_endpoint(of_url) for of_url in _grouped(statuses, "endpoints", "url")],
        "tenants": [_tenant(of_id) for of_id in _grouped(statuses, "tenants", "id")],
    }


def _grouped(statuses: Sequence[Mapping[str, Any]], name: str, key: str) -> Iterable[list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for status in statuses:
        for one in status[name]:
            groups.setdefault(one[key], []).append(one)
    return groups.values()


def _endpoint(views: list[Mapping[str, Any]]) -> dict[str, Any]:
    latest = min(views, key=lambda one: float("inf") if one["checked_s_ago"] is None else one["checked_s_ago"])
    return {
        **latest,
        **{name: sum(one[name] for one in views) for name in _ENDPOINT_ADDED},
        "healthy": any(one["healthy"] for one in views),
        "draining": all(one["draining"] for one in views),
    }


def _tenant(views: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value if name == "id" else sum(one[name] for one in views) for name, value in views[0].items()}


def merged_metrics(texts: Iterable[str]) -> bytes:
    """One exposition of several: each family's head once, all its samples behind it. Samples must differ by label."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                if family not in heads:
                    heads[family], samples[family] = [line], []
            elif line.startswith("# TYPE "):
                if len(heads[family]) == 1:
                    heads[family].append(line)
            elif line:
                samples[family].append(line)
    return "".join("\n".join([*heads[family], *samples[family]]) + "\n" for family in heads).encode()
