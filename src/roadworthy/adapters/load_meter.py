"""Watches the load generator itself: its CPU, its progress, and whoever wants it to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import Callable, Iterator

from roadworthy.bench.driver import Progress

WATCH_EVERY_S = 0.5
CPU_WINDOW_S = 5.0
CLOCK_JUMP_S = 1.0

Watcher = Callable[[Progress, float], None]


class CpuMeter:
    """CPU time of this process in stretches; the mean over a whole run would hide the busy part behind the drain."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self._cpu_s = time.process_time()
        self.busiest_ratio = 0.0

    def sample(self) -> None:
        now_s, cpu_s = time.monotonic(), time.process_time()
        if now_s - self.since_s >= 0.5 or self.busiest_ratio == 0.0:
            self.busiest_ratio = max(self.busiest_ratio, (cpu_s - self._cpu_s) / max(now_s - self.since_s, 1e-3))
        self.since_s, self._cpu_s = now_s, cpu_s


class ClockMeter:
    """How far the clock of the wall was set while the run went on by the clock that only rises.

    No latency is affected, but the times of logs on other hosts no longer match this run's.
    """

    def __init__(self) -> None:
        self._apart_s = time.time() - time.monotonic()

    def jump_s(self) -> float:
        """Seconds that the wall clock gained; 0 within ``CLOCK_JUMP_S``, as clocks that are disciplined drift."""
        gained_s = time.time() - time.monotonic() - self._apart_s
        return gained_s if abs(gained_s) > CLOCK_JUMP_S else 0.0


async def watch_run(progress: Progress, cpu: CpuMeter, watch: Watcher | None) -> None:
    """Sample the CPU and tell ``watch``, until cancelled."""
    start_s = time.monotonic()
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        if time.monotonic() - cpu.since_s >= CPU_WINDOW_S:
            cpu.sample()
        if watch is not None:
            watch(progress, time.monotonic() - start_s)


@contextlib.contextmanager
def no_pauses() -> Iterator[None]:
    """Keep the garbage collector from walking everything alive in the middle of a load, which takes tens of
    milliseconds: what is alive now is left alone, and the rest is looked at rarely."""
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """The first Ctrl-C, or a terminal that closes, ends the load; a second one, or any where handlers cannot be set,
    interrupts as usual."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        numbers.append(signal.SIGHUP)

    def ended() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    try:
        for number in numbers:
            loop.add_signal_handler(number, ended)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or not POSIX
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
