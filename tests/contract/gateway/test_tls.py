"""TLS and mutual TLS on the data port, spoken to by httpx and curl."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from fakes.engine import FakeEngine, chat_events, hang, plain, stream_of
from roadworthy.core.errors import SpecError
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.service import Gateway
from roadworthy.gateway.tls import server_context
from roadworthy.spec.gateway_values import TlsSpec
from support.certificates import Certificate, authority, signed
from support.gateway import KEY, TENANT, chat, run, until

EVENTS = chat_events("a", "b", usage=(3, 2))
HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    folder = tmp_path_factory.mktemp("certificates")
    ca, other = authority(folder), authority(folder, "other-ca")
    return {
        "ca": ca,
        "server": signed(folder, ca, "server"),
        "renewed": signed(folder, ca, "renewed"),
        "client": signed(folder, ca, "client"),
        "stranger": signed(folder, other, "stranger"),
    }


def tls_of(certificate: Certificate, client_ca: Certificate | None = None) -> TlsSpec:
    return TlsSpec(
        cert=str(certificate.cert), key=str(certificate.key), client_ca=str(client_ca.cert) if client_ca else None
    )


def trusting(ca: Certificate, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca.cert))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


def test_streams_and_answers_pass_through_tls(certificates: dict[str, Certificate]) -> None:
    async def test() -> None:
        async with FakeEngine(stream_of(EVENTS)) as engine:
            config = GatewayConfig(endpoints=(engine.url,), tenants=(TENANT,), tls=tls_of(certificates["server"]))
            async with Gateway(config) as gateway:
                assert gateway.data_url.startswith("https://127.0.0.1:")
                async with httpx.AsyncClient(verify=trusting(certificates["ca"]), headers=HEADERS) as client:
                    for _ in range(2):
                        answer = await client.post(f"{gateway.data_url}/v1/chat/completions", json=chat())
                        assert answer.content == b"".join(EVENTS)
                    engine.answer = plain()
                    large = {**chat(stream=False), "messages": [{"role": "user", "content": "x" * 300_000}]}
                    assert (await client.post(f"{gateway.data_url}/v1/chat/completions", json=large)).status_code == 200
                async with httpx.AsyncClient() as client:
                    with pytest.raises(httpx.TransportError):
                        await client.get(gateway.data_url.replace("https", "http"))

    run(test)


def test_a_client_that_leaves_a_tls_stream_stops_the_engine(certificates: dict[str, Certificate]) -> None:
    async def test() -> None:
        async with FakeEngine(hang()) as engine:
            config = GatewayConfig(endpoints=(engine.url,), tenants=(TENANT,), tls=tls_of(certificates["server"]))
            async with Gateway(config) as gateway:
                async with httpx.AsyncClient(verify=trusting(certificates["ca"]), headers=HEADERS) as client:
                    asking = asyncio.create_task(client.post(f"{gateway.data_url}/v1/chat/completions", json=chat()))
                    async with asyncio.timeout(10):
                        await engine.asked.wait()
                    asking.cancel()
                async with asyncio.timeout(10):
                    await engine.requests[0].left.wait()
                await until(lambda: gateway.status().in_flight == 0)

    run(test)


def test_with_a_client_ca_only_clients_that_it_signed_are_served(certificates: dict[str, Certificate]) -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine:
            tls = tls_of(certificates["server"], certificates["ca"])
            async with Gateway(GatewayConfig(endpoints=(engine.url,), tenants=(TENANT,), tls=tls)) as gateway:
                url = f"{gateway.data_url}/v1/chat/completions"
                for name, served in (("client", True), ("stranger", False), (None, False)):
                    own = certificates[name] if name else None
                    async with httpx.AsyncClient(verify=trusting(certificates["ca"], own), headers=HEADERS) as client:
                        if served:
                            assert (await client.post(url, json=chat(stream=False))).status_code == 200
                        else:
                            with pytest.raises(httpx.TransportError):
                                await client.post(url, json=chat(stream=False))
                assert len(engine.requests) == 1

    run(test)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reads_a_stream_over_tls(certificates: dict[str, Certificate]) -> None:
    async def test() -> None:
        async with FakeEngine(stream_of(EVENTS)) as engine:
            config = GatewayConfig(endpoints=(engine.url,), tenants=(TENANT,), tls=tls_of(certificates["server"]))
            async with Gateway(config) as gateway:
                done = await asyncio.to_thread(
                    subprocess.run,
                    ["curl", "-sSN", "--cacert", str(certificates["ca"].cert), "-H", f"Authorization: Bearer {KEY}",
                     "-d", json.dumps(chat()), f"{gateway.data_url}/v1/chat/completions"],
                    capture_output=True, check=True, timeout=30,
                )  # fmt: skip
                assert done.stdout == b"".join(EVENTS)

    run(test)


def test_a_renewed_certificate_is_taken_over_by_a_reload(certificates: dict[str, Certificate], tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(certificate: Certificate) -> None:
        cert.write_bytes(certificate.cert.read_bytes())
        key.write_bytes(certificate.key.read_bytes())

    async def subject(gateway: Gateway) -> str:
        host, port = gateway.data_url.removeprefix("https://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=trusting(certificates["ca"]))
        shown = writer.get_extra_info("peercert")
        writer.transport.abort()
        return str(dict(pair[0] for pair in shown["subject"])["commonName"])

    async def test() -> None:
        put(certificates["server"])
        async with FakeEngine(plain()) as engine:
            tls = TlsSpec(cert=str(cert), key=str(key))
            config = GatewayConfig(endpoints=(engine.url,), tenants=(TENANT,), tls=tls)
            async with Gateway(config, load=lambda: config) as gateway:
                assert await subject(gateway) == "server"
                put(certificates["renewed"])
                assert await gateway.reload() is None
                assert await subject(gateway) == "renewed"
                key.write_bytes(certificates["server"].key.read_bytes())
                problem = await gateway.reload()
                assert problem is not None
                assert "gateway.tls" in problem
                assert await subject(gateway) == "renewed", "files that do not belong together change nothing"

    run(test)


def test_files_that_cannot_be_used_are_named(certificates: dict[str, Certificate], tmp_path: Path) -> None:
    server, missing = certificates["server"], str(tmp_path / "missing.pem")
    with pytest.raises(SpecError, match="missing"):
        server_context(TlsSpec(cert=missing, key=str(server.key)))
    with pytest.raises(SpecError, match="cannot be used"):
        server_context(TlsSpec(cert=str(server.cert), key=str(certificates["client"].key)))
    with pytest.raises(SpecError, match="client_ca"):
        server_context(TlsSpec(cert=str(server.cert), key=str(server.key), client_ca=str(server.key)))
    with pytest.raises(SpecError, match="cert and key"):
        GatewayConfig(endpoints=("http://a:1",), tls=TlsSpec(cert=str(server.cert)))
