#!/usr/bin/env python3
"""Scores ingest, chunks and search on the shared long-document corpus; exit 1 when a limit is missed.

    scripts/longdoc_score.py [CORPUS]     the corpus folder (default: $ROADWORTHY_TEST_DATA/corpus/longdoc)
    --home DIR                            keep the store there and use it again; embedding takes minutes
    --no-vectors                          words and numbers alone, without limits on retrieval
    --only PART                           units, contracts, search, citations, reading, ocr, ingest or speed; may be
                                          given again. ocr and ingest take minutes
    --json                                one JSON document

Recall is counted over the first 20 units of an answer: R@k, the share of a question's gold sections among the first k;
R@2k, among those whose texts fit 2,000 tokens (of DeepSeek-V4's tokenizer where it is installed, else by bytes). A
question with one gold section is also answered by one that its authors found as good.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

from longdoc_measures import Limit, read_lines, score_citations, score_ingest, score_ocr, score_reading

from roadworthy.adapters.embeddings import numpy_on_one_core

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {"zh/civil_code.md": 1260, "en/gdpr.txt": 272, "en/us_constitution.txt": 52, "en/rfc9110.txt": 298}
OWN_QUESTIONS = ("everyday_questions.jsonl", "drawn_questions.jsonl")
"""Everyday words: written before any ranking saw them, and on articles drawn by lot, after the dictionary was done."""

QUESTIONS = {"zh": "questions/civil_code.zh.jsonl", "en": "questions/english_docs.en.jsonl"}
PARTS = ("units", "contracts", "search", "citations", "reading", "ocr", "ingest", "speed")
LOOKED_AT = 20
BUDGET_TOKENS = 2_000
AT_LEAST = {
    ("zh", "all", "R@2k"): 0.86,
    ("en", "all", "R@2k"): 0.70,
    ("zh", "paraphrase", "R@10"): 0.65,
    ("en", "paraphrase", "R@10"): 0.65,
    ("zh", "by_number", "R@1"): 1.0,
    ("en", "by_number", "R@1"): 1.0,
}
SPANS_WHOLE, MEAN_TOKENS, MOST_TOKENS = 0.99, 700, 2_000
CITED = 60
"""Questions that a lying model answers."""

CHUNKS, ASKED = 100_000, 300
P50_S, P99_S = 0.010, 0.030


def count_tokens() -> Callable[[str], int]:
    """DeepSeek's own count where its tokenizer is installed."""
    from roadworthy.adapters.longdoc_tokens import counter_for

    return counter_for("deepseek")


def doc(*arguments: str | Path) -> str:
    """Run `roadworthy doc …`; its stdout."""
    command = [sys.executable, "-m", "roadworthy", "doc", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}")
    return done.stdout


# --- units -----------------------------------------------------------------------------------------------------------


def score_units(corpus: Path) -> Iterator[Limit]:
    """Every section of every text is one unit, at its place."""
    from roadworthy.longdoc.split import split
    from roadworthy.longdoc.tokens import count_tokens as by_bytes

    for name, wanted in TEXTS.items():
        text = (corpus / name).read_text(encoding="utf-8")
        units, _ = split(text, by_bytes)
        sections = [
            (one["char_start"], one["char_end"]) for one in read_lines((corpus / name).with_suffix(".sections.jsonl"))
        ]
        alone = 0
        for unit in units:
            inside = [(low, high) for low, high in sections if low < unit.char_end and unit.char_start < high]
            alone += len(inside) == 1 and unit.char_start <= inside[0][0] and inside[0][1] <= unit.char_end
        yield Limit(f"{name}: sections that are one unit", alone, f"{wanted}", alone == wanted == len(units))


def score_contracts(corpus: Path) -> Iterator[Limit]:
    """Lawyers' clause spans lie whole inside one unit."""
    from roadworthy.longdoc.split import split
    from roadworthy.longdoc.tokens import count_tokens as by_bytes

    count = count_tokens()
    spans = defaultdict(list)
    for one in read_lines(corpus / "contracts/clause_spans.jsonl"):
        spans[one["contract"]].append((one["char_start"], one["char_end"]))
    sizes: list[int] = []
    whole = total = overlaps = 0
    for contract, labelled in sorted(spans.items()):
        units, _ = split((corpus / f"contracts/{contract}.txt").read_text(encoding="utf-8"), by_bytes)
        places = [(unit.char_start, unit.char_end) for unit in units]
        overlaps += sum(after[0] < before[1] for before, after in pairwise(places))
        sizes += [count(unit.text) for unit in units]
        total += len(labelled)
        whole += sum(any(start <= low and high <= end for start, end in places) for low, high in labelled)
    yield Limit("clause spans whole", whole / total, f">= {SPANS_WHOLE}", whole / total >= SPANS_WHOLE)
    mean = statistics.fmean(sizes)
    yield Limit("mean tokens of a contract's unit", mean, f"<= {MEAN_TOKENS}", mean <= MEAN_TOKENS)
    yield Limit("tokens of the largest unit", max(sizes), f"<= {MOST_TOKENS}", max(sizes) <= MOST_TOKENS)
    yield Limit("units that overlap", overlaps, "0", overlaps == 0)


# --- search ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with what came back: ids of sections in their order, and the tokens of each."""

    question: Mapping[str, Any]
    sections: Sequence[str | None]
    tokens: Sequence[int]

    def recall(self, within: Sequence[str | None]) -> float:
        gold, found = self.question["gold"], set(within)
        if len(gold) == 1:
            return float(any(one in found for one in (*gold, *self.question["also_ok"])))
        return sum(one in found for one in gold) / len(gold)

    def within_budget(self) -> Sequence[str | None]:
        spent = 0
        for place, tokens in enumerate(self.tokens):
            spent += tokens
            if spent > BUDGET_TOKENS:
                return self.sections[:place]
        return self.sections

    def ndcg(self) -> float:
        gold = set(self.question["gold"])
        gain = sum(1 / log2(place + 2) for place, one in enumerate(self.sections[:10]) if one in gold)
        return gain / sum(1 / log2(place + 2) for place in range(min(10, len(gold))))


def all_questions(corpus: Path) -> list[dict[str, Any]]:
    """Answerable ones of the corpus, then our own, whose kinds are told apart."""
    own = [ROOT / "tests/data/longdoc" / name for name in OWN_QUESTIONS]
    return [
        one
        for path in (*(corpus / name for name in QUESTIONS.values()), *own)
        for one in read_lines(path)
        if one["gold"]
    ]


def ask(corpus: Path, home: Path, *, vectors: bool) -> list[Answered]:
    """Every answerable question, over all documents in one store."""
    names = [corpus / name for name in TEXTS]
    doc("ingest", *names, "--home", home, *([] if vectors else ["--no-vectors"]))
    places = {
        str(corpus / name): [
            (one["char_start"], one["char_end"], one["id"])
            for one in read_lines((corpus / name).with_suffix(".sections.jsonl"))
        ]
        for name in TEXTS
    }
    questions = all_questions(corpus)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as asked:
        asked.writelines(json.dumps({"question": one["question"]}, ensure_ascii=False) + "\n" for one in questions)
        asked.flush()
        printed = doc("search", "--batch", asked.name, "--json", "--limit", str(LOOKED_AT), "--home", home)
    count = count_tokens()
    answered = []
    for question, line in zip(questions, printed.splitlines(), strict=True):
        results = json.loads(line)["results"]
        sections = [_section(places.get(one["document"], ()), one["start"], one["end"]) for one in results]
        answered.append(Answered(question, sections, [count(one["text"]) for one in results]))
    return answered


def _section(places: Sequence[tuple[int, int, str]], start: int, end: int) -> str | None:
    """The section that mostly lies within a result."""
    return next((name for low, high, name in places if 2 * (min(high, end) - max(low, start)) > high - low), None)


def table(answered: Sequence[Answered]) -> dict[tuple[str, str], dict[str, float]]:
    """Measures by language and kind of question."""
    groups: dict[tuple[str, str], list[Answered]] = defaultdict(list)
    for one in answered:
        if one.question["type"] not in ("everyday", "drawn"):
            groups[one.question["lang"], "all"].append(one)
        groups[one.question["lang"], one.question["type"]].append(one)
    measured = {}
    for key, members in sorted(groups.items()):
        row = {f"R@{k}": statistics.fmean(one.recall(one.sections[:k]) for one in members) for k in (1, 5, 10)}
        row["nDCG"] = statistics.fmean(one.ndcg() for one in members)
        row["R@2k"] = statistics.fmean(one.recall(one.within_budget()) for one in members)
        measured[key] = {"questions": len(members)} | row
    return measured


# --- speed -----------------------------------------------------------------------------------------------------------


def score_speed(corpus: Path) -> Iterator[Limit]:
    """Time on one core of a search without the question's embedding, over units made of the corpus' own sentences."""
    import random

    import numpy

    from roadworthy.adapters.longdoc_index import open_index
    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.lexical import count_terms
    from roadworthy.longdoc.search import Searcher
    from roadworthy.longdoc.values import Unit

    draw = random.Random(5)
    numbers = numpy.random.default_rng(5)
    sentences = [
        line.strip()
        for name in TEXTS
        for line in (corpus / name).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    questions = [one["question"] for name in QUESTIONS.values() for one in read_lines(corpus / name)]
    with tempfile.TemporaryDirectory() as folder, DocumentStore(Path(folder)) as store:
        for document in range(CHUNKS // 1000):
            units, at = [], 0
            for number in range(1, 1001):
                text = " ".join(draw.choices(sentences, k=2))
                path = (f"Part {number // 50}",)
                units.append(
                    Unit(kind="section", number=str(number), label=f"Section {number}", title="", path=path, text=text,
                         char_start=at, char_end=at + len(text))
                )  # fmt: skip
                at += len(text) + 1
            vectors = numbers.standard_normal((1000, 384)).astype(numpy.float32) * 0.05 + 0.045
            vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
            store.put(f"document-{document}", str(document), at, units, count_terms(one.text for one in units), vectors)
        began = time.perf_counter()
        searcher = Searcher(open_index(store, Path(folder)), store)
        print(f"index of {CHUNKS:,} units made in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        took = []
        for _ in range(ASKED):
            vector = numbers.standard_normal(384).astype(numpy.float32) * 0.05 + 0.045
            vector /= numpy.linalg.norm(vector)
            question = draw.choice(questions)
            began = time.thread_time()
            searcher.search(question, vector=vector)
            took.append(time.thread_time() - began)
    took.sort()
    p50_s, p99_s = took[len(took) // 2], took[int(len(took) * 0.99)]
    yield Limit(f"search of {CHUNKS:,} units, p50 ms", p50_s * 1e3, f"< {P50_S * 1e3:g}", p50_s < P50_S)
    yield Limit(f"search of {CHUNKS:,} units, p99 ms", p99_s * 1e3, f"< {P99_S * 1e3:g}", p99_s < P99_S)


# --- all of it -------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--no-vectors", action="store_true")
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    corpus = options.corpus or Path(os.environ.get("ROADWORTHY_TEST_DATA", "")) / "corpus/longdoc"
    if not (corpus / "zh/civil_code.md").is_file():
        print(f"no corpus at {corpus}: name it, or set ROADWORTHY_TEST_DATA", file=sys.stderr)
        return 3
    numpy_on_one_core()  # figures are those of one core
    parts = options.only or PARTS
    limits: list[Limit] = []
    measured: dict[tuple[str, str], dict[str, float]] = {}
    if "units" in parts:
        limits += score_units(corpus)
    if "contracts" in parts:
        limits += score_contracts(corpus)
    if "search" in parts or "citations" in parts:
        with tempfile.TemporaryDirectory() as folder:
            home = options.home or Path(folder)
            measured = table(ask(corpus, home, vectors=not options.no_vectors))
            if "citations" in parts:
                limits += score_citations(home, all_questions(corpus), CITED)
        if "search" in parts and not options.no_vectors:
            limits += [
                Limit(f"{language} {kind} {name}", found, f">= {least}", found >= least)
                for (language, kind, name), least in AT_LEAST.items()
                for found in [measured[language, kind][name]]
            ]
    for part, score in (("reading", score_reading), ("ocr", score_ocr), ("ingest", score_ingest)):
        if part in parts:
            limits += score(corpus)
    if "speed" in parts:
        limits += score_speed(corpus)
    report(measured, limits, as_json=options.json)
    return 0 if all(one.met for one in limits) else 1


def report(measured: Mapping[tuple[str, str], Mapping[str, float]], limits: Sequence[Limit], *, as_json: bool) -> None:
    if as_json:
        rows = [{"language": language, "type": kind, **row} for (language, kind), row in measured.items()]
        print(
            json.dumps(
                {"search": rows, "limits": [{name: getattr(one, name) for name in Limit.__slots__} for one in limits]}
            )
        )
        return
    if measured:
        names = list(next(iter(measured.values())))
        print(f"{'':18}" + "".join(f"{name:>11}" for name in names))
        for (language, kind), row in measured.items():
            print(
                f"{language} {kind:15}"
                + "".join(f"{row[name]:11.3f}" if name != "questions" else f"{row[name]:11d}" for name in names)
            )
        print()
    for one in limits:
        print(f"{one.name:60} {one.measured:10.3f}   {one.wanted:10} {'ok' if one.met else 'missed'}")


if __name__ == "__main__":
    sys.exit(main())
