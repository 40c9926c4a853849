"""The governor of one gateway process or one simulation: who may run now, who waits, who goes first.

It joins the parts: business rules (``rules``), predicted footprints (``footprint``), the room of the engines
(``pool``), and the queue (``waiting``, ``fair``). What tenants hold is a meter's to count; a grant of it is what comes
in here. The order of calls is that of ``govern.values``.

While nothing waits and there is room a request costs a few integer operations; a queue costs O(log tenants) a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.route.govern import refusals
from roadworthy.route.govern.borrowing import pass_on, remember
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.route.govern.permit import HeldPermit
from roadworthy.route.govern.pool import Pool
from roadworthy.route.govern.prefill import Backlogs, begun
from roadworthy.route.govern.rules import RuleBook
from roadworthy.route.govern.seats import Seat
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.govern.values import CLASS_RANK, Charge, QueueDepth, Treatment, TurnedAway
from roadworthy.route.govern.waiting import WaitingRoom

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.route.govern.values import Ending, Facts, Grant, Limits, QueueClass
    from roadworthy.route.values import RouteRequest
    from roadworthy.spec.values import Tenant

_TREATMENTS_KEPT = 1024


class Governor:
    """Decides for all tenants of one process.

    Args:
        tenants: those whose requests come; ``set_tenants`` replaces them.
        settings: None is the document's default.
        shape: how tokens become blocks; None counts blocks of 16 tokens whose size nobody knows, and then no KV quota
            is enforced.
    """

    def __init__(
        self,
        tenants: Iterable[Tenant],
        *,
        settings: GovernSettings | None = None,
        shape: BlockShape | None = None,
    ) -> None:
        self.settings = settings or GovernSettings()
        self.shape = shape or BlockShape()
        self._seats = {tenant.id: Seat(tenant, self.shape) for tenant in tenants}
        self._adopt(self.settings)
        self._pool = Pool(self.settings.borrow_headroom_ratio)
        self.backlogs = Backlogs(self.settings.borrow_headroom_ratio)
        self._room = WaitingRoom(self._pool, self.backlogs, self.settings)
        self._rules = RuleBook(self.settings.rules)
        self._has_rules = bool(self._rules)
        self._treatments: dict[str, Treatment] = {}
        self._owners: dict[int, HeldPermit] = {}
        self._released: list[tuple[object, HeldPermit]] = []

    def _adopt(self, settings: GovernSettings) -> None:
        self._expected = settings.expected_output_tokens
        self._prompt_weight, self._output_weight = settings.prompt_weight, settings.output_weight
        self._cached_free = settings.cached_free

    # what may change while it runs

    def set_tenants(self, tenants: Iterable[Tenant], now_s: float) -> list[TurnedAway]:  # noqa: ARG002 a later rule may age them
        """These are the tenants from now on. What runs goes on; those waiting of a tenant that is gone are turned away
        and come back, for the caller to answer and to settle."""
        seats: dict[str, Seat] = {}
        for tenant in tenants:
            seat = self._seats.get(tenant.id)
            if seat is None:
                seat = Seat(tenant, self.shape)
            else:
                seat.follow(tenant, self.shape)
            seats[tenant.id] = seat
        gone = {tenant_id for tenant_id in self._seats if tenant_id not in seats}
        self._seats = seats
        if not gone:
            return []
        turned = [permit for permit in self._owners.values() if permit.tenant_id in gone]
        away = [TurnedAway(owner=permit.owner, refused=refusals.removed(permit.tenant_id)) for permit in turned]
        for permit in turned:
            self._drop(permit)
        self._room.forget(gone)
        return away

    def set_shape(self, shape: BlockShape) -> None:
        """Blocks are of this shape from now on: an engine has said so. What is charged already stays as it is."""
        self.shape = shape
        for seat in self._seats.values():
            seat.follow(seat.tenant, shape)

    def set_settings(self, settings: GovernSettings) -> None:
        """The document says this from now on. What waits keeps its deadline; rules that stay go on holding."""
        self.settings = settings
        self._adopt(settings)
        self._pool.keep(settings.borrow_headroom_ratio)
        self.backlogs.keep(settings.borrow_headroom_ratio)
        self._room.follow(settings)
        self._rules = self._rules.follow(settings.rules)
        self._has_rules = bool(self._rules)

    def capacity(self, blocks: int | None, slots: int | None) -> None:
        """The room of the healthy engines together; None for no bound. What runs beyond it goes on. Ask ``ready``
        afterwards. What prompts they have still to compute is ``backlogs``' to know and to bound."""
        self._pool.resize(blocks, slots)

    def measured(self, used_blocks: int | None) -> None:
        """The engines say that so many blocks are referenced now, all together; None where one of them does not say.

        Charges know nothing of shared prefixes. What the prompts of running requests would hold, each by itself, above
        what is in use is shared, and there is that much more room; only prompts count whose answers have begun, so that
        those still to be computed are not taken for shared. To be told with each look at the engines: it is as old as
        that.
        """
        self._pool.share(0 if used_blocks is None else self._room.computed_blocks - used_blocks)

    # one request

    def limits(self, tenant_id: str) -> Limits:
        """What a meter is to enforce for the tenant. Raises Refused (``tenant_removed``) for one that is not known."""
        seat = self._seats.get(tenant_id)
        if seat is None:
            raise refusals.removed(tenant_id)
        return seat.limits

    def check(self, tenant: Tenant, request: RouteRequest, facts: Facts | None, now_s: float) -> Treatment:
        """Whether ``tenant`` may ask this, and what is to be done with it.

        Raises:
            Refused: ``model_not_allowed`` (403), ``tenant_removed`` (403), or a business rule's code (422).
        """
        seat = self._seats.get(tenant.id)
        if seat is None:
            raise refusals.removed(tenant.id)
        model = request.model
        if seat.models is not None and model not in seat.models:
            raise refusals.model(tenant.id, model, seat.tenant.models)
        if self._has_rules:
            return self._rules.treat(seat.tenant, request, facts, now_s)
        treatment = self._treatments.get(model)
        if treatment is None:
            if len(self._treatments) >= _TREATMENTS_KEPT:
                self._treatments.clear()
            treatment = self._treatments[model] = Treatment(model=model)
        return treatment

    def charge(self, tenant: Tenant, request: RouteRequest, treatment: Treatment | None = None) -> Charge:
        """The predicted footprint of ``request`` at the model it goes to.

        The answer is taken to be as long as nine in ten of the tenant's answers of that model, or as long as the
        client allows at most.
        """
        model = treatment.model if treatment is not None else request.model
        return self._charge(self._seats[tenant.id], tenant.id, model, request)

    def size_up(
        self, tenant: Tenant, request: RouteRequest, facts: Facts | None, now_s: float
    ) -> tuple[Treatment, Charge, Limits]:
        """``check``, ``charge`` and ``limits`` in one, for who asks all three of every request. Raises as they do."""
        seat = self._seats.get(tenant.id)
        treatment = self._treatments.get(request.model)
        if seat is None or treatment is None or self._has_rules:
            treatment = self.check(tenant, request, facts, now_s)
            seat = self._seats[tenant.id]
        elif seat.models is not None and request.model not in seat.models:
            raise refusals.model(tenant.id, request.model, seat.tenant.models)
        return treatment, self._charge(seat, tenant.id, treatment.model, request), seat.limits

    def enter(
        self,
        grant: Grant,
        tenant: Tenant,
        request: RouteRequest,
        owner: object,
        now_s: float,
        *,
        treatment: Treatment | None = None,
        deadline_s: float | None = None,
    ) -> HeldPermit | None:
        """A permit to run now, or None: it waits, and ``owner`` comes back from ``ready`` or ``expired``.

        Args:
            owner: anything; it is kept by identity and must not wait twice at once.
            deadline_s: seconds from now within which it must start; at most ``queue.max_wait``, which None stands for.

        Raises:
            Refused: ``queue_full`` or ``deadline_unreachable`` (429, with the time after which it should do). The
                grant is then the caller's to settle, with no tokens.
        """
        seat = self._seats.get(tenant.id)
        if seat is None:
            raise refusals.removed(tenant.id)
        queue_class: QueueClass = "normal" if treatment is None else treatment.queue_class
        if grant.borrowed:
            queue_class = "low"
        rank = CLASS_RANK[queue_class] + seat.priority
        charge, pool, room, backlogs = grant.charge, self._pool, self._room, self.backlogs
        fair, line = (seat.own_fair, seat.own_line) if rank == seat.own_rank else seat.place(rank, room)
        if (
            room.best_rank > rank
            and pool.slots < pool.most_slots
            and not backlogs.shut
            and (
                pool.fits(charge.blocks, borrowed=True) and backlogs.fits_borrowed()
                if grant.borrowed
                else pool.blocks + charge.blocks <= pool.most_blocks or not pool.blocks
            )
        ):
            pool.slots += 1
            pool.blocks += charge.blocks
            fair.serve_at_once(line, charge.prompt_tokens * self._prompt_weight)
            return HeldPermit(grant, seat, treatment, queue_class, fair, line, streams=request.stream, running=True)
        permit = HeldPermit(grant, seat, treatment, queue_class, fair, line, streams=request.stream, running=False)
        self._wait(permit, owner, now_s, deadline_s)
        self._release(now_s)
        if permit.running:  # nothing that waits fits, and this does
            self._released.remove((owner, permit))
            return permit
        return None

    def began(self, permit: HeldPermit) -> None:
        """The first token of its answer has come, so its prompt is computed. Ask ``ready`` afterwards."""
        begun(permit)

    def ready(self, now_s: float) -> list[tuple[object, HeldPermit]]:
        """Those whose turn has come, with their owners; they count as running from now on.

        To be asked after every ``leave`` and ``began``, after ``capacity``, and from time to time (ageing).
        """
        if self._room.count:
            self._room.age(now_s)
            self._release(now_s)
        elif not self._released:
            return []
        released, self._released = self._released, []
        return released

    def expired(self, now_s: float, most: int | None = None) -> list[TurnedAway]:
        """Those whose deadline has passed, turned away with an honest Retry-After. Their grants are the caller's to
        settle.

        Args:
            most: so many at once, for a caller that has other things to do in between; ask again soon.
        """
        away = []
        for permit in self._room.late(now_s, most):
            refused = refusals.waited_out(now_s - permit.entered_s, self._again_s(permit, now_s))
            away.append(TurnedAway(owner=permit.owner, refused=refused))
            self._gone(permit)
        return away

    def withdraw(self, owner: object) -> bool:
        """Whoever waits as ``owner`` waits no longer: the client left. False where it did not wait; then it runs, or
        has its turn in a ``ready`` that nobody has asked for yet, and ``leave`` ends it."""
        permit = self._owners.get(id(owner))
        if permit is None or not permit.waiting:
            return False
        self._drop(permit)
        return True

    def leave(
        self,
        permit: HeldPermit,
        *,
        prompt_tokens: int,
        output_tokens: int,
        now_s: float,
        cached_tokens: int = 0,
        itl_p99_s: float | None = None,
        ttft_s: float | None = None,
        ending: Ending = "completed",
    ) -> None:
        """It is over, however it ended. Idempotent; also right for one that still waits.

        Args:
            prompt_tokens, output_tokens: what was really used; ``cached_tokens`` of the prompt were in the prefix
                cache.
            itl_p99_s: of this request, None with fewer than 20 gaps; ``ttft_s`` None where no token came.
        """
        if not permit.running:
            if permit.waiting:
                self._drop(permit)
            return
        permit.running = False
        grant, line, seat = permit.grant, permit.line, permit.seat
        charge = grant.charge
        pool = self._pool
        pool.slots -= 1
        pool.blocks -= charge.blocks
        if permit.backlog is not None:
            begun(permit)
        if permit.computed:
            permit.fair.computed_blocks -= permit.prompt_blocks
            if pool.shared_blocks > pool.blocks:
                pool.share(pool.blocks)
        prompt = prompt_tokens - charge.prompt_tokens
        if cached_tokens and self._cached_free:
            prompt -= cached_tokens
        work = prompt * self._prompt_weight + permit.uncharged_output(output_tokens) * self._output_weight
        if work < 0:
            permit.fair.charge(line, work)
        else:
            line.counter += work / line.weight
        if output_tokens and ending == "completed":
            seat.learn(charge.model, output_tokens)
        if seat.to_own and not permit.borrowed:
            pass_on(seat, charge.blocks, self._room, now_s)
        treatment = permit.treatment
        if treatment is not None and treatment.counted:
            self._rules.ended(treatment, itl_p99_s=itl_p99_s, ttft_s=ttft_s, judged=ending == "completed", now_s=now_s)

    # what it looks like

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._room.count

    @property
    def full_of_prompts(self) -> bool:
        """Nothing may start before a prompt is computed."""
        return self.backlogs.shut

    @property
    def running(self) -> int:
        """Requests that have a permit."""
        return self._pool.slots

    @property
    def blocks(self) -> int:
        """KV blocks that those are predicted to hold."""
        return self._pool.blocks

    def waiting_of(self, tenant_id: str) -> int:
        seat = self._seats.get(tenant_id)
        return seat.waiting if seat is not None else 0

    def depth(self, now_s: float) -> QueueDepth:
        """The queue at a glance; the tenants that have something waiting are copied, nothing else is walked over."""
        return QueueDepth(
            total=self._room.count,
            by_class=dict(self._room.by_class),
            by_tenant=dict(self._room.by_tenant),
            oldest_s=self._room.oldest_s(now_s),
        )

    def holding(self) -> tuple[tuple[str, str], ...]:
        """(rule, model) of each hold-down that is on."""
        return self._rules.holding()

    # within

    def _charge(self, seat: Seat, tenant_id: str, model: str, request: RouteRequest) -> Charge:
        output = self._expected if seat.expected is None else seat.expected.get(model, self._expected)
        asked = request.max_tokens
        if asked is not None and asked < output:
            output = asked
        prompt = request.prompt_tokens
        return Charge(tenant_id, model, prompt, output, self.shape.held(prompt + output))

    def _wait(self, permit: HeldPermit, owner: object, now_s: float, deadline_s: float | None) -> None:
        queue, room, seat = self.settings.queue, self._room, permit.seat
        if room.count >= queue.total:
            turn_s = room.turn_s(permit.fair, permit.line, now_s)
            raise refusals.queue_full("all tenants", room.count, queue.total, 1.0 if turn_s is None else turn_s)
        if seat.waiting >= queue.per_tenant:
            turn_s = room.turn_s(permit.fair, permit.line, now_s)
            raise refusals.queue_full(
                f"tenant {permit.tenant_id}", seat.waiting, queue.per_tenant, 1.0 if turn_s is None else turn_s
            )
        most_s = queue.max_wait_s if deadline_s is None else min(deadline_s, queue.max_wait_s)
        expected_s = room.expected_s(permit.fair, permit.line, now_s)
        if expected_s is not None and expected_s > most_s:
            raise refusals.too_late(expected_s, most_s, expected_s - most_s)
        if id(owner) in self._owners:
            raise ValueError("this owner waits already")
        permit.owner = owner
        permit.entered_s = now_s
        permit.give_up_s = now_s + most_s
        self._owners[id(owner)] = permit
        room.join(permit, now_s)
        if permit.borrowed:
            remember(permit)

    def _release(self, now_s: float) -> None:
        """Start all that may start; ``ready`` hands them out."""
        self.backlogs.pass_to(now_s)
        while (permit := self._room.next(now_s)) is not None:
            charge, line = permit.grant.charge, permit.line
            self._pool.slots += 1
            self._pool.blocks += charge.blocks
            line.counter += charge.prompt_tokens * self._prompt_weight / line.weight
            permit.has_its_turn(max(0.0, now_s - permit.entered_s))
            self.backlogs.started(permit)
            self._released.append((permit.owner, permit))
            self._forget(permit)

    def _drop(self, permit: HeldPermit) -> None:
        self._room.drop(permit)
        self._gone(permit)

    def _gone(self, permit: HeldPermit) -> None:
        """``permit`` waited and was not served. What it had of its tenant's quota goes to the next one of it."""
        self._forget(permit)
        if permit.seat.to_own and not permit.borrowed:
            pass_on(permit.seat, permit.grant.charge.blocks, self._room, permit.entered_s)

    def _forget(self, permit: HeldPermit) -> None:
        del self._owners[id(permit.owner)]
        permit.owner = None

    def _again_s(self, permit: HeldPermit, now_s: float) -> float:
        """After how long a request of the same kind would be served in time, as far as can be told."""
        room = self._room
        expected_s = room.expected_s(permit.fair, permit.line, now_s)
        if expected_s is None:
            return 1.0
        late_s = expected_s - (permit.give_up_s - permit.entered_s)
        return late_s if late_s > 0 else room.turn_s(permit.fair, permit.line, now_s) or 1.0
