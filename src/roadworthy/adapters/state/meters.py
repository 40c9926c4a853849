"""A shared meter by the URL of its store; drivers are imported when a URL asks for them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from roadworthy.adapters.state.meter import ANSWER_TIMEOUT_S, TTL_S, SharedMeter, Store
from roadworthy.core.errors import SpecError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

REDIS_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
KINDS = "redis://HOST:PORT, valkey://HOST:PORT, postgresql://USER@HOST/DATABASE or sqlite:///FILE"


async def open_meter(
    url: str,
    *,
    ttl_s: float = TTL_S,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
    tokens_of_day: Callable[[str], dict[str, int]] | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> SharedMeter:
    """The meter at ``url``. A store that cannot be reached now is no error here: the meter is then ``failing``.

    Args:
        url: of Redis or Valkey; of PostgreSQL; or of a SQLite file, for the workers of one host.
        ttl_s: how long a lease lives without being renewed.
        tokens_of_day: the ledger's sums of a day by tenant, for a store that lost its memory.

    Raises:
        SpecError: a URL of another kind. Unsupported: its driver is not installed.
    """
    meter = SharedMeter(
        store_at(url), ttl_s=ttl_s, answer_timeout_s=answer_timeout_s, tokens_of_day=tokens_of_day, say=say
    )
    await meter.look()
    return meter


def store_at(url: str, *, clock: Callable[[], int] | None = None) -> Store:
    """The store that ``url`` names; ``clock`` (microseconds of the epoch) in place of its own time, for tests."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise SpecError(f"gateway.shared_url: {url!r} is no URL, wanted {KINDS}", hint=f"write {KINDS}")
    if scheme in REDIS_SCHEMES:
        if importlib.util.find_spec("redis") is None:
            raise Unsupported(
                f"gateway.shared_url: {scheme}:// needs redis-py, which is not installed",
                hint="pip install 'roadworthy[redis]'",
            )
        from roadworthy.adapters.state.redis_store import RedisStore

        return RedisStore(url, clock=clock)
    if scheme in ("postgresql", "postgres", "sqlite"):
        from roadworthy.adapters.state.sql_store import SqlStore

        return SqlStore(url, clock=clock)
    raise SpecError(f"gateway.shared_url: {scheme}:// is not known, wanted {KINDS}", hint=f"write {KINDS}")
