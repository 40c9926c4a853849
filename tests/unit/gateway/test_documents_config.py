"""Documents in the deployment document: off unless they have a home, and what TLS asks for."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from roadworthy.cli.gateway_setup import Options
from roadworthy.core.errors import ProbeError, SpecError
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.documents.passage import documents_port
from roadworthy.gateway.documents.place import private_folder, socket_of
from roadworthy.spec.gateway_values import DocumentsSpec, TlsSpec

TEXT = """\
schema_version: 1
name: docs
model: {config: tiny}
cluster: {nodes: 1, gpus_per_node: 1, gpu: h100}
engine: {name: vllm, version: "0.32.0", endpoints: [{url: "http://127.0.0.1:8000"}]}
"""


def configured(tmp_path: Path, more: str = "") -> GatewayConfig:
    spec = tmp_path / "roadworthy.yaml"
    spec.write_text(TEXT + more)
    return Options(spec=str(spec)).configure(spec.read_text())


def test_without_a_home_nothing_is_served(tmp_path: Path) -> None:
    assert configured(tmp_path).documents == DocumentsSpec()
    assert documents_port(configured(tmp_path).documents) is None


def test_a_relative_home_lies_beside_the_document_and_limits_are_read(tmp_path: Path) -> None:
    more = "gateway: {documents: {home: docs, max_upload: 5MB, max_documents: 7, max_stored: 1GiB, readers: 2}}\n"
    documents = configured(tmp_path, more).documents
    assert documents.home == str(tmp_path / "docs")
    assert (documents.max_upload_bytes, documents.max_documents, documents.readers) == (5_000_000, 7, 2)
    assert documents.max_stored_bytes == 2**30


def test_an_unknown_key_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        configured(tmp_path, "gateway: {documents: {hom: docs}}\n")
    (problem,) = caught.value.problems
    assert problem.path == "gateway.documents.hom"


def test_with_tls_the_url_that_the_certificate_is_for_has_to_be_named() -> None:
    tls = TlsSpec(cert="c.pem", key="k.pem")
    with pytest.raises(SpecError, match="gateway_url"):
        GatewayConfig(endpoints=("http://e",), tls=tls, documents=DocumentsSpec(home="/h"))
    GatewayConfig(endpoints=("http://e",), tls=tls, documents=DocumentsSpec(home="/h", gateway_url="https://llm"))


def test_a_reader_gets_memory_enough_to_begin() -> None:
    with pytest.raises(SpecError, match="reader_memory"):
        GatewayConfig(endpoints=("http://e",), documents=DocumentsSpec(home="/h", reader_memory_bytes=2**20))


def test_a_sockets_path_is_short_whatever_the_home_and_its_folder_nobody_elses(tmp_path: Path) -> None:
    assert len(str(socket_of(tmp_path / ("x" * 200)))) < 107
    assert socket_of(tmp_path / "a") != socket_of(tmp_path / "b")
    folder = private_folder(tmp_path / "mine")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    with pytest.raises(ProbeError, match="alone"):
        private_folder(folder)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ProbeError, match="alone"):
        private_folder(tmp_path / "link")
