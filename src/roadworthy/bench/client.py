"""What the driver asks of whatever speaks to the engine. The HTTP client of `adapters` and the tests' fakes fit it.

The client reports times instead of handing over events one by one: it stamps an event where the bytes arrive, and
the driver wakes once a request, not once a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Role = Literal["system", "user", "assistant"]


class Message(NamedTuple):
    """One message of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One streamed chat completion. The answer is exactly ``output_tokens`` long where the engine can be told to
    ignore its stop token; ``key`` is the tenant's, None sends no ``Authorization``.

    Args:
        keep_text: whether the answer's text is wanted; reading it costs more than all else.
        to_its_end: the answer has ``output_tokens`` whatever the model would say; False lets it stop by itself.
        priority: sent to the engine, lower goes first; None sends none, which engines without priorities want.
    """

    messages: tuple[Message, ...]
    output_tokens: int
    key: str | None = None
    session: str = ""
    keep_text: bool = True
    to_its_end: bool = True
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came back, on the clock of the run.

    Args:
        token_times_s: when each stream event that carries tokens was read, rising.
        t_end_s: when the answer ended, or failed.
        text: the answer, to be carried into the next turn; empty when the request did not ask to keep it.
        n_in: prompt tokens by the server's usage; None when it sent none.
        n_out: output tokens by the server's usage; None when it sent none.
        cached_tokens: prompt tokens from the prefix cache, None when the server does not say.
        simulated: the engine says of itself that it is a simulation.
        error: why it failed, in few different words; empty when it did not.
    """

    token_times_s: tuple[float, ...]
    t_end_s: float
    text: str = ""
    n_in: int | None = None
    n_out: int | None = None
    cached_tokens: int | None = None
    simulated: bool = False
    error: str = ""


class EngineClient(Protocol):
    """Speaks to the target. ``generate`` never raises for what a service can do to us: that is an Outcome."""

    async def generate(self, request: GenerateRequest) -> Outcome: ...
