#!/usr/bin/env python3
"""Put real load on a real `vllm serve` on a GPU of this machine, with `roadworthy bench`, and keep every request.

    scripts/measure-live-gpu.py --models DIR --out DIR --gpu 0 [--deadline-s 600] CASE

A case of more than one GPU takes them all, `--gpu 0,1`.

DIR/MODEL holds a model's real config.json and any tokenizer.json of its vocabulary's size, with a chat template.
Weights are random (`load_format=dummy`), shapes are real. The engine is served with SERVE, the settings that
`scripts/twin_against_gpu.py` gives the twin, and everything else as vLLM has it. One JSON file for the case is renewed
after every step, so that a run cut short keeps what it has: each request as (scheduled and sent at, time to first token
and end to end in tenths of a millisecond, prompt and answer tokens), the gaps between tokens as percentiles, what the
engine's own histograms gained meanwhile, and how many of its steps had how many tokens.

A case that is served with `--enable-logging-iteration-details` keeps each iteration of the engine too, and the GPU's
clocks and power twice a second. vLLM 0.26 logs no iteration where there are several API servers, and the time that it
measures is only how long the core waited for the result; so a plugin in the core's process notes more (``PLUGIN``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

VLLM = [sys.executable, "-m", "vllm.entrypoints.cli.main"]
ROOT = Path(__file__).resolve().parent.parent
SERVE = {"max-model-len": 32768, "max-num-seqs": 512, "max-num-batched-tokens": 8192, "gpu-memory-utilization": 0.9}
CHATS = ("213,396,634", "177,325,512")
LONG = ("1800,3300,5400", "180,330,520")
STEADY = ("238", "197")
RUN_S = 40
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_COLOR": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_DEEP_GEMM_WARMUP": "skip",
}
STATISTIC = re.compile(r"^(vllm:\w+_(?:sum|count|total)|vllm:num_preemptions\w*)\{[^}]*\} (\S+)$", re.MULTILINE)
STEPS_UP_TO = re.compile(r'^vllm:iteration_tokens_total_bucket\{[^}]*le="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)
PIPELINE = ("--pipeline-parallel-size", "2")
ITERATIONS = "--enable-logging-iteration-details"
ITERATION_COLUMNS = (
    "t_s", "context_requests", "context_tokens", "decoding", "period_ms", "waited_ms", "launch_ms", "sample_ms",
    "schedule_ms", "update_ms", "gpu_ms", "gpu_gap_ms",
)  # fmt: skip
"""Of an iteration: when its result came, since the step began; requests and tokens; from the result before to this one;
how long the core waited for it (vLLM's own figure); the core's thread in execute_model, sample_tokens, schedule (of the
same iteration) and update_from_output (of the one before); on the GPU's stream from before its first kernel to after
its last, and from the one before's last to its first."""
MAX_ITERATIONS = 4000
CLOCKS = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active"
PLUGIN = '''"""vLLM plugin: a line for each iteration of the engine core, in the file ROADWORTHY_ITERATIONS names."""

import os
import time
from collections import deque
from contextlib import contextmanager


def register():
    from vllm.v1.engine.core import EngineCore

    if hasattr(EngineCore, "roadworthy"):
        return
    EngineCore.roadworthy = True
    take_step, capture = EngineCore.step_with_batch_queue, EngineCore.capture_iteration_details

    def timed(call, name, spent):
        def run(*args, **kwargs):
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent[name] = time.perf_counter() - start

        return run

    def first_step(self):
        import torch

        spent, steps = {}, {}
        self.rw_file = open(os.environ["ROADWORTHY_ITERATIONS"], "a", buffering=1)
        self.rw_spent, self.rw_steps, self.rw_rows, self.rw_before = spent, steps, deque(), (None, time.perf_counter())
        scheduler, executor = self.scheduler, self.model_executor
        scheduler.schedule = timed(scheduler.schedule, "schedule", spent)
        scheduler.update_from_output = timed(scheduler.update_from_output, "update", spent)
        execute = timed(executor.execute_model, "execute", spent)
        sample = timed(executor.sample_tokens, "sample", spent)
        last, pause = [0], int(float(os.environ.get("ROADWORTHY_PAUSE_MS", "0")) * 1.98e6)

        def execute_model(scheduler_output, *args, **kwargs):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            if pause and scheduler_output.total_num_scheduled_tokens:
                torch.cuda._sleep(pause)
            events[0].record()
            found = execute(scheduler_output, *args, **kwargs)
            last[0] = id(scheduler_output)
            steps[last[0]] = [spent["execute"], 0.0, spent["schedule"], *events]
            events[1].record()
            return found

        def sample_tokens(*args, **kwargs):
            found = sample(*args, **kwargs)
            step = steps[last[0]]
            step[1] = spent["sample"]
            step[4].record()
            return found

        executor.execute_model, executor.sample_tokens = execute_model, sample_tokens
        self.step_fn = take_step.__get__(self)
        return self.step_fn()

    @contextmanager
    def details_of(self, scheduler_output):
        with capture(self, scheduler_output) as details:
            yield details
        step = self.rw_steps.pop(id(scheduler_output), None)
        if details is None or step is None:
            return
        ended, now = self.rw_before
        at = time.perf_counter()
        row = (time.time(), details.num_ctx_requests, details.num_ctx_tokens, details.num_generation_tokens,
               (at - now) * 1e3, details.elapsed_ms, step[0] * 1e3, step[1] * 1e3, step[2] * 1e3,
               self.rw_spent.get("update", 0.0) * 1e3)
        self.rw_rows.append((row, ended, step[3], step[4]))
        self.rw_before = step[4], at
        while self.rw_rows and self.rw_rows[0][3].query():
            row, sooner, start, end = self.rw_rows.popleft()
            gap = sooner.elapsed_time(start) if sooner else 0.0
            self.rw_file.write(" ".join(f"{one:.6f}" for one in (*row, start.elapsed_time(end), gap)) + chr(10))

    EngineCore.step_with_batch_queue, EngineCore.capture_iteration_details = first_step, details_of
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and the rates of its loads, the last of each near what the engine can do; ``serve`` beyond SERVE.

    ``pause_ms``: that the GPU idles (one thread counts its clock) before each iteration: the host launches all of it
    meanwhile, and the power stays so low that the clocks do not fall.
    """

    model: str
    chats_per_s: tuple[float, ...]
    port: int
    long_per_s: tuple[float, ...] = ()
    serve: tuple[str, ...] = ()
    pause_ms: float = 0.0


CASES = {
    "llama8b": Case(model="llama8b", chats_per_s=(20, 45, 70), long_per_s=(4, 9, 13), port=8101),
    "qwen30b": Case(model="qwen30b", chats_per_s=(10, 25, 40), long_per_s=(4, 9, 13), port=8102),
    "llama8b-api1": Case(model="llama8b", chats_per_s=(30, 55, 62), port=8103),
    "llama8b-api2": Case(model="llama8b", chats_per_s=(55, 70, 85), port=8104, serve=("--api-server-count", "2")),
    "llama8b-pp2": Case(model="llama8b", chats_per_s=(15, 30, 50), long_per_s=(3, 7, 10), port=8105, serve=PIPELINE),
    "llama8b-pp2-sync": Case(
        model="llama8b",
        chats_per_s=(15, 30, 50),
        long_per_s=(3, 7, 10),
        port=8106,
        serve=(*PIPELINE, "--no-async-scheduling"),
    ),
    "llama8b-steps": Case(
        model="llama8b", chats_per_s=(55, 70, 85), port=8107, serve=("--api-server-count", "2", ITERATIONS)
    ),
    "llama8b-steps-graphs": Case(
        model="llama8b",
        chats_per_s=(70, 85),
        port=8108,
        serve=(
            *("--api-server-count", "2", ITERATIONS),
            *("--compilation-config", '{"max_cudagraph_capture_size": 1024}'),
        ),
    ),
    "llama8b-steps-paused": Case(
        model="llama8b", chats_per_s=(30, 45), port=8109, serve=("--api-server-count", "2", ITERATIONS), pause_ms=40
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of `bench`: open loop, or one user after the other."""

    name: str
    lengths: tuple[str, str]
    rate_per_s: float | None = None
    seconds: int = RUN_S
    requests: int | None = None

    def arguments(self, seed: int) -> list[str]:
        prompt, output = self.lengths
        shape = ["--prompt-tokens", prompt, "--output-tokens", output, "--seed", str(seed), "--temperature", "1"]
        if self.rate_per_s is None:
            return [*shape, "--users", "1", "--requests", str(self.requests)]
        return [*shape, "--rate", f"{self.rate_per_s:g}/s", "--arrivals", "poisson", "--duration", f"{self.seconds}s"]


def steps_of(case: Case) -> list[Step]:
    """Middle rates first, so that a run cut short has both lengths."""
    chats, long = case.chats_per_s, case.long_per_s
    found = [Step(name="alone", lengths=("238", "64"), requests=20)]
    if not long:
        return [*found, *(Step(name=f"chats-{rate:g}", lengths=CHATS, rate_per_s=rate) for rate in chats)]
    found.append(Step(name="alone-long", lengths=("2000", "16"), requests=12))
    for rank in (1, 2, 0):
        found.append(Step(name=f"chats-{chats[rank]:g}", lengths=CHATS, rate_per_s=chats[rank]))
        found.append(Step(name=f"long-{long[rank]:g}", lengths=LONG, rate_per_s=long[rank]))
    found.append(Step(name=f"same-lengths-{chats[1]:g}", lengths=STEADY, rate_per_s=chats[1], seconds=30))
    return found


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def statistics_of(metrics: str) -> dict[str, float]:
    """Sums and counts of the engine's own metrics, labels dropped."""
    found: dict[str, float] = {}
    for name, value in STATISTIC.findall(metrics):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def steps_by_tokens(metrics: str) -> dict[str, int]:
    """The engine's steps by how many tokens they had: {at most: steps that had more than the bound before}."""
    up_to: dict[str, int] = {}
    for bound, value in STEPS_UP_TO.findall(metrics):
        up_to[bound] = up_to.get(bound, 0) + int(float(value))
    return {bound: count - below for (bound, count), below in zip(up_to.items(), (0, *up_to.values()), strict=False)}


def gained(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: round(value - before.get(name, 0.0), 6) for name, value in after.items() if value != before.get(name)}


def engine_gained(url: str, before: str) -> dict[str, Any]:
    """What the engine's own metrics gained since ``before``, and how many steps of how many tokens it made."""
    after = read(f"{url}/metrics")
    sooner, steps = steps_by_tokens(before), steps_by_tokens(after)
    return {
        "engine_gained": gained(statistics_of(before), statistics_of(after)),
        "iteration_tokens": {
            bound: count - sooner.get(bound, 0) for bound, count in steps.items() if count != sooner.get(bound, 0)
        },
    }


def quantile(ordered: list[float], ratio: float) -> float:
    return ordered[min(len(ordered) - 1, int(ratio * len(ordered)))]


def compact(document: dict[str, Any]) -> dict[str, Any]:
    """A detailed bench document without what can be worked out again."""
    gaps = sorted(gap for of in document.pop("itls") for gap in of)
    keep = ("seed", "salt", "client_cpu_ratio", "sized_by", "facts", "notes", "intervals", "client_lag_s", "lateness_s")
    row: dict[str, Any] = {name: document[name] for name in keep if name in document}
    row |= {name: document[name] for name in document if re.fullmatch(r"(ttft|tpot|itl|e2e)_s", name)}
    row |= {
        name: document.get(name)
        for name in ("output_tokens_per_s", "request_rate_per_s", "completed", "failed", "duration_s")
    }
    row["itl_quantiles_ms"] = (
        {str(at): round(quantile(gaps, at) * 1e3, 3) for at in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)}
        if gaps
        else {}
    )
    row["itl_mean_ms"], row["gaps"] = round(1e3 * sum(gaps) / max(1, len(gaps)), 4), len(gaps)
    columns = zip(
        *(document[name] for name in ("start_times", "queue_times", "ttfts", "latencies", "input_lens", "output_lens")),
        strict=True,
    )
    row["requests"] = [
        [round((sent - queued) * 1e4), round(sent * 1e4), round(ttft * 1e4), round(e2e * 1e4), prompt, output]
        for sent, queued, ttft, e2e, prompt, output in columns
    ]
    return row


def install_plugin(out: Path) -> Path:
    """Where Python finds ``PLUGIN``, and vLLM its entry point."""
    folder = out / "plugin"
    about = folder / "roadworthy_iterations-1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (folder / "roadworthy_iterations.py").write_text(PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: roadworthy-iterations\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nroadworthy_iterations = roadworthy_iterations:register\n"
    )
    return folder


def iterations_since(out: Path, began: float) -> list[list[float]]:
    """What the plugin noted of each iteration, as ``ITERATION_COLUMNS``, evenly thinned out."""
    rows = []
    for line in (out / "iterations.txt").read_text().splitlines():
        moment, *values = (float(value) for value in line.split())
        if moment >= began:
            rows.append(
                [round(moment - began, 3), *(int(one) for one in values[:3]), *(round(x, 2) for x in values[3:])]
            )
    every = max(1.0, len(rows) / MAX_ITERATIONS)
    return [rows[int(at * every)] for at in range(int(len(rows) / every))]


def clocks_since(out: Path, began: float) -> list[list[Any]]:
    """What `nvidia-smi` logged: seconds since, MHz of the SMs and of the memory, watts, degrees, why not faster."""
    rows: list[list[Any]] = []
    for line in (out / "clocks.csv").read_text().splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(CLOCKS.split(",")):
            continue
        moment = datetime.strptime(cells[0], "%Y/%m/%d %H:%M:%S.%f").astimezone().timestamp()
        if moment >= began:
            rows.append([round(moment - began, 1), *(round(float(cell)) for cell in cells[1:5]), cells[5]])
    return rows


def bench(url: str, step: Step, seed: int, out: Path) -> dict[str, Any]:
    """One run and what the engine's own metrics gained by it."""
    before, began = read(f"{url}/metrics"), time.time()
    detail = out / f"{step.name}.detail.json"
    command = [sys.executable, "-m", "roadworthy", "bench", url, *step.arguments(seed), "--json", "--out", str(detail)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=step.seconds + 90, check=False
    )
    if not detail.exists():
        return {"failed": done.stderr[-800:]}
    row = compact(json.loads(detail.read_text()))
    detail.unlink()
    row |= engine_gained(url, before)
    if (out / "iterations.txt").exists():
        row |= {"iterations": iterations_since(out, began), "clocks": clocks_since(out, began)}
    return {"step": step.name, "asked": step.arguments(seed), **row}


def vllm_bench(url: str, model: Path, rate: float, out: Path) -> dict[str, Any]:
    """vLLM's own client at the same rate and lengths as the last step."""
    requests = int(rate * 30)
    prompt, output = STEADY
    options = {
        "backend": "openai-chat", "base-url": url, "endpoint": "/v1/chat/completions", "model": "m",
        "tokenizer": str(model), "dataset-name": "random", "random-input-len": prompt, "random-output-len": output,
        "request-rate": f"{rate:g}", "num-prompts": str(requests), "temperature": "1",
        "percentile-metrics": "ttft,tpot,itl,e2el", "metric-percentiles": "50,90,99", "result-dir": str(out),
        "result-filename": "vllm-bench.json",
    }  # fmt: skip
    named = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = [*VLLM, "bench", "serve", *named, "--ignore-eos", "--save-result"]
    before = read(f"{url}/metrics")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (out / "vllm-bench.log").write_text(done.stdout[-20000:] + done.stderr[-20000:])
    found = out / "vllm-bench.json"
    result = json.loads(found.read_text()) if found.exists() else {"failed": done.stderr[-800:]}
    result = {name: value for name, value in result.items() if not isinstance(value, list)}
    return {"step": "vllm-bench", "asked": command[len(VLLM) :], **result, **engine_gained(url, before)}


def wait_until_healthy(url: str, engine: subprocess.Popen[bytes], until: float) -> bool:
    while time.time() < until and engine.poll() is None:
        try:
            read(f"{url}/health")
            return True
        except OSError:
            time.sleep(0.5)
    return False


def measure(case: Case, args: argparse.Namespace, engine: subprocess.Popen[bytes], row: dict[str, Any]) -> None:
    """Every step there is time for."""
    url, until = f"http://127.0.0.1:{case.port}", args.started + args.deadline_s
    file = args.out / f"{args.case}.json"

    def save() -> None:
        file.with_suffix(".new").write_text(json.dumps(row))
        file.with_suffix(".new").replace(file)

    save()
    if not wait_until_healthy(url, engine, until):
        row["outcome"] = "the engine did not come up"
        save()
        return
    row["startup_s"] = round(time.time() - args.started, 1)
    save()
    print("READY", args.case, row["startup_s"], flush=True)
    # kernels that compile on first use
    for lengths, rate in ((CHATS, case.chats_per_s[1]), *((LONG, rate) for rate in case.long_per_s[1:2])):
        warm = bench(url, Step(name="warm-up", lengths=lengths, rate_per_s=rate, seconds=5), 900, args.out)
        print("WARM", warm.get("failed"), warm.get("ttft_s"), flush=True)
    for number, step in enumerate(steps_of(case)):
        if args.steps and step.name not in args.steps:
            continue
        if time.time() + step.seconds + 12 > until:
            row.setdefault("left_out", []).append(step.name)
            continue
        found = bench(url, step, 11 + number, args.out)
        row["steps"].append(found)
        save()
        print("STEP", step.name, found.get("output_tokens_per_s"), found.get("ttft_s"), found.get("tpot_s"), flush=True)
    if not args.steps and case.long_per_s and time.time() + 45 < until:
        row["steps"].append(vllm_bench(url, args.models / case.model, case.chats_per_s[1], args.out))
        print("STEP vllm-bench", row["steps"][-1].get("mean_ttft_ms"), row["steps"][-1].get("failed"), flush=True)
    row["outcome"] = "ok"
    save()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", required=True, help="by number; several with commas between")
    parser.add_argument("--deadline-s", type=float, default=600)
    parser.add_argument("--steps", nargs="*", help="only these, by name")
    parser.add_argument("case", choices=list(CASES))
    args = parser.parse_args()
    args.started = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    case = CASES[args.case]
    settings = [part for name, value in SERVE.items() for part in (f"--{name}", str(value))]
    model = str(args.models / case.model)
    where = ["--served-model-name", "m", "--load-format", "dummy", "--host", "127.0.0.1", "--port", str(case.port)]
    command = [*VLLM, "serve", model, *where, *settings, *case.serve]
    environment = os.environ | ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": args.gpu}
    with_iterations = ITERATIONS in case.serve
    if with_iterations:
        found = f"{install_plugin(args.out).resolve()}:{environment.get('PYTHONPATH', '')}"
        environment |= {"PYTHONPATH": found, "ROADWORTHY_ITERATIONS": str((args.out / "iterations.txt").resolve())}
        environment |= {"ROADWORTHY_PAUSE_MS": str(case.pause_ms)}
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    gpus = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    which = args.gpu if "," in args.gpu else "N"
    row: dict[str, Any] = {
        "case": args.case,
        "command": f"scripts/measure-live-gpu.py --models MODELS --out OUT --gpu {which} {args.case}",
        "serve": command[len(VLLM) :],
        "environment": ENVIRONMENT,
        "box": {"gpus": gpus, "cpu_cores": os.cpu_count()},
        "steps": [],
    }
    if with_iterations:
        row |= {"iteration_columns": ITERATION_COLUMNS, "pause_ms": case.pause_ms}
    with (args.out / f"{args.case}.engine.log").open("wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    started = [engine]
    try:
        if with_iterations:
            query = ["nvidia-smi", "-i", args.gpu, f"--query-gpu={CLOCKS}", "--format=csv,noheader,nounits"]
            with (args.out / "clocks.csv").open("wb") as log:
                started.append(subprocess.Popen([*query, "-lms", "500"], stdout=log, start_new_session=True))
        measure(case, args, engine, row)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main()
