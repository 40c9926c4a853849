"""What the admin port asks of the gateway: one process, or the supervisor of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from roadworthy.route.keys import Change
    from roadworthy.spec.values import Tenant


class AdminView(Protocol):
    """The running gateway, as the admin port sees it."""

    async def is_ready(self) -> bool: ...
    async def status_view(self) -> dict[str, Any]: ...
    async def requests_view(self) -> list[dict[str, Any]]: ...
    async def metrics_text(self) -> bytes: ...
    async def drain_engine(self, url: str, draining: bool) -> None:
        """Raises KeyError for an engine that is not the gateway's."""

    async def reload(self) -> str | None:
        """Read the document again. Returns what is wrong with it, None when it is in force."""


class GovernedView(AdminView, Protocol):
    """A gateway whose tenants and keys can be changed while it runs."""

    async def govern(self, change: Change) -> None:
        """Put ``change`` into force in every worker. Raises SpecError when it cannot be used: nothing has changed."""

    async def tenants_view(self) -> list[dict[str, Any]]:
        """What each tenant holds and uses now."""

    async def document_tenants(self) -> tuple[Tenant, ...]:
        """The tenants of the document in force, keys filled in."""
