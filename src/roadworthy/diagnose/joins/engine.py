"""What statistics of engines say over time: leaks, preemption, cache hits, stalls; versions side by side."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from roadworthy.diagnose.joins.network import derived, used_devices
from roadworthy.diagnose.probes.tables import reasons_of, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.probes.tables import Sample
    from roadworthy.diagnose.values import Clue, ClueBook, Document, Line

MIN_QUERIED_TOKENS = 1_000
"""Fewer looked-up tokens say nothing about a hit rate (facts: a guard against small samples)."""

EVENTS_OF_A_BURST = 8
REMOTE_SHARE = 0.15
"""Share of a worker's memory off its GPU's node from which first touch went wrong; the C library alone takes 2 %."""

HYBRID = re.compile(
    r"mamba|linear[-_ ]attention|hybrid|KDA|gated[-_ ]?delta|DeltaNet|SSM|recurrent|jamba|Kimi-Linear|qwen3[-_]next|"
    r"granite-4|nemotron-?h|minimax",
    re.IGNORECASE,
)


def scrapes(book: ClueBook) -> Iterator[Clue]:
    """Judges every document that is a scrape, and two of the same endpoint as a pair."""
    read = [(document, samples(document)) for document in book.documents]
    scraped = [(document, some) for document, some in read if len(some) >= 1]
    groups: dict[str, list[tuple[Document, list[Sample]]]] = defaultdict(list)
    for document, some in scraped:
        groups[re.sub(r"\.?(?:t\d+|before|after|\d+)(?=\.|$)", "", document.file)].append((document, some))
    judged: list[Clue] = []
    for group in groups.values():
        group.sort(key=lambda item: item[0].file)
        judged += _judge(group)
    none_here = any(clue.name == "cache.zero-hits" for clue in judged)
    for clue in judged:  # another model hits on the same traffic: that speaks for the one that does not
        yield derived(clue, "cache.other-model-hits") if none_here and clue.name == "cache.good-hits" else clue


def _total(some: list[Sample], name: str, label: str = "") -> float | None:
    values = [one.value for one in some if one.name in (name, f"{name}_total") and label in one.labels]
    return sum(values) if values else None


def _peak(some: list[Sample], *names: str) -> tuple[float, Sample] | None:
    values = [(one.value, one) for one in some if one.name in names]
    return max(values, key=lambda item: item[0]) if values else None


def _judge(group: list[tuple[Document, list[Sample]]]) -> Iterator[Clue]:
    document, last = group[-1]
    first = group[0][1] if len(group) > 1 else []
    usage = _peak(last, "kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")
    running, waiting = _total(last, "num_requests_running"), _total(last, "num_requests_waiting")
    if running is None:
        running = _total(last, "num_running_reqs")
    if waiting is None:
        waiting = _total(last, "num_queue_reqs")
    preempted = _total(last, "num_preemptions")
    grown = (preempted or 0.0) - (_total(first, "num_preemptions") or 0.0) if first else (preempted or 0.0)
    if usage is not None:
        share = usage[0] / 100 if usage[0] > 1.5 else usage[0]
        line = usage[1].line
        if share >= 0.9 and grown > 0:
            where = next(one.line for one in last if one.name.startswith("num_preemptions"))
            yield document.clue("kv.full-and-preempting", line, where, usage=f"{share:.0%}", preemptions=f"{grown:g}")
        if share >= 0.8 and (running or 0) <= 1 and running is not None:
            yield document.clue(
                "kv.full-while-idle", line, usage=f"{share:.0%}", running=f"{running:g}", waiting=f"{waiting or 0:g}"
            )
        elif share >= 0.95 and (waiting or 0) > 0:
            yield document.clue("kv.full-and-waiting", line, usage=f"{share:.0%}", waiting=f"{waiting:g}")
        elif share < 0.8:
            yield document.clue("kv.has-room", line, usage=f"{share:.0%}")
    aborted = (_total(last, "request_success", "abort") or 0.0) - (_total(first, "request_success", "abort") or 0.0)
    if aborted >= 10:
        where = next(one.line for one in last if "abort" in one.labels)
        yield document.clue("requests.aborted", where, count=f"{aborted:g}")
    yield from _hits(document, first, last)
    yield from _experts(document, last)
    yield from _clocks(document, last)


def _hits(document: Document, first: list[Sample], last: list[Sample]) -> Iterator[Clue]:
    def value(name: str) -> float | None:
        now = _total(last, name)
        return None if now is None else now - (_total(first, name) or 0.0)

    queries = (
        value("prefix_cache_queries")
        if _total(last, "prefix_cache_queries") is not None
        else value("gpu_prefix_cache_queries")
    )
    hits = (
        value("prefix_cache_hits") if _total(last, "prefix_cache_hits") is not None else value("gpu_prefix_cache_hits")
    )
    if queries is None or hits is None or queries < MIN_QUERIED_TOKENS:
        return
    line = next(one.line for one in last if "prefix_cache_hits" in one.name)
    asked = next(one.line for one in last if "prefix_cache_queries" in one.name)
    if hits == 0:
        yield document.clue("cache.zero-hits", line, asked, queries=f"{queries:g}")
    elif hits < 0.05 * queries:
        yield document.clue(
            "cache.few-hits", line, asked, queries=f"{queries:g}", hits=f"{hits:g}", share=f"{hits / queries:.1%}"
        )
    elif hits > 0.3 * queries:
        yield document.clue("cache.good-hits", line, share=f"{hits / queries:.0%}")


def _clocks(document: Document, last: list[Sample]) -> Iterator[Clue]:
    """``clocks.fell`` of the GPU exporter: far below its peers while a hardware or thermal reason is set."""
    clocks = {one.labels.split(",")[0]: one for one in last if one.name == "DCGM_FI_DEV_SM_CLOCK"}
    reasons = {
        one.labels.split(",")[0]: one
        for one in last
        if one.name in ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    }
    for gpu, clock in clocks.items():
        peers = sorted(one.value for other, one in clocks.items() if other != gpu)
        reason = reasons.get(gpu)
        held = (
            [name for name in reasons_of(int(reason.value)) if name not in ("idle", "sw-power-cap")] if reason else []
        )
        if peers and reason is not None and held and clock.value < 0.8 * peers[len(peers) // 2]:
            yield document.clue(
                "clocks.fell", clock.line, reason.line, mhz=f"{clock.value:g}", high=f"{peers[len(peers) // 2]:g}",
                who=gpu.replace('"', "").replace("=", " "), power="", limit="",
            )  # fmt: skip
            for name in held:
                yield document.clue(f"clocks.{name}", reason.line, gpu=gpu, reason=name.replace("-", " "))


def _experts(document: Document, last: list[Sample]) -> Iterator[Clue]:
    load = [
        one
        for one in last
        if re.search(r"expert.*(?:load|token|count)|tokens_per_(?:expert|rank)|rank.*tokens|eplb", one.name)
        and one.labels
    ]
    if len(load) >= 3:
        top = max(load, key=lambda one: one.value)
        rest = sorted(one.value for one in load if one is not top)
        usual = rest[len(rest) // 2]
        if usual > 0 and top.value > 1.8 * usual:
            rank = re.search(r'(?:rank|expert|gpu)="?(\w+)', top.labels)
            yield document.clue(
                "moe.rank-overloaded", top.line, rank=rank.group(1) if rank else "", tokens=f"{top.value:g}",
                usual=f"{usual:g}", times=f"{top.value / usual:.1f}",
            )  # fmt: skip


def statistics(book: ClueBook) -> Iterator[Clue]:
    """The engine's own log lines over time, file by file."""
    by_file: dict[str, list[Clue]] = defaultdict(list)
    for clue in book.all("engine.stats"):
        by_file[clue.lines[0].file].append(clue)
    for some in by_file.values():
        last = some[-1]
        usage = float(last.value("kv_percent", "0"))
        running, waiting = int(last.value("running", "0")), int(last.value("waiting", "0"))
        if usage >= 80 and running <= 1:
            yield derived(last, "kv.full-while-idle", *some[-3:-1], usage=f"{usage:g} %")
        elif usage >= 95 and waiting > 0:
            yield derived(last, "kv.full-and-waiting", usage=f"{usage:g} %")
        elif usage < 80:
            yield derived(last, "kv.has-room", usage=f"{usage:g} %")
        hits = [float(clue.value("hit_percent")) for clue in some if clue.value("hit_percent")]
        busy = [float(clue.value("prompt_per_s", "0")) for clue in some]
        if hits and hits[-1] < 2.0 and max(busy, default=0) > 1000:
            yield derived(last, "cache.few-hits-in-log", share=f"{hits[-1]:g} %")
        prefilling = [one for one in some if _rate(one, "prompt_per_s") > 500 and _rate(one, "output_per_s") < 3]
        decoding = [one for one in some if _rate(one, "prompt_per_s") < 50 and _rate(one, "output_per_s") > 10]
        if prefilling and decoding and int(prefilling[0].value("running", "0")) >= 2 and usage < 90:
            yield derived(
                prefilling[0], "decode.starved-by-prefill", decoding[0],
                during=f"{prefilling[0].value('output_per_s')} tokens/s",
                without=f"{decoding[0].value('output_per_s')} tokens/s",
            )  # fmt: skip
        stalled = [
            clue
            for clue in some
            if int(clue.value("running", "0")) > 0
            and float(clue.value("output_per_s", "1")) < 1.0
            and float(clue.value("prompt_per_s", "1")) < 1.0
        ]
        if len(stalled) >= 2:
            yield derived(stalled[0], "engine.stalled")


def _rate(clue: Clue, key: str) -> float:
    return float(clue.value(key, "0"))


def requests_side_by_side(book: ClueBook) -> Iterator[Clue]:
    """Captured requests of one client: tools in another order, or another system prompt, is another prefix."""
    bodies: list[tuple[Document, dict[str, Any]]] = []
    for document in book.documents:
        if document.text.lstrip().startswith("{") and '"messages"' in document.text:
            try:
                body = json.loads(document.text)
            except ValueError:
                continue
            if isinstance(body, dict):
                bodies.append((document, body))
    for (one, first), (other, second) in pairwise(bodies):
        tools = [_names(body.get("tools")) for body in (first, second)]
        if tools[0] and tools[0] != tools[1] and sorted(tools[0]) == sorted(tools[1]):
            yield one.clue(
                "prompt.tools-reordered",
                one.line(1),
                other.line(1),
                first=", ".join(tools[0]),
                second=", ".join(tools[1]),
            )
        heads = [str(next(iter(body.get("messages") or ()), "")) for body in (first, second)]
        if heads[0] != heads[1] and heads[0][:40] == heads[1][:40]:
            yield one.clue("prompt.changing-head", one.line(1), other.line(1))


def _names(tools: object) -> list[str]:
    functions = (
        [tool.get("function", tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    )
    return [str(function.get("name")) for function in functions if isinstance(function, dict)]


CACHED_ANSWER = re.compile(
    r"cached_tokens[=: ]+(?P<count>\d+).*?(?:answer|output|text)[=: ]+[\"'](?P<answer>[^\"']{3,})"
)


def answers_by_cache(book: ClueBook) -> Iterator[Clue]:
    """``output.changes-after-hit``: one prompt, sent again, answers otherwise when tokens came from the cache."""
    for document in book.documents:
        fresh: set[str] = set()
        cached: dict[str, Line] = {}
        for line in document.numbered():
            found = re.search(
                r"cached_tokens[=: ]+(?P<count>\d+).*?(?:answer|output|text)[=: ]+[\"'](?P<answer>[^\"']{3,})",
                line.text,
            )
            if found and found["count"] == "0":
                fresh.add(found["answer"])
            elif found:
                cached[found["answer"]] = line
        odd = [line for answer, line in cached.items() if answer not in fresh]
        if fresh and odd:
            yield document.clue("output.changes-after-hit", odd[0], hit="another text", miss="the same text each time")


def hybrids(book: ClueBook) -> Iterator[Clue]:
    """``model.hybrid`` where anything says that the model has recurrent layers; ``prompt.*`` of dumps."""
    for document in book.documents:
        for line in document.numbered():
            if HYBRID.search(line.text) and len(line.text) < 400 and "disk" not in line.text:
                yield document.clue("model.hybrid", line)
                break
    known = book.first("cache.known-not-reused")
    if known is not None and any(HYBRID_LAYERS.search(document.text) for document in book.documents):
        yield derived(known, "hybrid.known-not-reused")
    for document in book.documents:
        yield from _prompts(document)


HYBRID_LAYERS = re.compile(
    r"linear[-_ ]attention|not trimmable|ArraysCache|MambaCache|SSM|recurrent|DeltaNet", re.IGNORECASE
)
TIME_IN_PROMPT = re.compile(
    r"(?:[Cc]urrent (?:system |local )?(?:[Tt]ime|[Dd]ate)|[Tt]imestamp|[Tt]oday is|nonce|request[_ ]id|uuid|[Nn]ow:|"
    r"session[_ ]id|trace[_ ]id|tool[_ ]order|shuffl)"
)


def _prompts(document: Document) -> Iterator[Clue]:
    """A clock or nonce near the start of a prompt, a system prompt whose digest changes, a first differing byte."""
    digests: dict[str, int] = defaultdict(int)
    first_line = None
    for line in document.numbered():
        if found := re.search(r"(?:system|prompt|prefix)_?(?:sha|hash|digest|md5)=(?P<digest>\w+)", line.text):
            digests[found["digest"]] += 1
            first_line = first_line or line
        elif (
            TIME_IN_PROMPT.search(line.text)
            and re.search(r"prompt|system|You are|messages|role", document.file + line.text, re.IGNORECASE)
        ) or re.search(
            r"(?:first differ\w*|diverge\w*|differs?) (?:byte|at|token|char)\D{0,20}\d+|"
            r"tools?.{0,30}(?:order|sort).{0,30}(?:differ|change|random|unstable)",
            line.text,
            re.IGNORECASE,
        ):
            yield document.clue("prompt.changing-head", line)
    if first_line is not None and len(digests) >= 3 and max(digests.values()) <= 2:
        yield document.clue("prompt.digest-changes", first_line, digests=len(digests))
    if re.search(r"identical bytes|byte-identical|same bytes|identical prefix", document.text):
        line = next(line for line in document.numbered() if re.search(r"identical|same bytes", line.text))
        yield document.clue("prompt.identical", line)


def eval_collapse(book: ClueBook) -> Iterator[Clue]:
    """``eval.worse-with-cache``: answers that are right without prefix caching and wrong with it."""
    for document in book.documents:
        on: list[tuple[float, Line]] = []
        off: list[tuple[float, Line]] = []
        for line in document.numbered():
            value = re.search(
                r"(?:accuracy|exact[_-]match|score|acc|pass@1|gsm8k)\D{0,70}(?P<value>0?\.\d+|\d+(?:\.\d+)? ?%?)",
                line.text,
                re.IGNORECASE,
            )
            if not value or not re.search(r"prefix|cach", line.text, re.IGNORECASE):
                continue
            number = float(value["value"].strip(" %"))
            number = number / 100 if number > 1 else number
            disabled = re.search(
                r"(?:cach\w*|prefix\S*)\W{0,3}(?:=| is)?\s*(?:off|disabled|false|0(?![.\d]))|no[-_ ](?:enable-)?prefix|"
                r"without|disable",
                line.text,
                re.IGNORECASE,
            )
            (off if disabled else on).append((number, line))
        if on and off and min(v for v, _ in on) < 0.8 * max(v for v, _ in off):
            worst = min(on, key=lambda item: item[0])
            best = max(off, key=lambda item: item[0])
            yield document.clue("eval.worse-with-cache", worst[1], best[1], on=f"{worst[0]:g}", off=f"{best[0]:g}")
    changed = _finish_changes(book)
    if changed is not None:
        yield changed


def _finish_changes(book: ClueBook) -> Clue | None:
    """Requests end one way after a miss and another way after hits."""
    hits = {clue.value("id"): clue for clue in book.all("cache.hit")}
    after: dict[bool, set[str]] = {True: set(), False: set()}
    for clue in book.all("request.finished"):
        after[clue.value("id") in hits].add(clue.value("reason"))
    if after[True] and after[False] and not after[True] & after[False]:
        first = next(iter(hits.values()))
        return derived(
            first, "output.changes-after-hit", hit="/".join(sorted(after[True])), miss="/".join(sorted(after[False]))
        )
    return None


def streams(book: ClueBook) -> Iterator[Clue]:
    """``stream.burst`` where many events come in one read, ``stream.steady`` where they come one by one."""
    for clue in book.all("stream.read"):
        yield derived(clue, "stream.burst" if int(clue.value("events")) >= EVENTS_OF_A_BURST else "stream.steady")


def processor(book: ClueBook) -> Iterator[Clue]:
    """``cpu.throttled``: share of scheduler periods in which the quota ran out."""
    periods, throttled = book.all("cpu.nr_periods"), book.all("cpu.nr_throttled")
    if periods and throttled:
        delta_periods = int(periods[-1].value("value")) - (int(periods[0].value("value")) if len(periods) > 1 else 0)
        delta = int(throttled[-1].value("value")) - (int(throttled[0].value("value")) if len(throttled) > 1 else 0)
        if delta_periods > 0 and delta / delta_periods > 0.2:
            yield derived(throttled[-1], "cpu.throttled", periods[-1], share=f"{delta / delta_periods:.0%}")
    for clue in book.all("cpu.throttled-percent"):
        if float(clue.value("percent")) > 20:
            yield derived(clue, "cpu.throttled", share=f"{clue.value('percent')} %")
    load, cores = book.first("cpu.load"), book.first("cpu.cores", "cpu.quota")
    if load is not None and cores is not None and float(load.value("load")) > 1.5 * float(cores.value("cores")):
        yield derived(load, "cpu.oversubscribed", cores, cores=cores.value("cores"))
    threads, quota = book.first("cpu.threads"), book.first("cpu.quota")
    if threads is not None and quota is not None and float(threads.value("threads")) > 4 * float(quota.value("cores")):
        yield derived(threads, "cpu.more-threads-than-quota", quota, cores=quota.value("cores"))


def pcie(book: ClueBook) -> Iterator[Clue]:
    """``pcie.degraded-under-load``: generation or width below the maximum on a busy device; idle ones save power."""
    links = book.all("pcie.link")
    busy = [
        clue for clue in links if int(clue.value("utilisation") or 0) > 20 or clue.value("pstate") in ("0", "1", "2")
    ]
    maximum_gen = max((int(clue.value("gen_max") or 0) for clue in links), default=0)
    maximum_width = max((int(clue.value("width_max") or 0) for clue in links), default=0)
    degraded = False
    for clue in busy:
        gen, width = int(clue.value("gen") or 0), int(clue.value("width") or 0)
        if (gen and gen < (int(clue.value("gen_max") or 0) or maximum_gen)) or (
            width and width < (int(clue.value("width_max") or 0) or maximum_width)
        ):
            degraded = True
            yield derived(
                clue,
                "pcie.degraded-under-load",
                gen_max=clue.value("gen_max") or maximum_gen,
                width_max=clue.value("width_max") or maximum_width,
            )
    if busy and not degraded:
        yield derived(busy[0], "pcie.full-speed-under-load")
    for clue in book.all("pcie.downgraded"):
        if clue.value("width_note") == "downgraded":
            yield derived(clue, "pcie.width-downgraded")


def numa(book: ClueBook) -> Iterator[Clue]:
    """``numa.memory-remote``: most memory of a worker lies on the other node; ``numa.device-apart`` of GPU and NIC."""
    home = {clue.value("gpu"): clue.value("numa") for clue in book.all("topo.gpu")}
    for clue in book.all("numa.process"):
        nodes = [float(value) for value in clue.value("nodes").split()]
        node = home.get(clue.value("gpu"), "")
        if node.isdigit() and int(node) < len(nodes):
            remote = sum(nodes) - nodes[int(node)]
            if remote > REMOTE_SHARE * sum(nodes):
                there = max(
                    (index for index in range(len(nodes)) if index != int(node)), key=lambda index: nodes[index]
                )
                yield derived(
                    clue,
                    "numa.memory-remote",
                    node=node,
                    there=there,
                    remote=f"{remote:.0f}",
                    share=f"{remote / sum(nodes):.0%}",
                )
    spread = [clue for clue in book.all("numa.process") if min(float(v) for v in clue.value("nodes").split()) > 500]
    if spread and not home:
        yield derived(spread[0], "numa.memory-spread")
    whole = {clue.value("cores") for clue in book.all("topo.gpu")}
    for clue in book.all("numa.affinity"):
        if whole and clue.value("cores") not in whole and clue.value("cores").startswith("0-") and len(whole) > 1:
            yield derived(clue, "numa.unbound")
    affinities = book.all("numa.affinity")
    if len(affinities) >= 3 and len({clue.value("cores") for clue in affinities}) == 1 and len(set(home.values())) > 1:
        yield derived(affinities[0], "numa.all-on-one-node", *book.all("numa.process-on-one-node")[:1])
    nics = {clue.value("nic") for clue in book.all("nccl.channel-gdr", "nccl.channel-no-gdr")}
    ranks = {clue.rank for clue in book.all("nccl.channel-gdr", "nccl.channel-no-gdr")}
    if len(ranks) >= 2 and len(nics) == 1:
        yield derived(book.all("nccl.channel-gdr", "nccl.channel-no-gdr")[0], "nic.one-for-all", nic=next(iter(nics)))
    yield from _far_nics(book)
    nodes_of = {clue.value("device").lower().replace(" ", ""): clue for clue in book.all("numa.device")}
    gpus = [clue for name, clue in nodes_of.items() if name.startswith("gpu")]
    others = [clue for name, clue in nodes_of.items() if not name.startswith("gpu")]
    if gpus and others and {c.value("node") for c in gpus}.isdisjoint({c.value("node") for c in others}):
        yield derived(gpus[0], "numa.device-apart", others[0])


NEAR = ("PIX", "PXB", "PHB", "NODE")


def _far_nics(book: ClueBook) -> Iterator[Clue]:
    """``nic.far-from-gpu``: a rank sends through a NIC across the socket link although its GPU has a nearer one."""
    links = {(clue.value("gpu"), clue.value("nic")): clue for clue in book.all("topo.nic")}
    legend = {clue.value("device"): clue.value("nic") for clue in book.all("topo.legend")}
    lists = {clue.host: clue for clue in book.all("rdma.devices-used")}
    for channel in book.all("nccl.channel-gdr", "nccl.channel-no-gdr"):
        used = lists.get(channel.host)
        if used is None or channel.rank is None:
            continue
        names = [name for name, _ in used_devices(used)]
        index = int(channel.value("nic"))
        name = names[index] if index < len(names) else ""
        column = legend.get(name, name)
        link = links.get((str(channel.rank), column))
        nearer = [nic for (gpu, nic), clue in links.items() if gpu == str(channel.rank) and clue.value("link") in NEAR]
        if link is not None and link.value("link") == "SYS" and nearer:
            yield derived(
                channel, "nic.far-from-gpu", link, gpu=channel.rank, device=name, nearer=", ".join(sorted(nearer))
            )  # fmt: skip
            return


def software(book: ClueBook) -> Iterator[Clue]:
    """Versions that do not go together: module and libraries, NCCL's CUDA, hosts among themselves, fabric manager."""
    module, library = (
        book.first("driver.module", "driver.kernel-module"),
        book.first("nvml.library-version", "driver.version"),
    )
    if module is not None and library is not None:
        one, other = module.value("version"), library.value("version") or library.value("driver")
        if one and other and not (one.startswith(other) or other.startswith(one)):
            yield derived(module, "driver.versions-differ", library, module=one, library=other)
    torch = book.first("package.torch")
    for clue in book.all("nccl.version"):
        cuda = clue.value("cuda")
        if (
            torch is not None
            and torch.value("cuda")
            and cuda
            and not torch.value("cuda").startswith(cuda.split(".")[0])
        ):
            yield derived(clue, "nccl.cuda-differs-from-torch", torch, torch=torch.value("version"))
    by_host: dict[str, Clue] = {}
    for clue in book.all("nccl.version", "nccl.vllm-version"):
        by_host.setdefault(clue.host or clue.lines[0].file, clue)
    if len({clue.value("version") for clue in by_host.values()}) > 1:
        some = list(by_host.values())
        yield derived(
            some[0],
            "nccl.versions-differ",
            some[-1],
            versions=" and ".join(sorted({clue.value("version") for clue in some})),
        )
    driver = book.first("driver.version")
    fabric = book.first("fabric.version")
    if (
        driver is not None
        and fabric is not None
        and driver.value("driver")
        and fabric.value("version") != driver.value("driver")
    ):
        yield derived(fabric, "fabric.version-differs", driver, driver=driver.value("driver"))
    capability, archs = book.first("cuda.capability"), book.first("cuda.arch-list")
    if capability is not None and archs is not None:
        major = capability.value("major") or capability.value("major2")
        minor = capability.value("minor") or capability.value("minor2")
        name = f"sm_{major}{minor}"
        if name not in archs.value("list"):
            yield derived(
                capability,
                "cuda.arch-not-built",
                archs,
                arch=name,
                capability=f"{major}.{minor}",
            )
    if driver is None or torch is None:
        return
    cuda, built = driver.value("cuda"), torch.value("cuda")
    if cuda and built and float(cuda) < float(f"{built[:-1]}.{built[-1]}"):
        yield derived(driver, "driver.cuda-below-build", torch, cuda=cuda, built=f"{built[:-1]}.{built[-1]}")


def ray_resources(book: ClueBook) -> Iterator[Clue]:
    """Demand against totals, and node addresses that Ray does not know."""
    demand, total = book.first("ray.demand"), book.first("ray.total-gpu")
    if demand is not None:
        wanted = float(demand.value("gpus") or 0)
        have = float(total.value("total")) if total is not None else 0.0
        if wanted > have:
            others = list(book.all("ray.total-tpu", "ray.total-npu", "ray.total-neuron_cores"))
            yield derived(
                demand,
                "ray.demand-above-total",
                *([total] if total is not None else []),
                *others[:1],
                wanted=f"{wanted:g}",
                have=f"{have:g}",
            )
        else:
            yield derived(demand, "ray.enough-gpus", wanted=f"{wanted:g}", have=f"{have:g}")
    known = {clue.value("address") for clue in book.all("ray.node-address")}
    cluster = book.first("ray.address")
    for clue in book.all("ray.node-resource"):
        address = clue.value("address")
        if address.startswith("__internal"):
            continue
        if known and address not in known:
            yield derived(
                clue, "ray.unknown-node-address", *book.all("ray.node-address")[:2], known=", ".join(sorted(known))
            )
            return
        if not known and book.has("ray.enough-gpus") and re.search(r"pending|No available|Waiting", clue.lines[0].text):
            yield derived(clue, "ray.node-address-pending", *([cluster] if cluster else []))
            return
        if not known and not re.fullmatch(r"[\d.]+", address):
            yield derived(clue, "ray.node-address-is-a-name")
            return


def clock_hosts(book: ClueBook) -> Iterator[Clue]:
    """``clock.hosts-differ`` from what each host's clock says against NTP."""
    for clue in book.all("clock.offset"):
        if float(clue.value("seconds")) >= 1.0:
            yield derived(clue, "clock.offset-large")


def weights(book: ClueBook) -> Iterator[Clue]:
    """Loading that is far slower than a disk, and a load that took long."""
    for clue in reversed(book.all("weights.loading")):
        if (
            clue.value("unit") == "s/it"
            and re.fullmatch(r"[\d.]+", clue.value("rate"))
            and float(clue.value("rate")) > 8
        ):
            yield derived(clue, "weights.slow-shards", rate=clue.value("rate"))
            break
    for clue in book.all("weights.took"):
        seconds = float(clue.value("seconds") or clue.value("seconds2") or 0)
        if seconds > 900:
            yield derived(clue, "weights.took-long", seconds=f"{seconds:g}")
    waits = book.all("engine.shm-broadcast-wait")
    loaded = [clue for clue in book.all("weights.loading") if clue.value("percent") == "100"]
    if waits and loaded and (waits[0].count >= 2 or len(waits) >= 2):
        yield derived(waits[-1], "weights.stall-after-load", loaded[0])


def watchdogs(book: ClueBook) -> Iterator[Clue]:
    """``rank.died-first``: another process failed for its own reason before collectives complained, or beside them."""
    followers = book.all("collective.*", "kv-transfer.handshake", "kv-transfer.zmq-again", "engine.shm-broadcast-wait")
    if not followers:
        return
    causes = book.all(
        "cuda.illegal-access", "memory.cuda-oom", "nccl.cuda-oom", "engine.fatal", "process.segfault", "process.killed",
        "ray.actor-died",
        "process.bus-error", "engine.worker-died", "cuda.launch-failure",
    )  # fmt: skip
    own = [
        clue
        for clue in causes
        if not re.search(r"[Ww]atchdog|NCCL error|ncclRemote|DistBackendError", clue.lines[0].text)
    ]
    dated = [clue for clue in own if clue.time_s is not None]
    first = min(dated, key=lambda clue: clue.time_s or 0.0) if dated else (own[0] if own else None)
    if first is None:
        return
    apart = [
        clue for clue in followers
        if (clue.lines[0].file, clue.rank, clue.host) != (first.lines[0].file, first.rank, first.host)
    ]  # fmt: skip
    late = [clue for clue in apart if clue.time_s is None or first.time_s is None or clue.time_s >= first.time_s - 1.0]
    if late:
        who = f"rank {first.rank}" if first.rank is not None else (first.host or first.lines[0].file)
        yield derived(first, "rank.died-first", late[0], who=who, file=first.lines[0].file)


JOINS = (
    requests_side_by_side, answers_by_cache, scrapes, streams,
    statistics, hybrids, eval_collapse, processor, pcie, numa, software, ray_resources, clock_hosts, weights,
    watchdogs,
)  # fmt: skip
