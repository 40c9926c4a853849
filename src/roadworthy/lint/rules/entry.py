"""How vLLM is started: entry points, old modules, and whole command lines known to fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.lint.values import Edit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.values import Flag, Invocation, Word

_BENCH = re.compile(r"(?:vllm\.benchmarks\.benchmark_|^python benchmark_)(serving|latency|throughput)(?:\.py)?$")
_BENCH_WORDS = {"serving": "serve", "latency": "latency", "throughput": "throughput"}


def check_entry(judge: Judge) -> None:
    for invocation in judge.reading.invocations:
        if invocation.module == "vllm.entrypoints.api_server":
            judge.report(
                "entry.api_server", _module_at(invocation), _said(invocation), edits=_to_serve(judge, invocation)
            )
            if _is_old_line(judge, invocation):
                judge.report("cmd.brief.api_server", invocation.start, _said(invocation), reason=_OLD_LINE)
        elif invocation.module == "vllm.entrypoints.openai.api_server":
            judge.report(
                "entry.openai.api_server",
                _module_at(invocation),
                _said(invocation),
                reason="A deprecated shim: it warns and hands over to `vllm serve`.",
                replacement="vllm serve MODEL ...",
                edits=_to_serve(judge, invocation),
            )
        elif match := _BENCH.search(invocation.module or invocation.program):
            _bench(judge, invocation, match.group(1))
        if invocation.program == "vllm serve" and not invocation.fragment:
            _known_lines(judge, invocation)
    _imports(judge)


_OLD_LINE = "Module, model and flag of this line do not exist: nothing of it starts."


def _module_at(invocation: Invocation) -> int:
    for word in invocation.program_words:
        if "api_server" in word.value:
            return word.start
    return invocation.start


def _said(invocation: Invocation) -> str:
    return " ".join(word.value for word in invocation.program_words) or invocation.program


def _is_old_line(judge: Judge, invocation: Invocation) -> bool:
    return judge.context.model(invocation) == "v4-32b" or invocation.flag("--enable-async-output-proc") is not None


def _to_serve(judge: Judge, invocation: Invocation) -> tuple[Edit, ...]:
    """``python -m MODULE --model M`` as ``vllm serve M``."""
    words = invocation.program_words
    if not words or any(word.layout == "fixed" for word in words):
        return ()
    model = invocation.flag("--model")
    if model is None and not invocation.positionals:
        return ()
    edits = _program_edits(judge.text, words, ("vllm", "serve"))
    if not edits or model is None:
        return edits
    moved = _model_in_place(judge.text, invocation, model)
    return (*edits, *moved) if moved else ()


def _program_edits(text: str, words: Sequence[Word], names: tuple[str, str]) -> tuple[Edit, ...]:
    from roadworthy.lint.edits import remove_words

    given: list[Word] = list(words)
    if len(given) < 2:
        return ()
    first, second, *rest = given
    edits: list[Edit] = []
    for word, name in ((first, names[0]), (second, names[1])):
        low, high = word.piece.at(0), word.piece.at(len(word.value))
        if high - low != len(word.value):
            return ()
        edits.append(Edit(start=low, end=high, text=name))
    for word in rest:
        edits.extend(remove_words(text, (word,)))
    return tuple(edits)


def _model_in_place(text: str, invocation: Invocation, flag: Flag) -> tuple[Edit, ...]:
    """``--model M`` becomes M where it stands, unless a flag before it would swallow it."""
    index = invocation.flags.index(flag)
    before = invocation.flags[index - 1] if index else None
    if before is not None and len(before.values) > 1:
        return ()
    if flag.inline is not None:
        low = flag.word.piece.at(0)
        return (Edit(start=low, end=low + len("--model="), text=""),)
    if not flag.values:
        return ()
    from roadworthy.lint.edits import remove_words

    if flag.word.layout in ("yaml-block", "yaml-flow"):
        return remove_words(text, (flag.word,))
    return (
        (Edit(start=flag.word.start, end=flag.values[0].start, text=""),)
        if flag.word.end <= flag.values[0].start
        else ()
    )


def _bench(judge: Judge, invocation: Invocation, what: str) -> None:
    words = list(invocation.program_words)
    edits: tuple[Edit, ...] = ()
    if len(words) >= 2 and all(word.layout in ("shell", "array", "folded") for word in words):
        edits = (Edit(start=words[0].start, end=words[-1].end, text=f"vllm bench {_BENCH_WORDS[what]}"),)
    judge.report(
        "bench.module", words[-1].start if words else invocation.start, _said(invocation), replacement=f"vllm bench"
        f" {_BENCH_WORDS[what]} ...",
        edits=edits,
    )  # fmt: skip


_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+(vllm\.(?:entrypoints\.api_server|benchmarks\.benchmark_\w+))", re.MULTILINE
)
_MODULE_WORD = re.compile(
    r"(?<![\w./])(vllm\.entrypoints\.api_server|vllm\.benchmarks\.benchmark_(?:serving|latency|throughput))(?![\w])"
)


def _imports(judge: Judge) -> None:
    """The modules where no command was recognised around them."""
    for match in judge.found(_MODULE_WORD):
        rule = "entry.api_server" if "api_server" in match.group(1) else "bench.module"
        line = judge.reading.lines.line(match.start(1))
        if not judge.has(rule, line):
            judge.report(rule, match.start(1), match.group(1))


def _known_lines(judge: Judge, invocation: Invocation) -> None:
    context = judge.context
    if not context.uses_ray(invocation):
        return
    degrees, model = context.degrees(invocation), context.model(invocation)
    if (degrees.pp or 1) < 2:
        return
    if model in ("v4", "v4-0813") and invocation.flag("--quantization", "-q") is not None:
        judge.report(
            "cmd.brief.v4-ray",
            invocation.start,
            f"vllm serve over Ray, TP {degrees.tp} x PP {degrees.pp}, --quantization",
            reason="On 0.32 --disable-log-requests stops the parser; --quantization does nothing for V4-Pro;"
            " expandable_segments with the"
            " default all-reduce is expected to end the workers at graph capture.",
            replacement="a checked line: roadworthy render --target ray, or native mp with --nnodes",
        )
    elif model == "k3" and (
        invocation.flag("--max-num-seqs") is None or invocation.flag("--max-num-batched-tokens") is None
    ):
        if invocation.unexpanded:
            return
        judge.report(
            "cmd.brief.k3-ray",
            invocation.start,
            f"vllm serve over Ray, TP {degrees.tp} x PP {degrees.pp}, without --max-num-seqs",
            reason="Without --max-num-seqs and --max-num-batched-tokens the defaults are 1024 and 8192: far above"
            " what a hybrid model's"
            " state leaves room for on Hopper, where the start was seen to run out of memory.",
            replacement="--max-num-seqs 32 --max-num-batched-tokens 4096, by what the plan says fits",
        )
