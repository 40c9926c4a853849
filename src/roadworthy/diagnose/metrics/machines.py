"""What exporters count on GPUs (DCGM) and hosts (node exporter, cAdvisor, kube-state-metrics) over time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.diagnose.metrics.series import lasting, middle, overlap
from roadworthy.diagnose.probes.tables import reasons_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.metrics.series import Family, Series
    from roadworthy.diagnose.values import Clue

FELL_TO = 0.8
LASTING_S = 60.0
EVEN_SHARE = 0.8
"""Of GPUs at their power limit together: that is full load and no fault."""

VIOLATION_SHARE = 0.05
BUSY_PERCENT = 30.0
MEMORY_LEAST_SHARE = 0.03
SHM_FULL, DISK_FULL = 0.9, 0.95
DISK_LEFT_BYTES = 20 * 2**30
CLOCK_OFF_S = 1.0
THROTTLED_SHARE = 0.2
REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
VIOLATIONS = {
    "DCGM_FI_DEV_THERMAL_VIOLATION": "sw-thermal", "DCGM_FI_DEV_RELIABILITY_VIOLATION": "hw",
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": "hw-power-brake",
}  # fmt: skip
GREW = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc.uncorrectable",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "ecc.remapped-rows",
}  # fmt: skip
"""Counters that mean what they are called once they grow; those of STANDS whenever they are above zero."""

STANDS = {"DCGM_FI_DEV_ROW_REMAP_FAILURE": "ecc.remap-failed", "DCGM_FI_DEV_ROW_REMAP_PENDING": "ecc.pending"}


def gpu_of(one: Series) -> tuple[str, ...]:
    """Which GPU a series is of."""
    return (one.host or "", one.label("gpu", "device", "minor_number"), one.label("UUID", "uuid"))


def _name(one: Series) -> str:
    return one.label("gpu") or one.label("device")


def clocks(family: Family) -> Iterator[Clue]:
    """``clocks.REASON`` and ``clocks.fell`` of a GPU at work; all at their power limit is ``.power-capped-evenly``."""
    speed, reasons = family.by(gpu_of, "DCGM_FI_DEV_SM_CLOCK"), family.by(gpu_of, *REASONS)
    busy = family.by(gpu_of, "DCGM_FI_DEV_GPU_UTIL")
    capped: list[Clue] = []
    for key, some in reasons.items():
        reason, clock = some[0], speed[key][0] if key in speed else None
        work = busy[key][0].when(lambda value: value >= BUSY_PERCENT) if key in busy else None
        for name in sorted({name for value in set(reason.values) for name in reasons_of(int(value))} - {"idle"}):
            active = reason.when(lambda value, name=name: name in reasons_of(int(value)))  # type: ignore[misc]
            spans = lasting(active if work is None else overlap(active, work), LASTING_S)
            if not spans:
                continue
            fell = _fell(clock, spans[0]) if clock is not None else None
            if name == "sw-power-cap":
                capped.append(
                    _capped(reason, clock, fell, spans[0][0])
                    if clock is not None and fell is not None
                    else reason.clue("clocks.sw-power-cap", time_s=spans[0][0], gpu=_name(reason), reason="power cap")
                )
                continue
            yield reason.clue(f"clocks.{name}", time_s=spans[0][0], gpu=_name(reason), reason=name.replace("-", " "))
            if clock is not None and fell is not None:
                yield clock.clue(
                    "clocks.fell", reason.quoted(at=(spans[0][0],)), time_s=spans[0][0], mhz=f"{fell[0]:.0f}",
                    high=f"{fell[1]:.0f}", who=f"{key[0]}, GPU {_name(clock)}", power="", limit="",
                )  # fmt: skip
    yield from _together(capped, len(reasons))
    yield from _violations(family)


def _fell(clock: Series, span: tuple[float, float]) -> tuple[float, float] | None:
    """(clock in ``span``, clock otherwise) where it is far below."""
    inside = middle(clock.within(span)) or clock.at(span[0]) or 0.0
    high = clock.peak()[1]
    return (inside, high) if 0 < inside < FELL_TO * high else None


def _capped(reason: Series, clock: Series, fell: tuple[float, float], time_s: float) -> Clue:
    return clock.clue(
        "clocks.power-capped-and-low", reason.quoted(at=(time_s,)), time_s=time_s, mhz=f"{fell[0]:.0f}",
        high=f"{fell[1]:.0f}",
    )  # fmt: skip


def _together(capped: list[Clue], gpus: int) -> Iterator[Clue]:
    low = [one for one in capped if one.name == "clocks.power-capped-and-low"]
    if low and len(low) < EVEN_SHARE * gpus:
        yield from low
    elif capped and len(capped) >= EVEN_SHARE * gpus:
        yield replace(capped[0], name="clocks.power-capped-evenly")


def _violations(family: Family) -> Iterator[Clue]:
    """Time that clocks were held down for a reason, where the exporter gives no mask: nanoseconds of a counter."""
    if family.all(*REASONS):
        return
    for metric, name in VIOLATIONS.items():
        for one in family.all(metric):
            span_s = one.times[-1] - one.times[0]
            held_s = one.increase() / 1e9
            if span_s > 0 and held_s / span_s >= VIOLATION_SHARE:
                yield one.clue(
                    f"clocks.{name}", note=f"{held_s:.0f} s of {span_s:.0f} s", gpu=_name(one),
                    reason=name.replace("-", " "),
                )  # fmt: skip


def gpu_errors(family: Family) -> Iterator[Clue]:
    """``gpu.xid`` that came while it was watched, memory errors, NVLink errors."""
    for one in family.all("DCGM_FI_DEV_XID_ERRORS"):
        for at in range(1, len(one.values)):
            if one.values[at] and one.values[at] != one.values[at - 1]:
                yield one.clue(
                    "gpu.xid", time_s=one.times[at], bus=one.label("pci_bus_id") or _name(one),
                    xid=f"{one.values[at]:.0f}", what="counted by DCGM",
                )  # fmt: skip
    for one in family.all("DCGM_EXP_XID_ERRORS_COUNT"):
        if one.label("xid").isdigit() and len(one.values) > 1 and one.peak()[1] > one.values[0]:
            yield one.clue(
                "gpu.xid", time_s=one.peak()[0], bus=one.label("pci_bus_id") or _name(one), xid=one.label("xid"),
                what="counted by DCGM",
            )  # fmt: skip
    for metric, name in GREW.items():
        for one in family.all(metric):
            if count := one.increase():
                yield one.clue(name, count=f"{count:.0f}", gpu=_name(one), time_s=_first_rise(one))
    for metric, name in STANDS.items():
        for one in family.all(metric):
            if one.last > 0:
                yield one.clue(name, gpu=_name(one), time_s=(_first_rise(one) or one.times[0]))
    yield from _nvlink(family)


def _nvlink(family: Family) -> Iterator[Clue]:
    for metric, some in family:
        if metric.startswith("DCGM_FI_DEV_NVLINK_") and "ERROR_COUNT" in metric:
            for one in some:
                if (count := one.increase()) >= 100:
                    yield one.clue(
                        "nvlink.errors", gpu=_name(one), count=f"{count:.0f}", link="", time_s=_first_rise(one)
                    )


def _first_rise(one: Series) -> float | None:
    return next((one.times[at] for at in range(1, len(one.values)) if one.values[at] > one.values[at - 1]), None)


def memory(family: Family) -> Iterator[Clue]:
    """``kernel.oom-invoked``, ``k8s.oom-killed``, ``host.memory-full``."""
    for one in family.all("node_vmstat_oom_kill"):
        if one.increase():
            yield one.clue("kernel.oom-invoked", time_s=_first_rise(one), process="a process")
    for one in family.all("container_oom_events"):
        if one.increase():
            yield one.clue("k8s.oom-killed", time_s=_first_rise(one), container=one.label("container"))
    restarts = {_container(one): one for one in family.all("kube_pod_container_status_restarts")}
    for one in family.all("kube_pod_container_status_last_terminated_reason"):
        restarted = restarts.get(_container(one))
        if one.label("reason") == "OOMKilled" and one.last and restarted is not None and restarted.increase():
            yield one.clue(
                "k8s.oom-killed", restarted.quoted(), time_s=_first_rise(restarted), container=one.label("container")
            )
    totals = {one.host: one for one in family.all("node_memory_MemTotal_bytes")}
    for one in family.all("node_memory_MemAvailable_bytes"):
        total = totals.get(one.host)
        at, lowest = one.lowest()
        if total is not None and lowest < MEMORY_LEAST_SHARE * total.last:
            yield one.clue(
                "host.memory-full", total.quoted(), time_s=at, available=f"{lowest / 2**30:.1f} GiB",
                total=f"{total.last / 2**30:.0f} GiB",
            )  # fmt: skip


def _container(one: Series) -> tuple[str, str, str]:
    return (one.label("namespace"), one.label("pod"), one.label("container"))


def disks(family: Family) -> Iterator[Clue]:
    """``shm.full`` and ``disk.full`` at the worst moment."""
    sizes = {(one.host, one.label("mountpoint")): one for one in family.all("node_filesystem_size_bytes")}
    for one in family.all("node_filesystem_avail_bytes"):
        mount = one.label("mountpoint")
        size = sizes.get((one.host, mount))
        if size is None or not size.last:
            continue
        at, left = one.lowest()
        used = 1 - left / size.last
        percent = f"{100 * used:.0f}"
        if mount == "/dev/shm" and used >= SHM_FULL:
            yield one.clue("shm.full", size.quoted(), time_s=at, size=f"{size.last / 2**30:.1f} GiB", percent=percent)
        elif mount != "/dev/shm" and used >= DISK_FULL and left < DISK_LEFT_BYTES:
            yield one.clue(
                "disk.full", size.quoted(), time_s=at, mount=mount, percent=percent, available=f"{left / 2**30:.1f} GiB"
            )


def time_kept(family: Family) -> Iterator[Clue]:
    """``clock.offset-large`` and ``clock.unsynchronised``."""
    for one in family.all("node_timex_offset_seconds"):
        worst = max(one.values, key=abs)
        if abs(worst) >= CLOCK_OFF_S:
            yield one.clue("clock.offset-large", seconds=f"{abs(worst):.3g}")
    for one in family.all("node_timex_sync_status"):
        if lasting(one.when(lambda value: value == 0), LASTING_S):
            yield one.clue("clock.unsynchronised")


def processors(family: Family) -> Iterator[Clue]:
    """``cpu.throttled``: share of the scheduler's periods in which the quota ran out, in the worst container."""
    periods = {_container(one): one for one in family.all("container_cpu_cfs_periods")}
    for one in family.all("container_cpu_cfs_throttled_periods"):
        all_of_them = periods.get(_container(one))
        count = all_of_them.increase() if all_of_them is not None else 0.0
        if all_of_them is not None and count > 100 and one.increase() / count > THROTTLED_SHARE:
            yield one.clue("cpu.throttled", all_of_them.quoted(), share=f"{one.increase() / count:.0%}")


READERS = (clocks, gpu_errors, memory, disks, time_kept, processors)
