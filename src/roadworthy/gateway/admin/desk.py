"""Where tenants and keys are changed: what is in force, what is kept of it, and the trail of who changed what.

A change goes through three steps. The gateway hears it first, since it alone knows whether it can be used; then it is
written, together with its audit row; where writing fails the gateway hears the opposite. A revocation is the exception:
it stays in force although it could not be written, because a key that leaked must not come back with the database, and
is written when that is back.

Gateways of several hosts that share one registry notice each other's changes by its revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError, SpecError, Temporary
from roadworthy.gateway.admin import document_changes
from roadworthy.gateway.admin.access import Caller, Gatekeeper
from roadworthy.gateway.admin.answers import AdminError
from roadworthy.gateway.admin.registry import MemoryRegistry
from roadworthy.gateway.admin.roster import Roster
from roadworthy.route.registry import AuditRow, ChangedMeanwhile, RegistryChange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from roadworthy.gateway.admin.registry import Registry
    from roadworthy.gateway.admin.view import GovernedView
    from roadworthy.route.keys import ApiKey, Change
    from roadworthy.route.registry import TenantRow
    from roadworthy.spec.values import Tenant

NOTICE_S = 2.0
"""How long a change made at another gateway may take until it is in force here."""

_DOCUMENT = Caller(who="document", role="", address="", has_key=False)
"""Who changed what a document that was read again changes; a row beside it says who asked for that, if anybody did."""

ATTEMPTS = 12
"""How often a change is worked out again because another gateway changed something meanwhile. Of two that change
something at once one wins each time, so that many at once are needed to lose this often."""


class Desk:
    """Tenants, keys and audit of one gateway.

    Args:
        registry: where it is kept; in memory without one.
        pepper: under which digests of keys are made and looked up, the gateway's own.
        bootstrap: the admin key of the environment, None without one.
        now_s: seconds of the epoch.
        random: so many random bytes.
        say: words for the operator, such as that the registry cannot be read.
    """

    def __init__(
        self,
        *,
        pepper: bytes,
        registry: Registry | None = None,
        bootstrap: str | None = None,
        now_s: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registry: Registry = registry or MemoryRegistry()
        self.pepper, self.now_s, self.random = pepper, now_s, random
        self.roster = Roster()
        self.gatekeeper = Gatekeeper(
            bootstrap=bootstrap,
            pepper=pepper,
            find=self._key,
            keyed=lambda: bool(self.roster.admin_keys()),
            now_s=now_s,
        )
        self._say = say
        self._view: GovernedView | None = None
        self._lock = asyncio.Lock()
        self._revision = 0
        self._follower: asyncio.Task[None] | None = None
        self._troubled = False
        self._unwritten: dict[str, tuple[ApiKey, AuditRow]] = {}

    @property
    def stored(self) -> bool:
        """Whether what is changed here outlives the process."""
        return self.registry.stored

    def _key(self, key_id: str) -> ApiKey | None:
        return self.roster.key(key_id)

    # life

    async def open(self, view: GovernedView) -> None:
        """Put into force at ``view`` what the registry says beyond its document, before it lets anybody in.

        Raises:
            Temporary: the registry cannot be read.
            SpecError: the gateway cannot use what it says.
        """
        self._view = view
        document = await view.document_tenants()
        self.roster, self._revision = await self._read(document)
        await self._tell(self.roster.beyond(document))
        if self.registry.stored:
            self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop to look for others' changes."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
            self._follower = None

    def hand_to(self, view: GovernedView) -> None:
        """Changes go to ``view`` from now on, which knows all that the one before did."""
        self._view = view

    async def reloaded(self) -> None:
        """The document was read again: administrators' words stay before what it says now, database or not."""
        async with self._lock:
            before = self.roster
            document = await self._governed.document_tenants()
            roster = await asyncio.to_thread(Roster, document, before.rows(), before.keys())
            try:
                await self._tell(roster.since(before))
            except SpecError as error:
                self._say(f"warning: what administrators said does not go with the document: {error}")
            else:
                self.roster = roster
            differing = document_changes.told(before.document, {one.id: one for one in document})
        if differing is not None:
            await self.record(_DOCUMENT, "document.tenants", "document", *differing)

    async def tenants_view(self) -> list[dict[str, Any]]:
        """What each tenant holds and uses now."""
        return await self._governed.tenants_view()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(NOTICE_S)
            await self.notice()

    async def notice(self) -> None:
        """Take over what other gateways changed, if anything, and write what could not be written. What goes wrong is
        said once, until it is well again."""
        try:
            await self._write_the_unwritten()
            if await asyncio.to_thread(self.registry.revision) != self._revision:
                async with self._lock:
                    await self._sync()
        except RoadworthyError as error:
            if not self._troubled:
                self._say(f"changes of tenants and keys at other gateways are not seen now: {error}")
            self._troubled = True
        else:
            if self._troubled:
                self._say("changes of tenants and keys at other gateways are seen again")
            self._troubled = False

    async def _write_the_unwritten(self) -> None:
        async with self._lock:
            for key_id, (key, audit) in tuple(self._unwritten.items()):
                await asyncio.to_thread(self.registry.apply, RegistryChange(keys=(key,)), audit, None)
                del self._unwritten[key_id]
                self._say(f"the revocation of {key.prefix} is written now")

    async def _sync(self) -> None:
        """Put into force what is stored. Raises SpecError when the gateway cannot use it: then nothing has changed."""
        roster, revision = await self._read(await self._governed.document_tenants())
        await self._tell(roster.since(self.roster))
        self.roster, self._revision = roster, revision

    async def _read(self, document: Sequence[Tenant]) -> tuple[Roster, int]:
        """All of it, put together on a thread: a hundred thousand keys must not hold up the loop."""

        def read() -> tuple[Roster, int]:
            before = self.registry.revision()
            found = self.registry.load()
            roster = Roster(document, found.tenants, found.keys)
            roster.apply(keys=[key for key, _ in self._unwritten.values()])
            # the earlier one: what somebody changes between the two questions is looked at again, never missed
            return roster, min(before, found.revision)

        return await asyncio.to_thread(read)

    @property
    def _governed(self) -> GovernedView:
        assert self._view is not None
        return self._view

    async def _tell(self, change: Change) -> None:
        if change:
            await self._governed.govern(change)

    # changes

    async def change(
        self,
        work: Callable[[Roster], Wanted],
        *,
        caller: Caller,
        action: str,
        keep_in_force: bool = False,
    ) -> Wanted:
        """Work out a change, put it into force and write it; whole or not at all.

        Args:
            work: what is wanted, given what is in force now; it may be asked again. Raises AdminError.
            action: the audit's word for it.
            keep_in_force: leave it in force where it cannot be written.

        Raises:
            AdminError: what ``work`` raises; ``change_refused``; ``state_unavailable``.
        """
        async with self._lock:
            for _ in range(ATTEMPTS):
                wanted = work(self.roster)
                audit = self._audit_row(caller, action, wanted.subject, wanted.before, wanted.after)
                try:
                    await self._put_into_force(wanted, audit, keep_in_force=keep_in_force)
                except ChangedMeanwhile:
                    await self._reachable(self._sync())
                    continue
                return wanted
        raise AdminError("other gateways keep changing tenants and keys", code="state_unavailable", hint="try again")

    async def _put_into_force(self, wanted: Wanted, audit: AuditRow, *, keep_in_force: bool) -> None:
        undo = self._undo(wanted.change)
        told = self.roster.apply(wanted.change.tenants, wanted.change.dropped, wanted.change.keys)
        try:
            await self._tell(told)
        except BaseException as error:
            undo()
            if not isinstance(error, SpecError):
                raise
            raise AdminError(
                f"the gateway cannot put this into force: {error}", code="change_refused", hint=error.hint
            ) from error
        try:
            self._revision = await asyncio.to_thread(self.registry.apply, wanted.change, audit, self._revision)
        except BaseException as error:
            if keep_in_force and isinstance(error, Temporary):
                for key in wanted.change.keys:
                    self._unwritten.setdefault(key.id, (key, audit))
                raise AdminError(
                    f"it is in force at this gateway, and could not be written: {error}",
                    code="state_unavailable",
                    hint="it is written when the database is back; until then a restart, and other gateways, do not "
                    "know of it",
                ) from error
            back = undo()
            with contextlib.suppress(SpecError):  # what was in force a moment ago can be put into force
                await self._tell(back)
            if not isinstance(error, Temporary):
                raise
            raise AdminError(
                f"tenants and keys cannot be written now: {error}", code="state_unavailable",
                hint=error.hint or "try again; nothing has changed",
            ) from error  # fmt: skip

    def _undo(self, change: RegistryChange) -> Callable[[], Change]:
        """How to get back to what is in force now."""
        roster = self.roster
        touched = [one.id for one in change.tenants] + list(change.dropped)
        rows = [row for one in touched if (row := roster.row(one)) is not None]
        dropped = [one for one in touched if roster.row(one) is None]
        keys = [key for one in change.keys if (key := roster.key(one.id)) is not None]
        new = tuple(one for one in change.keys if roster.key(one.id) is None)

        def undo() -> Change:
            back = roster.apply(rows, dropped, keys)
            gone = roster.forget(one.id for one in new)
            return replace(back, keys_gone=gone)

        return undo

    async def record(
        self,
        caller: Caller,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write an audit row of something that is done elsewhere, such as draining; False where it could not be.

        An engine must be drained although the database is down: the row is said to the operator's log then.
        """
        row = self._audit_row(caller, action, subject, before, after)
        try:
            await asyncio.to_thread(self.registry.apply, RegistryChange(), row, None)
        except Temporary as error:
            self._say(f"audit could not be written ({error}): {row}")
            return False
        return True

    async def read(self, what: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """``what`` of the registry, on a thread. Raises AdminError ``state_unavailable``."""
        return await self._reachable(asyncio.to_thread(what, *arguments, **named))

    async def _reachable(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except SpecError as error:
            raise AdminError(
                f"what another gateway changed cannot be put into force here: {error}", code="change_refused",
                hint=error.hint,
            ) from error  # fmt: skip
        except Temporary as error:
            raise AdminError(
                f"the database does not answer: {error}", code="state_unavailable", hint=error.hint or "try again"
            ) from error

    def _audit_row(
        self,
        caller: Caller,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
    ) -> AuditRow:
        return AuditRow(
            at_s=self.now_s(), who=caller.who, role=caller.role, address=caller.address, action=action,
            subject=subject, before=before, after=after,
        )  # fmt: skip


class Wanted:
    """A change as worked out: what is written, and what the audit says of it.

    Args:
        before, after: as the audit tells it, without secrets.
        result: whatever the one who asked wants to answer with.
    """

    __slots__ = ("after", "before", "change", "result", "subject")

    def __init__(
        self,
        *,
        subject: str,
        tenants: Sequence[TenantRow] = (),
        dropped: Sequence[str] = (),
        keys: Sequence[ApiKey] = (),
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        result: Any = None,
    ) -> None:
        self.subject, self.before, self.after, self.result = subject, before, after, result
        self.change = RegistryChange(tenants=tuple(tenants), dropped=tuple(dropped), keys=tuple(keys))
