"""What one request experienced: the record that `bench` measures and `simulate` computes, judged by one verdict."""

from __future__ import annotations

from dataclasses import dataclass

from roadworthy.core.latency import tpot_s

CLIENT_ERROR = "client: "
"""How an ``error`` begins that is the load generator's own, such as running out of file descriptors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request from its place in the schedule to its last token; the words are those of :mod:`core.latency`.

    All times are seconds since one origin that the run chose. ``t_first_s`` is None when no token came,
    ``t_last_s`` is the last token, or the moment of failure when ``ok`` is False.

    Args:
        t_sched_s: when the open-loop schedule wanted it sent.
        t_send_s: when it was sent; later than ``t_sched_s`` only when the client could not keep up.
        n_in: prompt tokens by the server's usage (the planned number when the request failed before usage came).
        n_out: output tokens by the server's usage.
        itl_s: gaps between successive stream events, in order.
        tenant: id of the tenant it was sent as, empty without tenants.
        engine: where it ran, empty when the client cannot know.
        kind: part of a mixed load that it belongs to, empty when the load is not mixed.
        cached_tokens: prompt tokens served from the prefix cache, None when the server does not say.
        error: why it failed, empty when ``ok``.
    """

    t_sched_s: float
    t_send_s: float
    t_first_s: float | None
    t_last_s: float
    n_in: int
    n_out: int
    ok: bool
    itl_s: tuple[float, ...] = ()
    tenant: str = ""
    engine: str = ""
    session: int = 0
    turn: int = 0
    cached_tokens: int | None = None
    error: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        if self.ok and self.t_first_s is None:
            raise ValueError(f"request of session {self.session}, turn {self.turn}: ok without a first token")
        if self.n_in < 0 or self.n_out < 0:
            raise ValueError(f"negative tokens: {self.n_in} in, {self.n_out} out")

    @property
    def client_queue_s(self) -> float:
        """Schedule to send: where a slow client or a concurrency cap hides."""
        return self.t_send_s - self.t_sched_s

    @property
    def ttft_s(self) -> float | None:
        """Send to first token, or None when none came."""
        return None if self.t_first_s is None else self.t_first_s - self.t_send_s

    @property
    def e2e_s(self) -> float:
        """Send to last token."""
        return self.t_last_s - self.t_send_s

    @property
    def user_ttft_s(self) -> float | None:
        """Schedule to first token, the one an open-loop test is judged on."""
        return None if self.t_first_s is None else self.t_first_s - self.t_sched_s

    @property
    def user_e2e_s(self) -> float:
        """Schedule to last token."""
        return self.t_last_s - self.t_sched_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first, or None with fewer than two tokens."""
        ttft = self.ttft_s
        return None if ttft is None else tpot_s(e2e_s=self.e2e_s, ttft_s=ttft, output_tokens=self.n_out)
