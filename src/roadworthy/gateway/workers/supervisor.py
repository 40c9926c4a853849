"""Keeps workers running, follows signals, and is the admin port of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.gateway.admin.app import admin_app
from roadworthy.gateway.admin.server import AdminServer
from roadworthy.gateway.listen import listener, url_of
from roadworthy.gateway.principal import pepper_of
from roadworthy.gateway.quota_watch import alert_from_json
from roadworthy.gateway.status import DocumentStatus
from roadworthy.gateway.stores import NO_STORES, Stores
from roadworthy.gateway.tenancy import bill_the_dead
from roadworthy.gateway.tenants import merged
from roadworthy.gateway.told import Told, as_json
from roadworthy.gateway.workers.link import LinkClosedError
from roadworthy.gateway.workers.local import LocalWorker
from roadworthy.gateway.workers.merge import merged_metrics, merged_status
from roadworthy.gateway.workers.process import WorkerError, WorkerProcess
from roadworthy.gateway.workers.share import divided_change

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.service import Gateway
    from roadworthy.route.keys import Change
    from roadworthy.spec.values import Tenant

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Between a worker's death and its successor, growing while successors die too."""

FIXED = ("host", "port", "admin_host", "admin_port", "workers")
"""What the sockets of the process that was started are made of."""

TOLD_BY_ALL = ("status", "metrics", "requests", "tenants")
"""What those are asked too that finish their streams."""

ALERTS_EVERY_S = 5.0

ANSWER_S = 5.0
"""How long a worker may take to tell of itself; one that is busier is left out of that answer."""


class Document:
    """Reads the document again, and knows what it means.

    Args:
        text: as it was last read.
        read: reads it again; raises RoadworthyError.
        configure: from a text to the configuration of all; raises RoadworthyError for one that cannot be used.
    """

    def __init__(self, text: str, read: Callable[[], str], configure: Callable[[str], GatewayConfig]) -> None:
        self.text = text
        self.read = read
        self.configure = configure


class Supervisor:
    """``start``, then ``stop``; in between it keeps ``config.workers`` workers.

    Args:
        arguments: for the workers' module, such as the options of the command line.
        say: words for the operator.
        stores: what the workers keep outside themselves; here for the registry and for what dead workers owe.
    """

    def __init__(
        self,
        config: GatewayConfig,
        document: Document,
        *,
        arguments: Sequence[str],
        say: Callable[[str], None],
        stores: Stores = NO_STORES,
    ) -> None:
        self._config, self._document = config, document
        self._arguments, self._say = tuple(arguments), say
        self._sockets: list[socket.socket] = []
        self._workers: dict[int, WorkerProcess] = {}
        self._retiring: set[WorkerProcess | LocalWorker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining: set[str] = set()
        self._admin_socket: socket.socket | None = None
        self._admin: AdminServer | None = None
        self._stores = stores
        self._pepper = stores.pepper or pepper_of(config.tenants)
        self._desk: Desk | None = None
        self._told, self._changes = Told(), 0
        self._stopping = False
        self._changing = asyncio.Lock()
        self._restarts = 0
        self._status = DocumentStatus(loaded_at_s=time.time())
        self._tenants = config.tenants
        self.data_url = self.admin_url = ""

    # life

    async def start(self) -> None:
        """Bind the ports, start the workers, return once all of them serve.

        Raises:
            ProbeError, SpecError: as ``Gateway.start``.
            WorkerError: a worker did not start.
        """
        config = self._config
        try:
            port = config.port
            for _ in range(config.workers):
                self._sockets.append(listener(config.host, port, what="gateway.port", shared=True))
                port = self._sockets[0].getsockname()[1]
            self._admin_socket = listener(config.admin_host, config.admin_port, what="gateway.admin_port")
            self.data_url = url_of(self._sockets[0], "https" if config.tls.cert else "http")
            self.admin_url = url_of(self._admin_socket)
            await bill_the_dead(self._stores)
            self._desk = self._stores.desk(self._pepper)
            await self._desk.open(self)
            await asyncio.gather(*(self._start_worker(index) for index in range(config.workers)))
            self._admin = AdminServer(admin_app(lambda: self, self._desk), self._admin_socket)
            await self._admin.start()
            self._spawn(self._pass_alerts_on())
        except BaseException:
            await self.stop(0.0)
            raise

    async def follow(self, gateway: Gateway) -> bool:
        """Take over from a gateway in this process: a worker serves its port from now on, its admin port becomes this
        one's, and it finishes its streams. False when the worker did not start: the gateway goes on as before."""
        self._sockets = [gateway.data_socket_copy()]
        self.data_url, self.admin_url, self._pepper = gateway.data_url, gateway.admin_url, gateway.pepper
        self._draining = {one.url for one in gateway.status().endpoints if one.draining}
        self._document.text = await self._fresh_text()
        self._told.add(gateway.told)
        try:
            await self._start_worker(0)
        except WorkerError as error:
            self._say(f"upgrade given up, the process before goes on: {error}")
            await self.stop(0.0)
            return False
        self._desk = gateway.hand_admin_to(self)
        before = LocalWorker(gateway)
        self._retiring.add(before)
        self._spawn(self._retire(before))
        self._spawn(self._pass_alerts_on())
        self._say("upgraded: a new worker serves, this process finishes its streams and looks after it")
        return True

    async def stop(self, drain_s: float) -> None:
        """Let the workers end as ``Gateway.stop`` does. Calling it again does nothing."""
        self._stopping = True
        everyone = (*self._workers.values(), *self._retiring)
        if self._desk is not None:
            await self._desk.close()
        await asyncio.gather(*(self._stop_worker(one, drain_s) for one in everyone))
        self._workers.clear()
        await bill_the_dead(self._stores)  # of those that had to be killed
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._admin is not None:
            await self._admin.stop()
        for listening in (*self._sockets, self._admin_socket):
            if listening is not None:
                listening.close()
        self._sockets, self._admin, self._admin_socket = [], None, None

    def cut(self) -> None:
        """A ``stop`` in progress waits no longer."""
        for worker in (*self._workers.values(), *self._retiring):
            self._spawn(self._tell(worker, "cut"))

    async def _stop_worker(self, worker: WorkerProcess | LocalWorker, drain_s: float) -> None:
        with contextlib.suppress(LinkClosedError, TimeoutError):
            async with asyncio.timeout(drain_s + ANSWER_S):
                await worker.ask("stop", drain_s=drain_s)
                await worker.ended.wait()
        await worker.kill()

    # workers

    async def _start_worker(self, index: int) -> None:
        worker = WorkerProcess(index, self._sockets[index], self._arguments)
        heard = self._changes
        await worker.start(self._document.text, sorted(self._draining), self._pepper, self._told_to(index))
        self._workers[index] = worker
        if heard != self._changes:  # tenants or keys changed while it started
            await self._tell(worker, "govern", change=self._told_to(index))
        self._spawn(self._watch(worker))

    async def _watch(self, worker: WorkerProcess) -> None:
        """Start a successor if the worker dies while it should not."""
        pause_s = FIRST_PAUSE_S
        await worker.ended.wait()
        while not self._stopping and not worker.retiring and self._workers.get(worker.index) is worker:
            self._restarts += 1
            self._say(f"worker {worker.index} died ({_how(worker.exit_code)}): starting another")
            self._spawn(self._bill_until_done())
            await asyncio.sleep(pause_s)
            try:
                await self._start_worker(worker.index)
            except WorkerError as error:
                self._say(f"worker {worker.index} does not start: {error}")
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def upgrade(self) -> None:
        """Put a new process beside every worker; once all of them serve, let the old ones finish and end.

        The new ones run the program that is on disk now. When one does not start, nothing has changed.
        """
        async with self._changing:
            new = [WorkerProcess(index, self._sockets[index], self._arguments) for index in range(len(self._sockets))]
            text = await self._fresh_text()
            try:
                draining, heard = sorted(self._draining), self._changes
                await asyncio.gather(
                    *(worker.start(text, draining, self._pepper, self._told_to(worker.index)) for worker in new)
                )
            except WorkerError as error:
                await asyncio.gather(*(worker.kill() for worker in new))
                self._say(f"upgrade given up, the workers before go on: {error}")
                return
            self._document.text = text
            old, self._workers = self._workers, {worker.index: worker for worker in new}
            for worker in new:
                self._spawn(self._watch(worker))
                if heard != self._changes:
                    await self._tell(worker, "govern", change=self._told_to(worker.index))
            for worker in old.values():
                worker.retiring = True
                self._retiring.add(worker)
                self._spawn(self._retire(worker))
            self._say(f"upgraded: {len(new)} new workers serve, {len(old)} finish their streams")

    async def _fresh_text(self) -> str:
        """The document as it is now; the one in force if that cannot be used, or asks for what no upgrade changes."""
        try:
            text = await asyncio.to_thread(self._document.read)
            config = await asyncio.to_thread(self._document.configure, text)
            for name in FIXED:
                was, wanted = getattr(self._config, name), getattr(config, name)
                if was != wanted:
                    raise SpecError(f"gateway.{name}: {wanted!r} was {was!r}, which lasts as long as this process")
            if (config.tls.cert is None) != (self._config.tls.cert is None):
                raise SpecError("gateway.tls: whether there is TLS lasts as long as this process")
        except RoadworthyError as error:
            self._say(f"the upgrade uses the document in force, since the one on disk was refused: {error}")
            return self._document.text
        return text

    async def _retire(self, worker: WorkerProcess | LocalWorker) -> None:
        await self._tell(worker, "retire")
        await worker.ended.wait()
        self._retiring.discard(worker)

    async def _tell(self, worker: WorkerProcess | LocalWorker, what: str, **more: Any) -> None:
        with contextlib.suppress(LinkClosedError):
            await worker.ask(what, **more)

    async def _bill_until_done(self) -> None:
        """Bill what a dead worker owes, as soon as the ledger can be written."""
        pause_s = FIRST_PAUSE_S
        while not await bill_the_dead(self._stores):
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # the admin port

    async def is_ready(self) -> bool:
        return any(one["ready"] for _, one in await self._ask_all("status"))

    async def status_view(self) -> dict[str, Any]:
        told = await self._ask_all("status")
        workers = [
            {
                "id": str(worker.index), "pid": worker.pid, "ready": one["ready"], "draining": worker.retiring,
                "in_flight": one["in_flight"], "requests": one["requests"],
            }
            for worker, one in told
        ]  # fmt: skip
        if not told:
            return {"ready": False, "draining": self._stopping, "endpoints": [], "tenants": [], "workers": []}
        document = {name: getattr(self._status, name) for name in ("loaded_at_s", "reloads", "refused", "problem")}
        return {**merged_status([one for _, one in told]), "document": document, "workers": workers}

    async def _pass_alerts_on(self) -> None:
        """Workers see quotas that are nearly used up; people are told from here."""
        while True:
            await asyncio.sleep(ALERTS_EVERY_S)
            for worker, alerts in await self._ask_all("alerts"):
                for one in alerts:
                    self._stores.alert(alert_from_json(one), str(worker.index))

    # tenants and keys

    def _told_to(self, index: int) -> dict[str, Any]:
        return as_json(divided_change(self._told.whole(), self._config, index))

    async def govern(self, change: Change) -> None:
        """Put ``change`` into force in every worker. Raises SpecError when it cannot be: then nothing has changed."""
        divided_change(change, self._config, 0)
        self._told.add(change)
        self._changes += 1
        everyone: list[WorkerProcess | LocalWorker] = [*self._workers.values(), *self._retiring]
        await asyncio.gather(
            *(
                self._tell(one, "govern", change=as_json(divided_change(change, self._config, one.index)))
                for one in everyone
            )
        )

    async def tenants_view(self) -> list[dict[str, Any]]:
        """What each tenant holds and uses now, over all workers."""
        shared = self._config.meter_url is not None
        told = []
        for answers in (
            await self._ask_all("tenants", ask_shared=True, first=True),
            await self._ask_all("tenants", ask_shared=False, first=False),
        ):
            told += [one for _, one in answers]
        return merged(told, quota_divided=not shared)

    async def document_tenants(self) -> tuple[Tenant, ...]:
        """The tenants of the document in force, keys filled in."""
        return self._tenants

    # the admin port, again

    async def requests_view(self) -> list[dict[str, Any]]:
        found = [one for _, told in await self._ask_all("requests") for one in told]
        return sorted(found, key=lambda one: one["time"], reverse=True)

    async def metrics_text(self) -> bytes:
        told = [text for _, text in await self._ask_all("metrics")]
        name = "roadworthy_gateway_worker_restarts_total"
        told.append(f"# HELP {name} Workers started again after they died.\n# TYPE {name} counter\n"
                    f'{name}{{worker="supervisor"}} {float(self._restarts)}\n')  # fmt: skip
        return await asyncio.to_thread(merged_metrics, told)

    async def drain_engine(self, url: str, draining: bool) -> None:
        told = [answer for _, answer in await self._ask_all("drain", url=url, draining=draining)]
        if not any("unknown" not in one for one in told):
            raise KeyError(url)
        if draining:
            self._draining.add(url)
        else:
            self._draining.discard(url)

    async def reload(self) -> str | None:
        """Take the document over in every worker, or in none."""
        async with self._changing:
            before = self._status
            try:
                text = await asyncio.to_thread(self._document.read)
                config = await asyncio.to_thread(self._document.configure, text)
            except RoadworthyError as error:
                problem = str(error) + "".join(f"; {one}" for one in getattr(error, "problems", ()))
                return self._refused(f"{problem}; hint: {error.hint}" if error.hint else problem)
            for worker, answer in await self._ask_all("reload", text=text):
                if (
                    answer["problem"] is not None
                ):  # the first of them refuses as any would: nothing that differs is read
                    return self._refused(f"worker {worker.index}: {answer['problem']}")
            self._document.text = text
            self._tenants = config.tenants
            self._status = DocumentStatus(loaded_at_s=time.time(), reloads=before.reloads + 1, refused=before.refused)
        if self._desk is not None:  # what administrators said goes before what the document says now
            await self._desk.reloaded()
        return None

    def _refused(self, problem: str) -> str:
        before = self._status
        self._status = DocumentStatus(
            loaded_at_s=before.loaded_at_s, reloads=before.reloads, refused=before.refused + 1, problem=problem
        )
        return problem

    async def _ask_all(
        self, what: str, *, first: bool | None = None, **more: Any
    ) -> list[tuple[WorkerProcess | LocalWorker, Any]]:
        """What every worker answers; without those that are gone or too busy. ``first``: only the first of them, or
        only the others."""

        async def ask(worker: WorkerProcess | LocalWorker) -> Any:
            with contextlib.suppress(LinkClosedError, TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    return await worker.ask(what, **more)
            return None

        workers: list[WorkerProcess | LocalWorker]
        workers = [*self._workers.values(), *(self._retiring if what in TOLD_BY_ALL else ())]
        if first is not None:
            workers = workers[:1] if first else workers[1:]
        answers = await asyncio.gather(*(ask(worker) for worker in workers))
        return [(worker, answer) for worker, answer in zip(workers, answers, strict=True) if answer is not None]


def _how(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
