"""Where rules put what they find, and the words of the truth table that they find it by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.catalog.truth import truth_rows
from roadworthy.lint.values import Edit, LintProblem, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.lint.context import Context
    from roadworthy.lint.reading import Reading

OWN_RULES: dict[str, tuple[Status, str]] = {
    "vllm.unknown-flag": ("never_existed", "vLLM's parser does not know this flag, so the server does not start."),
    "vllm.removed-flag": ("removed", "This flag is gone; vLLM's parser refuses it and the server does not start."),
    "vllm.invalid-value": (
        "never_existed",
        "vLLM does not take this value for the flag, so the server does not start.",
    ),
    "vllm.conflict": ("context_dependent", "vLLM refuses these settings together."),
    "vllm.unknown-env": ("never_existed", "vLLM reads no such variable: it warns and goes on without it."),
    "nccl.unknown-env": ("never_existed", "NCCL reads no such variable and says nothing of it."),
    "nccl.invalid-value": ("never_existed", "NCCL does not know this value."),
    "ray.unknown-env": ("never_existed", "Ray reads no such variable and says nothing of it."),
    "torch.unknown-env": ("never_existed", "PyTorch reads no such variable, or refuses this option of it."),
    "vllm.unknown-metric": ("never_existed", "vLLM exports no metric of this name."),
}
"""Rules of this package that no row of the table stands for: status and reason."""

MAX_SETTING_CHARS = 160


class Judge:
    """One file being judged. Rules read ``reading`` and ``context`` and call ``report``."""

    def __init__(self, reading: Reading, context: Context) -> None:
        self.reading, self.context, self.text = reading, context, reading.text
        self.code = reading.code()
        self.problems: list[LintProblem] = []
        self._seen: set[tuple[str, int, str]] = set()
        self._lines: set[tuple[str, int]] = set()
        self._mentioned: dict[str, bool] = {}

    def report(
        self,
        rule: str,
        at: int,
        setting: str,
        *,
        reason: str = "",
        replacement: str | None = None,
        status: Status | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> None:
        """A problem at offset ``at``; what is not given comes from the table's row."""
        row = truth_rows().get(rule)
        if row is not None:
            given_status: Status = row.status
            given_reason, given_replacement = row.why, row.emit
        else:
            given_status, given_reason = OWN_RULES[rule]
            given_replacement = ""
        line = self.reading.lines.line(min(at, len(self.text)))
        shown = _shown(setting)
        if (rule, line, shown) in self._seen:
            return
        self._seen.add((rule, line, shown))
        self._lines.add((rule, line))
        self.problems.append(
            LintProblem(
                file=self.reading.file,
                line=line,
                rule=rule,
                setting=shown,
                status=status or given_status,
                reason=reason or given_reason,
                replacement=instead_of(given_replacement if replacement is None else replacement),
                edits=edits,
                offset=at,
            )
        )

    def has(self, rule: str, line: int) -> bool:
        """Whether the rule has spoken of this line."""
        return (rule, line) in self._lines

    def mentions(self, pattern: str) -> bool:
        """Whether anything that is not a comment matches; looked up once a file, however many settings ask."""
        known = self._mentioned.get(pattern)
        if known is None:
            known = self._mentioned[pattern] = re.search(pattern, self.code) is not None
        return known

    def found(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Matches in what is not a comment."""
        return pattern.finditer(self.code)


def instead_of(replacement: str) -> str:
    """The table speaks to a generator (emit nothing), a reader has a file in front of him."""
    return re.sub(r"^(?:Emit nothing|Omit|Drop them|Do not (?:emit|generate))\b", "leave it out", replacement)


def _shown(setting: str) -> str:
    text = " ".join(re.sub("\ue000+", "{{...}}", setting).split())
    return text if len(text) <= MAX_SETTING_CHARS else text[: MAX_SETTING_CHARS - 3] + "..."
