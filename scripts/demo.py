#!/usr/bin/env python3
"""The main job in one command: plan DeepSeek-V4-Pro on 4 x 8 H100, serve its twin, drive load, judge, price, report.

Everything here goes through the same commands and functions that an operator uses. Engines are simulated and labelled
so wherever a number shows. Ends with 0 when everything ran, whatever the verdict: a missed objective shows as missed.

usage: scripts/demo.py [--keep] [--spec FILE] [--out FOLDER] [--live-seconds 20] [--requests 1000]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.engines.commands import make_folder
from roadworthy.adapters.engines.process import die_with_parent
from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.load_run import BenchRequest, run_bench
from roadworthy.adapters.ready_file import Ready, read_ready
from roadworthy.bench.report_html import render_html
from roadworthy.bench.report_text import render_text
from roadworthy.cli.cost_lines import cost_section
from roadworthy.cli.output import print_error
from roadworthy.cli.plan_section import plan_section
from roadworthy.cli.simulate import simulate_planned
from roadworthy.cli.wiring import Planned, load_best
from roadworthy.core.errors import ProbeError, RoadworthyError

if TYPE_CHECKING:
    from roadworthy.bench.sections import Section, TableSection

REPOSITORY = Path(__file__).resolve().parent.parent
START_LIMIT_S = 60


def main() -> int:
    options = parse()
    try:
        run(options)
    except RoadworthyError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        return 130
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plan, serve a twin, drive load, judge, price, report.")
    parser.add_argument("--keep", action="store_true", help="leave the twin and the gateway serving until Ctrl-C")
    parser.add_argument("--spec", default=str(REPOSITORY / "examples" / "deepseek-v4-pro-32xh100.yaml"))
    parser.add_argument("--out", type=Path, default=Path("build") / "demo")
    parser.add_argument("--live-seconds", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=1000, help="of the virtual-time run; a P99 wants 1,000")
    options = parser.parse_args()
    if not 1 <= options.live_seconds <= 3600 or options.requests < 1:
        parser.error("--live-seconds runs from 1 to 3600 and --requests from 1")
    return options


def run(options: argparse.Namespace) -> None:
    planned = load_best(options.spec)
    name = planned.deployment.name
    step(1, f"plan {name}")
    subprocess.run(roadworthy("plan", options.spec), check=False)
    with serving(options) as ready:
        engines = f"{len(ready.engines)} simulated engine{'s' * (len(ready.engines) > 1)}"
        step(2, f"{engines} behind the gateway at {ready.data_url}")
        step(3, f"{options.live_seconds:g} s of live load by {len(ready.tenants)} tenants")
        measured = run_bench(live_load(planned, ready, options.live_seconds))
        if measured.report.partial:  # Ctrl-C ends a measurement early, and the demo with it
            raise KeyboardInterrupt
        live = measured.section(f"Live, {options.live_seconds:g} s")
        print(render_text(live), end="", flush=True)
        step(4, f"{options.requests:,} requests of the same deployment in virtual time")
        virtual = simulate_planned(planned, requests=options.requests, seed=0).section("Virtual time")
        print(render_text(virtual), end="", flush=True)
        step(5, "a first cost of a million tokens")
        cost = cost_section(planned, virtual.report.output_tokens_per_s, virtual.report.total_tokens_per_s)
        print_table(cost)
        report = options.out / "report.html"
        sections: list[Section] = [plan_section(planned), live, virtual, cost]
        write_atomically(report, render_html(f"{name}: is it roadworthy?", sections))
        step(6, f"report in {report}")
        if options.keep:
            keep_serving(ready)


def live_load(planned: Planned, ready: Ready, duration_s: float) -> BenchRequest:
    deployment = planned.deployment
    return BenchRequest(
        url=ready.data_url,
        workload=deployment.workload,
        sla=deployment.sla,
        tenants=deployment.tenants,
        keys={tenant.id: tenant.key for tenant in ready.tenants},
        model=deployment.model.served_name,
        duration_s=duration_s,
    )


@contextlib.contextmanager
def serving(options: argparse.Namespace) -> Iterator[Ready]:
    """`roadworthy up` as its own process, from ready to stopped."""
    ready_file = options.out / "ready.json"
    make_folder(options.out)
    command = roadworthy("up", options.spec, "--ready-file", str(ready_file), "--log-folder", str(options.out / "logs"))
    command += ["--port", "0", "--admin-port", "0"]  # whatever else runs on this machine
    log = options.out / "up.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread runs yet
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not (ready_file.exists() and read_ready(ready_file).pid == process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ProbeError(
                    f"`up` did not get ready:\n{log.read_text(errors='replace')[-2000:]}", hint=f"see {log}"
                )
            time.sleep(0.05)
        yield read_ready(ready_file)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=40)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def keep_serving(ready: Ready) -> None:
    print(f"\nserving at {ready.data_url}/v1, admin at {ready.admin_url}; keys:")
    for tenant in ready.tenants:
        print(f"  {tenant.id}: {tenant.key}")
    print("Ctrl-C stops it", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def print_table(section: TableSection) -> None:
    width = max(len(row[0]) for row in section.rows)
    for row in section.rows:
        print(f"  {row[0]:<{width}}  {'  '.join(row[1:])}")
    if section.note:
        print(f"  {section.note}")


def roadworthy(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "roadworthy", *arguments]


def step(number: int, what: str) -> None:
    print(f"\n== {number}. {what}", flush=True)


if __name__ == "__main__":
    # SIGTERM unwinds like Ctrl-C, so that nothing is left serving
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
