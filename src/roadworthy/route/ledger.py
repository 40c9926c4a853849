"""What is billed: one row for each request that reached an engine, and the sums of a day.

Values only: the gateway fills them in, a store keeps them, and neither knows the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(slots=True)  # by position too: thirteen keywords cost as much as the rest
class LedgerRow:
    """One request, as it is billed. Nobody changes it once it is made; freezing it would take three times as long.

    Args:
        request_id: unique; a second row of the same id is the same request told twice, and counts once.
        model: that answered, which need not be the one asked for.
        endpoint: the engine it ran on, "" for none.
        operation: such as ``chat`` or ``completions``.
        started_s: seconds of the epoch; its day in UTC is the day that it is summed under.
        cached_tokens: the part of ``prompt_tokens`` that came from the prefix cache.
        ending: how it ended, a word of low cardinality such as ``completed``.
        status: the HTTP status that the client got, 0 for none.
        estimated: the tokens were reckoned by us, no engine said them.
        worker: the process that served it.
    """

    request_id: str
    tenant_id: str
    model: str
    started_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    endpoint: str = ""
    operation: str = ""
    ending: str = ""
    status: int = 0
    estimated: bool = False
    worker: str = ""

    def __post_init__(self) -> None:
        if self.prompt_tokens < 0 or self.output_tokens < 0 or self.cached_tokens < 0:
            raise ValueError(f"request {self.request_id}: negative tokens")

    @property
    def day(self) -> str:
        """The day in UTC that it is summed under, as ``YYYY-MM-DD``."""
        return day_of(self.started_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One tenant's finished requests for one model on one day (UTC, ``YYYY-MM-DD``)."""

    day: str
    tenant: str
    model: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


def day_of(time_s: float) -> str:
    """The day in UTC of a time in seconds of the epoch, as ``YYYY-MM-DD``."""
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%d")
