"""`diagnose --metrics` and `--gateway`: two scrapes of each engine, those of a gateway too; what fails is noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fakes.prometheus import FakePrometheus, serving
from roadworthy.adapters.incident import engines
from roadworthy.cli import diagnose
from roadworthy.core.errors import ProbeError

if TYPE_CHECKING:
    from pathlib import Path


def scrape(usage: float, preemptions: int) -> bytes:
    return (
        f'vllm:kv_cache_usage_perc{{engine="0"}} {usage}\nvllm:num_requests_running{{engine="0"}} 8\n'
        f'vllm:num_requests_waiting{{engine="0"}} 5\nvllm:num_preemptions_total{{engine="0"}} {preemptions}\n'
    ).encode()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(engines.time, "sleep", waited.append)
    monkeypatch.setattr(engines.fetch_scrapes, "__kwdefaults__", {"wait": waited.append})
    return waited


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    code = diagnose.command.main([*map(str, arguments), "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return code, document


def test_two_scrapes_of_an_engine_show_what_grew(capsys: pytest.CaptureFixture[str], no_waiting: list[float]) -> None:
    counts = iter((3, 40))
    fake = FakePrometheus(held=(), behave=lambda path, query: (200, scrape(0.99, next(counts))))
    with serving(fake):
        code, document = run(capsys, "--metrics", fake.url + "/metrics", "--apart", "7")
    assert (code, document["findings"][0]["code"]) == (1, "kv-cache-exhaustion")
    assert "37 preemptions" in document["findings"][0]["diagnosis"]
    assert no_waiting == [7.0]
    assert [path for path, _ in fake.asked] == ["/metrics", "/metrics"]


def test_a_gateways_engines_are_scraped_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROADWORTHY_ADMIN_KEY", "k3y")
    with serving(FakePrometheus(held=(), behave=lambda path, query: (200, scrape(0.2, 0)))) as engine:
        pages = {
            "/api/status": b'{"endpoints": []}',
            "/api/engines": json.dumps(
                {"engines": [{"url": engine.url}, {"url": "http://127.0.0.1:1"}, {"url": 3}]}
            ).encode(),
            "/metrics": b"roadworthy_gateway_engine_up 1\n",
        }

        def behave(path: str, query: str) -> tuple[int, bytes]:
            return (200, pages[path]) if path in pages else (403, b'{"error": "a viewer may not"}')

        with serving(FakePrometheus(held=(), behave=behave)) as gateway:
            code, document = run(capsys, "--gateway", gateway.url, "--keep", tmp_path / "kept")
    assert (code, document["status"]) == (0, "healthy")
    reasons = {one["file"]: one["reason"] for one in document["skipped"]}
    assert "a viewer may not" in reasons[f"{gateway.url}/api/requests"]
    assert "cannot reach" in reasons["http://127.0.0.1:1/metrics"]
    kept = {path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert kept == {"status.json", "engines.json", "metrics.t0.prom", "metrics.t1.prom", "could-not-look.json"}
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_an_engine_that_does_not_answer_is_an_error_alone_and_a_note_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.log").write_text("INFO:     Application startup complete.\n")
    code, document = run(capsys, tmp_path, "--metrics", "http://127.0.0.1:1")
    assert code == 0
    assert "cannot reach" in document["skipped"][0]["reason"]
    with pytest.raises(ProbeError) as caught:
        diagnose.command.main(["--metrics", "http://127.0.0.1:1"], standalone_mode=False)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("url", "key", "warned"),
    [
        ("http://gateway.example:8081", "secret", True),
        ("http://gateway.example:8081", "", False),
        ("https://gateway.example:8081", "secret", False),
        ("http://127.0.0.1:8081", "secret", False),
    ],
)
def test_an_admin_key_that_goes_unencrypted_is_warned_of(
    url: str, key: str, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(*asked: object, **options: object) -> Any:
        raise ProbeError("not asked here")

    monkeypatch.setenv("ROADWORTHY_ADMIN_KEY", key)
    monkeypatch.setattr(engines, "fetch_gateway", nobody)
    with pytest.raises(ProbeError):
        diagnose.command.main(["--gateway", url], standalone_mode=False)
    err = capsys.readouterr().err
    assert (f"the admin key goes to {url} unencrypted" in err) == warned
    assert "secret" not in err
