"""From a document's text to the gateway's configuration; shared by the command and its workers."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.documents import document_folder, parse_document
from roadworthy.cli.gateway_shape import plan_for, with_plan
from roadworthy.cli.gateway_stores import state_url_beside
from roadworthy.cli.tenant_keys import with_keys
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.workers.share import divided

if TYPE_CHECKING:
    from roadworthy.spec.gateway_values import DocumentsSpec, TlsSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says beside the document; None leaves it to the document."""

    spec: str
    host: str | None = None
    port: int | None = None
    admin_port: int | None = None
    admin_host: str = "127.0.0.1"
    workers: int | None = None
    access_log: str | None = None

    def configure(self, text: str) -> GatewayConfig:
        """The configuration of all workers together. Raises RoadworthyError for a document that cannot be used."""
        deployment = parse_document(text, self.spec)
        config = GatewayConfig.from_deployment(
            deployment,
            tenants=with_keys(deployment.tenants, os.environ),
            host=self.host,
            port=self.port,
            admin_port=self.admin_port,
            workers=self.workers,
        )
        folder = document_folder(self.spec)
        config = replace(
            config,
            admin_host=self.admin_host,
            access_log=self.access_log or _beside(folder, config.access_log),
            tls=_tls_beside(folder, config.tls),
            documents=documents_beside(folder, config.documents),
            state_url=state_url_beside(folder, config.state_url),
            shared_url=state_url_beside(folder, config.shared_url),
        )
        config = with_plan(
            config,
            plan_for(deployment, base=folder),
            max_num_seqs=deployment.engine.settings.get("max_num_seqs"),
        )
        divided(config, 0)  # limits that cannot be divided are refused before any worker starts
        return config

    def arguments(self) -> list[str]:
        """The same options for a worker's process."""
        words = ["--spec", self.spec, "--admin-host", self.admin_host]
        for name in ("host", "port", "admin_port", "workers", "access_log"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return words

    @classmethod
    def parse(cls, parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[Options, argparse.Namespace]:
        """Read ``arguments`` back, and whatever else ``parser`` knows."""
        parser.add_argument("--spec", required=True)
        parser.add_argument("--host")
        parser.add_argument("--port", type=int)
        parser.add_argument("--admin-port", type=int)
        parser.add_argument("--admin-host", required=True)
        parser.add_argument("--workers", type=int)
        parser.add_argument("--access-log")
        found = parser.parse_args(arguments)
        return cls(
            spec=found.spec, host=found.host, port=found.port, admin_port=found.admin_port,
            admin_host=found.admin_host, workers=found.workers, access_log=found.access_log,
        ), found  # fmt: skip


def _beside(folder: Path, path: str | None) -> str | None:
    return path if path in (None, "-") else str(folder / Path(path).expanduser())


def _tls_beside(folder: Path, tls: TlsSpec) -> TlsSpec:
    return replace(
        tls, cert=_beside(folder, tls.cert), key=_beside(folder, tls.key), client_ca=_beside(folder, tls.client_ca)
    )


def documents_beside(folder: Path, documents: DocumentsSpec) -> DocumentsSpec:
    """``documents`` with a relative ``home`` taken from ``folder``, the document's."""
    home = documents.home
    return documents if home is None else replace(documents, home=str((folder / Path(home).expanduser()).absolute()))
