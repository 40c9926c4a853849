"""The stores of a gateway, built from its configuration: part of the composition root, for the command and its workers.

Nothing is opened for a document without ``gateway.state_url`` and ``gateway.shared_url``.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.alerts import alerts_of
from roadworthy.gateway.admin.access import ADMIN_KEY_VARIABLE
from roadworthy.gateway.principal import PEPPER_VARIABLE, pepper_of
from roadworthy.gateway.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roadworthy.adapters.alerts import Alerts
    from roadworthy.adapters.state.state import State
    from roadworthy.gateway.billing import Ledger
    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.stores import SharedMeter
    from roadworthy.route.govern.values import Alert

SQLITE = "sqlite:///"
FILE_ANSWERS_WITHIN_S = 3.0
"""A file of this host is not gone because it is slow: a busy host must not refuse what it could serve in a moment."""

LAST_ALERTS_S = 5.0
"""How long a stopping gateway waits for its last alerts to be delivered."""


def open_stores(
    config: GatewayConfig, *, say: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> Stores:
    """The stores of a gateway's only process, or of the supervisor of several. The database is opened at once, so that
    what is wrong with it is told before anything serves.

    Raises:
        SpecError: a URL of a kind that is not known. Unsupported: its driver is not installed.
        Temporary: the database cannot be reached or written.
    """
    admin_key = environ.get(ADMIN_KEY_VARIABLE)
    alerts = alerts_of(config.governance.alert, environ, deployment=config.name, say=say)
    if config.state_url is None:
        return _stores(config, None, say, admin_key=admin_key, alerts=alerts)
    from roadworthy.adapters.state.state import open_state

    state = open_state(config.state_url)
    # stored keys must outlive a change of the document's, of which the pepper is made where nothing is stored
    pepper = pepper_of((), environ) if environ.get(PEPPER_VARIABLE) else state.secret("pepper")
    return _stores(config, state, say, pepper=pepper, admin_key=admin_key, alerts=alerts)


def worker_stores(config: GatewayConfig, *, say: Callable[[str], None]) -> Stores:
    """The stores of one worker of several. Its supervisor has opened the database, and keeps tenants and keys."""
    return _stores(config, None, say)


def _stores(
    config: GatewayConfig,
    state: State | None,
    say: Callable[[str], None],
    *,
    pepper: bytes | None = None,
    admin_key: str | None = None,
    alerts: Alerts | None = None,
) -> Stores:
    state_url, meter_url = config.state_url, config.meter_url
    tokens_of_day: Callable[[str], dict[str, int]] | None = None
    if state is not None:
        tokens_of_day = state.tokens_of_day
    elif state_url is not None:
        tokens_of_day = _read_later(state_url)
    on_loss = config.governance.on_state_loss
    folder = state_folder(state_url) if state_url is not None and config.governance.ledger else None

    def ledger() -> Ledger:
        from roadworthy.adapters.state.writer import ledger_writer

        assert state_url is not None
        assert folder is not None
        return ledger_writer(state_url, on_loss=on_loss, spool=folder / "spool", say=say)

    async def meter() -> SharedMeter:
        from roadworthy.adapters.state.meter import ANSWER_TIMEOUT_S
        from roadworthy.adapters.state.meters import open_meter

        assert meter_url is not None
        within_s = FILE_ANSWERS_WITHIN_S if meter_url.startswith(SQLITE) else ANSWER_TIMEOUT_S
        return await open_meter(
            meter_url,
            answer_timeout_s=within_s,
            ttl_s=config.governance.lease_ttl_s,
            tokens_of_day=tokens_of_day,
            say=say,
        )

    def alert(one: Alert, worker: str) -> None:
        if alerts is not None:
            alerts.send(one, worker=worker)

    def close() -> None:
        if alerts is not None:
            alerts.close(LAST_ALERTS_S)
        if state is not None:
            state.close()

    return Stores(
        ledger=ledger if folder is not None else None,
        write_ledger=state.write_ledger if state is not None else None,
        journal=folder / "journal" if folder is not None else None,
        tokens_of_day=tokens_of_day,
        meter=meter if meter_url is not None else None,
        registry=state,
        pepper=pepper,
        admin_key=admin_key,
        alert=alert,
        close=close,
        say=say,
    )


def _read_later(url: str) -> Callable[[str], dict[str, int]]:
    """A day's tokens by tenant, by a connection that is made when they are first asked for."""

    @functools.cache
    def opened() -> State:
        from roadworthy.adapters.state.state import open_state

        return open_state(url)

    return lambda day: opened().tokens_of_day(day)


def state_folder(url: str) -> Path:
    """Where what belongs to the database at ``url`` is kept on this host: beside the file of SQLite, or in a folder of
    the user's of its own."""
    if url.startswith(SQLITE):
        file = Path(url.removeprefix(SQLITE))
        return file.with_name(f"{file.name}.d")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "roadworthy" / "state" / hashlib.sha256(url.encode()).hexdigest()[:16]


def state_url_beside(folder: Path, url: str | None) -> str | None:
    """``url`` with a relative path of SQLite taken from ``folder``, the document's."""
    if url is None or not url.startswith(SQLITE):
        return url
    return SQLITE + str(folder.absolute() / Path(url.removeprefix(SQLITE)).expanduser())
