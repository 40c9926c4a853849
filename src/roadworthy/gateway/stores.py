"""What a gateway keeps outside itself: it declares what it needs, ``cli.wiring`` brings it, tests bring fakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from roadworthy.gateway.billing import Ledger
    from roadworthy.route.govern.values import AsyncMeter
    from roadworthy.route.ledger import LedgerRow


class SharedMeter(Protocol):
    """A meter on a store that others count in too: ``route.govern.values.AsyncMeter``, and what its leases live."""

    @property
    def ttl_s(self) -> float: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """How to reach them; None for what there is none of. Each process opens its own.

    Args:
        ledger: begins to write rows in the background.
        write_ledger: writes rows before it returns; blocks. For what dead processes owe.
        journal: the folder of journals.
        tokens_of_day: prompt and output tokens of a day (``YYYY-MM-DD``, UTC) by tenant; blocks. Daily budgets go on
            with it after a start.
        meter: opens the shared meter.
        secret: 32 random bytes by name, kept by the store; blocks.
    """

    ledger: Callable[[], Ledger] | None = None
    write_ledger: Callable[[Sequence[LedgerRow]], int] | None = None
    journal: Path | None = None
    tokens_of_day: Callable[[str], Mapping[str, int]] | None = None
    meter: Callable[[], Awaitable[AsyncMeter]] | None = None
    secret: Callable[[str], bytes] | None = None


NO_STORES = Stores()
