"""Flags of `vllm serve`, one at a time: known to the version, spelled in full, with a value that it takes."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from roadworthy.catalog.truth import truth_rows
from roadworthy.lint.edits import remove_flag, rename_flag
from roadworthy.lint.rules.judge import OWN_RULES, Judge

if TYPE_CHECKING:
    from roadworthy.catalog.flags import FlagAnswer, FlagFact
    from roadworthy.lint.values import Edit, Flag, Invocation, Status

# Names that guides invent in many spellings, by what they claim to do. Asked only of flags that no version has.
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("vllm.moe-capacity-factor", r"--(?:moe-|expert-)*capacity(?:-factor)?$|--moe-(?:token-)?drop.*"),
    ("vllm.moe-redundant-experts", r"--(?:moe-|ep-|num-|eplb-)*redundant-experts$"),
    ("vllm.moe-async-all-to-all", r"--(?:enable-)?(?:moe-|ep-)?async-(?:all-?to-?all|all2all|a2a)$"),
    (
        "vllm.topology-tp8-pp2-ep2",
        r"--(?:moe-)?(?:ep|expert(?:-model)?-parallel|ep-parallel)(?:-(?:size|degree|world-size))?$",
    ),
    (
        "vllm.cuda-graph-max-batch-size",
        r"--(?:max-)?cuda-?graph-(?:max-)?(?:batch-sizes?|sizes?|bs)$|--max-(?:seq|context)-len-to-capture$",
    ),
    ("vllm.enable-async-output-proc", r"--(?:enable-|disable-|use-)?async-output-proc.*"),
    (
        "vllm.cpu-offload",
        r"--(?:n-|num-)?(?:gpu|cpu)(?:-(?:only|cpu|gpu|offload))*-layers?$|--layers?-(?:offload|placement|split).*"
        r"|--offload-(?:layers?|tiers?|mode|policy|strategy)$|--(?:three-tier|tiered|hybrid)-.*offload.*"
        r"|--cpu-offload-layers$",
    ),
    (
        "vllm.kv-offloading",
        r"--(?:enable-)?kv-(?:cache-)?(?:on-)?(?:cpu|offload|host|device)(?:-.*)?$|--cpu-kv-.*|--offload-kv.*"
        r"|--kv-offload(?:-.*)?$",
    ),
    (
        "vllm.admission-and-priority",
        r"--(?:.*-)?tenant(?:s|-.*)?$|--(?:enable-)?priority-(?:queues?|levels?|scheduling).*|--.*force-gc.*"
        r"|--kv-(?:cache-)?gc.*"
        r"|--.*(?:kv|memory)-quota.*|--(?:enable-)?dynamic-batch.*|--.*batch-shrink.*",
    ),
    (
        "gw.kda-redis",
        r"--.*kda.*redis.*|--.*redis.*kda.*|--kda-state-.*|--(?:linear-)?attn-state-(?:redis|store|backend|sync).*",
    ),
    ("gw.stream-sticky-packets", r"--(?:enable-)?(?:sse|stream(?:ing)?)-(?:timestamps?|reorder|sequence).*"),
    ("proc.zrd", r"--(?:enable-|use-)?zrd(?:-.*)?$"),
    ("metric.expert-histogram", r"--(?:enable-)?(?:moe-|expert-).*(?:histogram|token-metrics|load-metrics)$"),
)


@lru_cache(maxsize=1)
def _families() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((rule, re.compile(pattern)) for rule, pattern in _FAMILIES)


def family_of(name: str) -> str:
    """The rule that an invented flag falls under by what its name claims, empty for none."""
    return next((rule for rule, pattern in _families() if pattern.fullmatch(name)), "")


_GENERIC = frozenset({"--device", "--task", "--context-length", "--tp-size", "--ep", "--capacity"})
"""Spellings that other programs have too: judged only where the command is vLLM's for sure."""
_OTHERS = re.compile(
    r"^(?:docker|podman|nerdctl|kubectl|oc|helm|ray|git|pip3?|curl|apt.*|ssh|systemctl|numactl|echo|printf|grep|sed"
    r"|awk)\b"
)


def check_flags(judge: Judge) -> None:
    """Every flag of every command that is, or may be, vLLM's."""
    for invocation in judge.reading.invocations:
        if invocation.program == "vllm serve":
            for flag in invocation.flags:
                _flag(judge, invocation, flag)
        elif not _OTHERS.match(invocation.program):
            for flag in invocation.flags:
                _distinctive(judge, flag)


def _flag(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    catalog = judge.context.book.catalog
    answer = catalog.explain(flag.name)
    if answer.accepted and answer.row_id != "vllm.abbreviated-flags":
        found = catalog.match(flag.name)
        if found is not None and found.value is None and not flag.dynamic:
            _value(judge, invocation, flag, found.flag, found.key_path)
        return
    if answer.row_id == "vllm.disable-log-requests":
        return  # judged with its version
    if not flag.name.startswith("--") and len(flag.name) < 4:
        if re.fullmatch(r"-[a-z]", flag.name) and not invocation.fragment:
            _report(judge, flag, answer, "vllm.unknown-flag")
        return
    if not _distinctive(judge, flag, answer):
        if invocation.fragment and not _surely_vllm(judge, invocation):
            return
        _report(judge, flag, answer, _own_rule(answer))


def _surely_vllm(judge: Judge, invocation: Invocation) -> bool:
    if invocation.module in ("python", "config"):
        return invocation.module == "config" and not invocation.fragment
    known = sum(judge.context.book.match(flag.name) is not None for flag in invocation.flags)
    return (judge.context.mentions_vllm and known > 0) or (known * 2 >= len(invocation.flags) and known > 0)


def _own_rule(answer: FlagAnswer) -> str:
    if answer.row_id:
        return answer.row_id
    return "vllm.removed-flag" if answer.status in ("removed", "renamed") else "vllm.unknown-flag"


def _distinctive(judge: Judge, flag: Flag, answer: FlagAnswer | None = None) -> bool:
    """Report a flag that the table knows as false, whatever program it stands with. Says whether it did."""
    surely = answer is not None
    answer = answer or judge.context.book.catalog.explain(flag.name)
    if answer.accepted and answer.row_id != "vllm.abbreviated-flags":
        return True
    if flag.name in _GENERIC and not surely:
        return False
    if answer.row_id and answer.row_id not in ("vllm.abbreviated-flags", "vllm.disable-log-requests"):
        _report(judge, flag, answer, answer.row_id)
        return True
    rule = family_of(flag.name)
    if rule:
        _report(judge, flag, answer, rule)
    return bool(rule)


def _report(judge: Judge, flag: Flag, answer: FlagAnswer, rule: str) -> None:
    row = truth_rows().get(rule)
    status: Status = answer.status
    if row is not None and row.status in ("never_existed", "removed", "dangerous", "renamed"):
        status = row.status
    elif row is not None and status == "real":
        status = "never_existed"
    elif row is None and rule == "vllm.removed-flag" and status == "renamed":
        status = "renamed"
    reason = answer.reason if answer.row_id == rule or row is None else row.why
    replacement = answer.replacement if answer.row_id == rule or row is None else row.emit
    judge.report(
        rule,
        flag.word.start,
        flag.text,
        status=status,
        reason=reason or (OWN_RULES[rule][1] if rule in OWN_RULES else ""),
        replacement=replacement,
        edits=_mend(judge, flag, answer, rule),
    )


def _mend(judge: Judge, flag: Flag, answer: FlagAnswer, rule: str) -> tuple[Edit, ...]:
    if rule == "vllm.moe-redundant-experts":
        return remove_flag(judge.text, flag)  # its value would have to divide, and EPLB be on
    if answer.renamed_to:
        return rename_flag(judge.text, flag, answer.renamed_to)
    if rule in ("vllm.unknown-flag", "vllm.abbreviated-flags"):
        near = re.search(r"did you mean ['\"]?(--[\w.-]+)", answer.replacement)
        return rename_flag(judge.text, flag, near.group(1)) if near and _close(flag.name, near.group(1)) else ()
    if rule == "vllm.topology-tp8-pp2-ep2" and not _has_ep(judge, flag):
        edits = rename_flag(judge.text, flag, "--enable-expert-parallel")
        if not edits or flag.inline is not None:
            return ()
        if not flag.values:
            return edits
        from roadworthy.lint.edits import remove_words

        return (*edits, *remove_words(judge.text, flag.values))
    return remove_flag(judge.text, flag)


def _has_ep(judge: Judge, flag: Flag) -> bool:
    return any(
        flag in one.flags and one.flag("--enable-expert-parallel", "-ep") is not None
        for one in judge.reading.invocations
    )


def _close(wrong: str, right: str) -> bool:
    """Whether a misspelling is near enough to be mended without asking: one or two letters of a long name."""
    from difflib import SequenceMatcher

    return len(wrong) > 8 and SequenceMatcher(None, wrong, right).ratio() > 0.93


def _value(judge: Judge, invocation: Invocation, flag: Flag, fact: FlagFact, key_path: tuple[str, ...]) -> None:
    """The value, if the parser would refuse it."""
    value = flag.value
    if value is None:
        if (
            (
                fact.takes_value
                and fact.nargs != "?"
                and not flag.values
                and flag.inline is None
                and not invocation.unexpanded
            )
            and invocation.program == "vllm serve"
            and not invocation.fragment
            and invocation.flags[-1] is not flag
        ):
            _invalid(judge, flag, f"{flag.name} needs a value")
        return
    if not fact.takes_value:
        if flag.inline is not None and flag.name == "--enable-expert-parallel":
            judge.report(
                "vllm.topology-tp8-pp2-ep2",
                flag.word.start,
                flag.text,
                edits=rename_flag(judge.text, _bare(flag), flag.name) and (),
            )
        return
    if key_path or "\ue000" in value:
        return
    if fact.choices and value not in fact.choices and (not fact.open_choices or fact.name == "--kv-cache-dtype"):
        _choice(judge, flag, fact, value)
    elif fact.kind in ("integer", "number") and not _is_number(value, fact):
        _invalid(
            judge,
            flag,
            f"{flag.name} takes {'a whole number' if fact.kind == 'integer' else 'a number'}, not {value!r}",
        )
    elif fact.kind == "json" and value.lstrip().startswith("{"):
        _json(judge, flag, fact, value)
    elif flag.name == "--gpu-memory-utilization":
        _share(judge, flag, value)
    if flag.name == "--gpu-memory-utilization":
        _share(judge, flag, value)


def _bare(flag: Flag) -> Flag:
    return flag


def _share(judge: Judge, flag: Flag, value: str) -> None:
    try:
        share = float(value)
    except ValueError:
        return
    if not 0 < share <= 1:
        _invalid(judge, flag, f"a share of the device's memory lies above 0 and up to 1, not {value}", "such as 0.92")


def _choice(judge: Judge, flag: Flag, fact: FlagFact, value: str) -> None:
    if fact.name == "--mamba-cache-mode":
        judge.report(
            "vllm.prefix-caching-hybrid",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason=f"{judge.context.book.catalog.label} refuses {value!r}; the mode follows prefix caching",
            replacement="leave it out",
            edits=remove_flag(judge.text, flag),
        )
        return
    from difflib import get_close_matches

    near = get_close_matches(value, fact.choices, n=1)
    known = ", ".join(fact.choices) if len(fact.choices) <= 12 else f"{', '.join(fact.choices[:12])}, …"
    judge.report(
        "vllm.invalid-value",
        flag.word.start,
        flag.text,
        status="context_dependent" if fact.open_choices else None,
        reason=f"{judge.context.book.catalog.label} takes one of {known}"
        + ("; another only where a plugin adds it" if fact.open_choices else ""),
        replacement=f"{flag.name} {near[0]}" if near else "",
    )


def _invalid(judge: Judge, flag: Flag, reason: str, replacement: str = "") -> None:
    judge.report("vllm.invalid-value", flag.word.start, flag.text, reason=reason, replacement=replacement)


def _is_number(value: str, fact: FlagFact) -> bool:
    text = value.strip()
    if re.search(r"[$<>{}]|^[A-Z_]+$", text) or text in fact.words or not text:
        return True
    if fact.suffixes and re.fullmatch(r"\d+(?:\.\d+)?[kKmMgGtT]i?", text):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return fact.kind == "number" or bool(re.fullmatch(r"[+-]?\d+", text))


def _json(judge: Judge, flag: Flag, fact: FlagFact, value: str) -> None:
    try:
        document = json.loads(value)
    except ValueError as error:
        if "$" not in value:
            _invalid(judge, flag, f"not JSON: {error}")
        return
    if not isinstance(document, dict) or fact.open_keys:
        return
    for name in document:
        if name not in fact.keys:
            answer = judge.context.book.catalog.explain(f"{fact.name}.{name}")
            if answer.accepted:
                continue
            rule = family_of("--" + name.replace("_", "-"))
            if rule in ("", "vllm.moe-redundant-experts"):
                rule = "vllm.unknown-flag"
            judge.report(
                rule,
                flag.word.start,
                f"{fact.name}.{name}",
                status="never_existed",
                reason=answer.reason if rule == "vllm.unknown-flag" else "",
                replacement=answer.replacement,
            )
