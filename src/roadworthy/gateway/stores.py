"""What a gateway keeps outside itself: it declares what it needs, ``cli.wiring`` brings it, tests bring fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from roadworthy.gateway.admin.access import bootstrap_key
from roadworthy.gateway.admin.desk import Desk
from roadworthy.route.govern.values import AsyncMeter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from roadworthy.gateway.admin.registry import Registry
    from roadworthy.gateway.billing import Ledger
    from roadworthy.route.govern.values import Alert
    from roadworthy.route.ledger import LedgerRow


class SharedMeter(AsyncMeter, Protocol):
    """A meter on a store that others count in too. ``failing`` says why it cannot be reached, "" when it can."""

    @property
    def ttl_s(self) -> float: ...
    @property
    def failing(self) -> str: ...
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
        registry: what administrators said of tenants and keys.
        pepper: the secret that its keys are digested under.
        admin_key: the first key of the admin API, out of the environment.
        alert: hears of a quota that is nearly used up, and of the process that saw it; returns at once.
        close: lets go of all of it; blocks.
        say: words for the operator.
    """

    ledger: Callable[[], Ledger] | None = None
    write_ledger: Callable[[Sequence[LedgerRow]], int] | None = None
    journal: Path | None = None
    tokens_of_day: Callable[[str], Mapping[str, int]] | None = None
    meter: Callable[[], Awaitable[SharedMeter]] | None = None
    registry: Registry | None = None
    pepper: bytes | None = field(default=None, repr=False)
    admin_key: str | None = field(default=None, repr=False)
    alert: Callable[[Alert, str], object] = lambda _alert, _worker: None
    close: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _: None

    def desk(self, pepper: bytes) -> Desk:
        """Where tenants and keys are changed. Raises SpecError for an admin key that is too short."""
        return Desk(pepper=pepper, registry=self.registry, bootstrap=bootstrap_key(self.admin_key), say=self.say)


NO_STORES = Stores()
