"""`roadworthy gateway` with documents: one process serves them for all workers, outlives an upgrade, and never them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest

from support.documents_service import pid_of
from support.longdoc import LAW, rightly, speaking
from support.service import Service, serving
from support.threaded_engine import eventually, threaded_engine

PATH = "/v1/documents"
KEY = "sk-documents-0123456789"
CLAIM, QUOTE, QUESTION = "隐私权属于自然人。", "自然人享有隐私权", "隐私权归谁？"


def client(service: Service) -> httpx.Client:
    return httpx.Client(base_url=service.data_url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)


@pytest.mark.e2e
def test_documents_are_served_through_an_upgrade_and_a_death_and_end_with_the_gateway(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with threaded_engine(speaking(rightly(CLAIM, QUOTE))) as engine:
        document = tmp_path / "gateway.yaml"
        document.write_text(
            f"model: {{config: tiny}}\nengine: {{endpoints: [{{url: {engine.url!r}}}]}}\n"
            f"tenants: [{{id: acme, key: {KEY}}}]\ngateway: {{documents: {{home: home}}}}\n"
        )
        with serving(tmp_path, "gateway", str(document), "--workers", "2") as service, client(service) as asking:
            stored = asking.post(PATH, params={"name": "law.md", "vectors": "false"}, content=LAW.encode())
            assert stored.status_code == 202
            job = f"{PATH}/jobs/{stored.json()['job']['id']}"
            eventually(lambda: asking.get(job).json()["status"] == "done")
            first = pid_of(home)
            service.process.send_signal(signal.SIGUSR2)
            eventually(lambda: served_by(home) not in (None, first), limit_s=60)
            answer = asking.post(f"{PATH}/ask", json={"question": QUESTION, "model": "m"})
            (citation,) = answer.json()["claims"][0]["citations"]
            assert LAW[citation["start"] : citation["end"]] == QUOTE
            second = pid_of(home)
            service.process.kill()
            eventually(lambda: gone(second))
        again = tmp_path / "again"
        again.mkdir()
        with serving(again, "gateway", str(document)) as service, client(service) as asking:
            (kept,) = asking.get(PATH).json()["documents"]
            assert (kept["name"], kept["status"]) == ("law.md", "ready")
            third = pid_of(home)
            assert service.interrupt()[0] == 0
            assert gone(third)


def served_by(home: Path) -> int | None:
    try:
        return pid_of(home)
    except OSError:
        return None


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
