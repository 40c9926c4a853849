"""`roadworthy gateway`: the gateway alone, in front of engines that run already."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.output import STOP_SIGNALS, require_two_ports, say
from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from roadworthy.cli.gateway_setup import Options
    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.documents.process import DocumentsProcess
    from roadworthy.gateway.service import Gateway
    from roadworthy.gateway.stores import Stores
    from roadworthy.gateway.workers.supervisor import Document, Supervisor
    from roadworthy.spec.values import Tenant


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--host", help="Address to listen on; the document's gateway.host otherwise.")
@click.option("--port", type=click.IntRange(0, 65535), help="Data port; 0 takes a free one.")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Admin port; 0 takes a free one.")
@click.option(
    "--admin-host", default="127.0.0.1", show_default=True, help="Address of the admin port; its metrics need no key."
)
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes that share the data port.")
@click.option("--access-log", help="A line of JSON for each request goes to this file; - for stdout.")
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once it serves.")
@click.option(
    "--drain", "drain_s", type=click.FloatRange(min=0), default=10.0, show_default=True,
    help="Seconds that requests in progress get when it is told to stop.",
)  # fmt: skip
def command(
    spec: str,
    host: str | None,
    port: int | None,
    admin_port: int | None,
    admin_host: str,
    workers: int | None,
    access_log: str | None,
    ready_file: Path | None,
    drain_s: float,
) -> None:
    """Serve tenants through the OpenAI-compatible gateway alone.

    SPEC is the deployment document; requests go to the engines under engine.endpoints, which may appear later. Ends on
    Ctrl-C or SIGTERM, after the requests in progress. SIGHUP reads the document again, SIGUSR2 puts the program that is
    on disk now in place of the running one; neither loses a stream.
    """
    from roadworthy.cli.output import require_extra

    require_extra("gateway", "uvloop", "httptools", "starlette", "uvicorn", "prometheus_client", "msgspec")
    from roadworthy.adapters.documents import read_document
    from roadworthy.adapters.event_loop import loop_factory, raise_descriptor_limit
    from roadworthy.adapters.ready_file import claimed
    from roadworthy.cli.gateway_setup import Options
    from roadworthy.cli.gateway_stores import open_stores
    from roadworthy.gateway.workers.supervisor import Document

    require_two_ports(port, admin_port)
    options = Options(
        spec=spec, host=host, port=port, admin_port=admin_port, admin_host=admin_host, workers=workers,
        access_log=access_log,
    )  # fmt: skip
    text = read_document(spec)
    config = options.configure(text)
    document = Document(text, (lambda: text) if spec == "-" else (lambda: read_document(spec)), options.configure)
    raise_descriptor_limit()
    stores = open_stores(config, say=say)
    with claimed(ready_file), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_Service(config, document, options, stores, ready_file=ready_file, drain_s=drain_s).run())
    stores.close()


class _Service:
    """The command while it runs: one gateway in this process, or a supervisor of several."""

    def __init__(
        self,
        config: GatewayConfig,
        document: Document,
        options: Options,
        stores: Stores,
        *,
        ready_file: Path | None,
        drain_s: float,
    ) -> None:
        self._config, self._document, self._options, self._stores = config, document, options, stores
        self._ready_file, self._drain_s = ready_file, drain_s
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._gateway: Gateway | None = None
        self._supervisor: Supervisor | None = None
        self._documents: DocumentsProcess | None = None
        self._had_terminal = _terminal()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        try:
            await self._start()
            loop.add_signal_handler(signal.SIGHUP, self._hung_up)
            loop.add_signal_handler(signal.SIGUSR2, lambda: self._spawn(self._upgrade()))
            await self._announce()
            gc.collect()
            gc.set_threshold(10_000, 20, 50)  # a request makes no cycles: looking for them often finds nothing
            gc.freeze()  # what lives as long as the process is not looked through again and again
            await self._stop.wait()
            # a second signal means now: what is in progress is cut
            say("stopping: requests in progress may end, Ctrl-C again cuts them")
            for number in STOP_SIGNALS:
                loop.add_signal_handler(number, self._cut)
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            if self._supervisor is not None:
                await self._supervisor.stop(self._drain_s)
            if self._gateway is not None:
                await self._gateway.stop(self._drain_s)
            if self._documents is not None:
                await self._documents.stop()

    async def _start(self) -> None:
        from roadworthy.gateway.service import Gateway

        if self._config.workers == 1:
            document = self._document

            def load() -> GatewayConfig:
                text = document.read()
                config = document.configure(text)
                document.text = text
                return config

            self._gateway = Gateway(self._config, load=load, stores=self._stores)
            await self._gateway.start()
        else:
            self._supervisor = self._new_supervisor()
            await self._supervisor.start()
        running = self._gateway or self._supervisor
        assert running is not None
        self._documents = await start_documents(self._config, running.data_url)

    def _new_supervisor(self) -> Supervisor:
        from roadworthy.gateway.workers.supervisor import Supervisor

        return Supervisor(
            self._config, self._document, arguments=self._options.arguments(), say=say, stores=self._stores
        )

    # signals

    def _hung_up(self) -> None:
        """SIGHUP: read the document again; but a terminal that closed sends it too, and then means stop."""
        if self._had_terminal and not _terminal():
            self._stop.set()
        else:
            self._spawn(self._reload())

    async def _reload(self) -> None:
        target = self._supervisor or self._gateway
        assert target is not None
        problem = await target.reload()
        if problem is None:
            say("the document was read again and is in force")
        else:
            say(f"the document was refused, the one before stays in force: {problem}")

    async def _upgrade(self) -> None:
        if self._supervisor is not None:
            await self._supervisor.upgrade()
        else:
            assert self._gateway is not None
            supervisor = self._new_supervisor()
            if await supervisor.follow(self._gateway):
                self._supervisor = supervisor
        if self._documents is not None:
            try:
                await self._documents.restart()
            except RoadworthyError as error:
                say(f"{error}\nhint: documents are not served until the next upgrade or start")

    def _cut(self) -> None:
        for one in (self._supervisor, self._gateway):
            if one is not None:
                one.cut()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # words

    async def _announce(self) -> None:
        from roadworthy.gateway.workers.share import are_divided

        running = self._gateway or self._supervisor
        assert running is not None
        status = await running.status_view()
        if self._ready_file is not None:
            _write_ready(running.data_url, running.admin_url, status, self._config.tenants, self._ready_file)
        say(f"serving at {running.data_url}, admin at {running.admin_url}")
        for endpoint in status["endpoints"]:
            if not endpoint["reachable"]:
                say(f"warning: engine {endpoint['url']} does not answer yet: {endpoint['note']}")
            if endpoint["warning"]:
                say(f"warning: engine {endpoint['url']}: {endpoint['warning']}\nhint: upgrade it")
        if not self._config.tenants:
            say(
                "warning: the document names no tenant, so anyone who reaches the port may use it\n"
                "hint: add tenants: [{id: NAME, key_env: VARIABLE}]"
            )
        if are_divided(self._config):
            say(
                f"warning: tenants' limits are divided among {self._config.workers} workers, each of which counts by "
                "itself: a tenant whose connections meet few of them gets less than its limit\n"
                "hint: with gateway.state_url or gateway.shared_url they count together"
            )
        warn_not_enforced(self._config)


def _terminal() -> bool:
    try:
        Path("/dev/tty").open("rb").close()
    except OSError:
        return False
    return True


def _write_ready(
    data_url: str, admin_url: str, status: dict[str, Any], tenants: tuple[Tenant, ...], path: Path
) -> None:
    from roadworthy.adapters.ready_file import Ready, ReadyEngine, ReadyTenant, write_ready

    write_ready(
        path,
        Ready(
            data_url=data_url,
            admin_url=admin_url,
            engines=tuple(ReadyEngine(url=one["url"], pid=None) for one in status["endpoints"]),
            tenants=tuple(ReadyTenant(id=tenant.id, key=tenant.key or "") for tenant in tenants),
        ),
    )


async def start_documents(config: GatewayConfig, data_url: str) -> DocumentsProcess | None:
    """The process that serves documents, where the document asks for one. Raises ProbeError."""
    if config.documents.home is None:
        return None
    from roadworthy.cli.output import require_extra
    from roadworthy.gateway.documents.process import DocumentsProcess

    require_extra("longdoc", "numpy", "pypdfium2", "docx", "openpyxl", "pptx")
    process = DocumentsProcess(config.documents, data_url, say=say)
    await process.start()
    return process


def warn_not_enforced(config: GatewayConfig) -> None:
    """Say on stderr which limits of the document are not carried out: a limit believed in is worse than none."""
    from roadworthy.gateway.config import not_enforced

    for name in not_enforced(config):
        say(f"warning: not enforced: {name}")
