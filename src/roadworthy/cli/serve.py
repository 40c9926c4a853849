"""The running part of `up`: bind the gateway, start the engines, serve until told to stop, leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from roadworthy.adapters.engines.commands import (
    checkpoint_folder,
    make_folder,
    require_devices,
    twin_command,
    vllm_commands,
    vllm_program,
)
from roadworthy.adapters.engines.supervisor import EngineStatus, Supervisor
from roadworthy.adapters.event_loop import loop_factory, raise_descriptor_limit
from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.ports import free_ports
from roadworthy.adapters.ready_file import Ready, ReadyEngine, ReadyTenant, claimed, write_ready
from roadworthy.adapters.tiny_model import cache_folder, ensure_tiny_model
from roadworthy.advise.deploy import twin_configs
from roadworthy.cli.gateway import start_documents, warn_not_enforced
from roadworthy.cli.gateway_setup import documents_beside
from roadworthy.cli.gateway_shape import with_plan
from roadworthy.cli.gateway_stores import open_stores, state_url_beside
from roadworthy.cli.live_status import EngineLoad, Traffic, status_table
from roadworthy.cli.output import STOP_SIGNALS, console, say
from roadworthy.cli.tenant_keys import with_keys
from roadworthy.core.errors import RoadworthyError, Unsupported
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.service import Gateway

if TYPE_CHECKING:
    from rich.table import Table

    from roadworthy.adapters.engines.process import EngineCommand
    from roadworthy.cli.wiring import Planned
    from roadworthy.gateway.documents.process import DocumentsProcess
    from roadworthy.gateway.status import GatewayStatus
    from roadworthy.gateway.stores import Stores
    from roadworthy.spec.values import Tenant

ENGINE_HOST = "127.0.0.1"
"""Engines have no keys of their own for `/metrics` and the rest, so they never listen beyond this host."""

MOST_TWINS = 64
"""Each twin is a process of some 60 MB."""

STATUS_INTERVAL_S = 1.0
ENGINE_GRACE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What the command line decides. ``spec_folder`` is where relative paths of the document start."""

    engine: Literal["twin", "vllm"]
    spec_folder: Path
    log_folder: Path
    ready_file: Path | None = None
    vllm_path: str | None = None


def serve(planned: Planned, options: ServeOptions) -> None:
    """Serve ``planned`` until SIGINT or SIGTERM; returns after everything is stopped.

    Raises:
        Infeasible: no layout fits.
        ProbeError: a port is taken, a program is missing, an engine does not start.
        SpecError: a tenant's key cannot be used.
    """
    simulated = options.engine == "twin"
    if not simulated:
        require_devices(planned.deployment, planned.best())
    generated = with_generated_keys(planned.deployment.tenants, os.environ, simulated=simulated)
    tenants = with_keys(generated, os.environ)
    raise_descriptor_limit()
    with claimed(options.ready_file):
        commands = engine_commands(planned, options)
        config = GatewayConfig.from_deployment(
            planned.deployment, tenants=tenants, endpoints=[command.url for command in commands]
        )
        if config.workers > 1:
            say(f"warning: `up` runs one gateway process, not the {config.workers} of gateway.workers")
        folder = options.spec_folder
        config = replace(
            config,
            workers=1,
            documents=documents_beside(folder, config.documents),
            state_url=state_url_beside(folder, config.state_url),
            shared_url=state_url_beside(folder, config.shared_url),
        )
        best = planned.best()
        seats = best.settings.get("max_num_seqs")
        config = with_plan(
            config,
            best,
            max_num_seqs=seats.value if seats is not None else None,
            ranks=1 if simulated else best.layout.dp,  # a twin is one rank
        )
        stores = open_stores(config, say=say)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_Service(planned, options, config, stores, commands, tenants).run())
        stores.close()


def with_generated_keys(
    tenants: Sequence[Tenant], environment: Mapping[str, str], *, simulated: bool
) -> tuple[Tenant, ...]:
    """``tenants``, each that has no key given a random one for this run, which `up` prints.

    With simulated engines that includes a tenant whose variable is not set, so that a document written for production
    can be tried as it is; with real ones a missing variable stays an error.
    """

    def lacks_key(tenant: Tenant) -> bool:
        if tenant.key is not None:
            return False
        return tenant.key_env is None or (simulated and not environment.get(tenant.key_env))

    return tuple(
        replace(tenant, key=f"sk-{secrets.token_urlsafe(24)}", key_env=None) if lacks_key(tenant) else tenant
        for tenant in tenants
    )


def engine_commands(planned: Planned, options: ServeOptions) -> tuple[EngineCommand, ...]:
    """How to start every engine of the best layout: a twin for each data-parallel rank, or a vLLM for each replica."""
    best = planned.best()
    deployment = planned.deployment
    make_folder(options.log_folder)
    if options.engine == "twin":
        configs = twin_configs(deployment, planned.plan)
        if len(configs) > MOST_TWINS:
            raise Unsupported(
                f"{best.layout.label} is {len(configs)} engines, and `up` starts at most {MOST_TWINS} twins",
                hint="`roadworthy simulate` runs any number in virtual time; fewer cluster.nodes try a part of it",
            )
        commands = []
        for index, (config, port) in enumerate(zip(configs, free_ports(ENGINE_HOST, len(configs)), strict=True)):
            name = f"engine-{index}"
            config_file = options.log_folder / f"{name}.json"
            write_atomically(config_file, config.to_json())
            commands.append(
                twin_command(
                    name=name, config=config_file, host=ENGINE_HOST, port=port, log=options.log_folder / f"{name}.log"
                )
            )
        return tuple(commands)
    program = vllm_program(options.vllm_path)
    if deployment.model.config == "tiny":
        model = str(ensure_tiny_model(cache_folder()))
    else:
        model = checkpoint_folder(deployment.model, base=options.spec_folder) or planned.model.id
    return vllm_commands(
        deployment,
        best,
        program=program,
        model=model,
        host=ENGINE_HOST,
        ports=free_ports(ENGINE_HOST, best.layout.replicas),
        log_folder=options.log_folder,
    )


class _Service:
    """One run of `up`, from binding the ports to the last engine's end."""

    def __init__(
        self,
        planned: Planned,
        options: ServeOptions,
        config: GatewayConfig,
        stores: Stores,
        commands: tuple[EngineCommand, ...],
        tenants: tuple[Tenant, ...],
    ) -> None:
        self._planned = planned
        self._options = options
        self._config = config
        self._gateway = Gateway(config, stores=stores)
        self._documents: DocumentsProcess | None = None
        self._commands = commands
        self._tenants = tenants
        self._console = console(stderr=True)
        self._live = self._console.is_terminal
        self._supervisor = Supervisor(commands, on_change=self._engine_changed)
        self._stop = asyncio.Event()
        self._announced = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._told_to_stop)
        try:
            await self._gateway.start()
            if await self._engines_started():
                await self._until_ready()
                self._documents = await start_documents(self._config, self._gateway.data_url)
                if not self._stop.is_set():
                    self._announce()
                    await self._watch()
        finally:
            await self._gateway.stop()
            if self._documents is not None:
                await self._documents.stop()
            await self._supervisor.stop(ENGINE_GRACE_S)
        self._say("stopped")

    def _told_to_stop(self) -> None:
        again = self._stop.is_set()
        self._stop.set()
        if again:  # the second time means now
            self._gateway.cut()
        else:
            self._say("stopping: requests in progress may end, Ctrl-C again cuts them")

    async def _engines_started(self) -> bool:
        """True when all are healthy, False when we were told to stop first."""
        count = len(self._commands)
        what = "simulated engine" if self._options.engine == "twin" else "vLLM engine"
        layout = self._planned.best().layout.label
        self._say(f"starting {count} {what}{'s' * (count > 1)} ({layout}); logs in {self._options.log_folder}")
        starting = asyncio.create_task(self._supervisor.start())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            return False
        starting.result()
        return True

    async def _until_ready(self) -> None:
        """Wait until the gateway has seen a healthy engine, so that the first request after the ready file works."""
        while not all(one.reachable for one in self._gateway.status().endpoints):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 0.05)
                return

    def _announce(self) -> None:
        gateway = self._gateway
        self._announced = True
        self._write_ready()
        names = sorted({name for one in gateway.status().endpoints for name in one.models})
        label = " (simulated: filler text at the planned speed)" if self._options.engine == "twin" else ""
        self._say(f"serving {', '.join(names) or 'no model yet'} at {gateway.data_url}/v1{label}")
        self._say(f"admin at {gateway.admin_url}: /metrics, /healthz, /readyz, /api/status")
        for asked, tenant in zip(self._planned.deployment.tenants, self._tenants, strict=True):
            if asked.key is None and tenant.key_env is None:
                unset = f"; {asked.key_env} is not set" if asked.key_env else ""
                self._say(f"tenant {tenant.id}: key {tenant.key} (generated for this run{unset})")
        warn_not_enforced(self._config)
        if gateway.open_access:
            self._say("warning: the document names no tenant, so anyone who reaches the port may use it")

    def _write_ready(self) -> None:
        """Write the ready file; again whenever an engine came back under another pid."""
        if self._options.ready_file is None:
            return
        write_ready(
            self._options.ready_file,
            Ready(
                data_url=self._gateway.data_url,
                admin_url=self._gateway.admin_url,
                engines=tuple(ReadyEngine(url=one.url, pid=one.pid) for one in self._supervisor.statuses),
                tenants=tuple(ReadyTenant(id=tenant.id, key=tenant.key or "") for tenant in self._tenants),
            ),
        )

    async def _watch(self) -> None:
        """Show the state until told to stop: a live table on a terminal, changes alone elsewhere."""
        with self._live_display() as refresh:
            while not self._stop.is_set():
                refresh()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), STATUS_INTERVAL_S)

    @contextlib.contextmanager
    def _live_display(self) -> Iterator[Callable[[], None]]:
        """What to call to show the state anew: nothing to do off a terminal."""
        if not self._live:
            yield lambda: None
            return
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False, transient=True) as live:

            def refresh() -> None:
                with contextlib.suppress(OSError):
                    live.update(self._table(), refresh=True)

            yield refresh

    def _table(self) -> Table:
        status = self._gateway.status()
        return status_table(
            self._supervisor.statuses, _loads(status), _traffic(status), simulated=self._options.engine == "twin"
        )

    def _engine_changed(self, status: EngineStatus) -> None:
        if not self._live or status.phase == "restarting":
            note = f": {status.note}" if status.note else ""
            self._say(f"{status.name} {status.phase}{note}")
        if self._announced and status.phase == "healthy":
            with contextlib.suppress(RoadworthyError):  # a full disk must not stop the engine from serving again
                self._write_ready()

    def _say(self, text: str) -> None:
        if not self._live:
            say(text)
            return
        with contextlib.suppress(OSError):  # the terminal may be gone; serving and stopping go on
            self._console.print(text, markup=False)


def _loads(status: GatewayStatus) -> dict[str, EngineLoad]:
    return {
        one.url: EngineLoad(running=one.running, waiting=one.waiting, kv_usage_ratio=one.kv_usage_ratio)
        for one in status.endpoints
        if one.reachable
    }


def _traffic(status: GatewayStatus) -> Traffic:
    return Traffic(
        in_flight=status.in_flight,
        finished=status.requests,
        failed=sum(tenant.failed for tenant in status.tenants),
        output_tokens_per_s=status.stream_events_per_s,
    )
