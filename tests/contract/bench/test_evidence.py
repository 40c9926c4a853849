"""Evidence of a run: written by `bench --evidence`, signed and verified by the real ssh-keygen, and attacked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from roadworthy.adapters.evidence import require_folder, require_key, verify, write_evidence
from roadworthy.bench.evidence import MANIFEST, SIGNATURE, Manifest
from roadworthy.cli.bench import command
from roadworthy.cli.bench_evidence import MASKED, without_secrets
from roadworthy.core.errors import ProbeError, SpecError
from support import commands
from support.threaded_engine import threaded_engine

CONTENTS = {"result.json": '{"a": 1}\n', "report.html": "<!DOCTYPE html>é\n"}
CLAIMS = {"target": "http://h", "model": "m", "simulated": False, "verdict": "met", "requests": 3}
DOCUMENT = """
model: {config: tiny}
workload: {prompt_tokens: {p50: 20, p90: 20, p99: 20}, output_tokens: {p50: 4, p90: 4, p99: 4}, rate: 400/s}
tenants: [{id: a, key: sk-very-secret}]
gateway: {shared_url: "redis://user:pa55@h:6379/0"}
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two keys and a list that allows the first."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True
        )
    (folder / "signers").write_text(f"ops@example.com {(folder / 'mine.pub').read_text()}")
    return folder


@pytest.fixture
def folder(tmp_path: Path, keys: Path) -> Path:
    """Signed evidence."""
    folder = tmp_path / "evidence"
    require_folder(folder)
    write_evidence(folder, CONTENTS, CLAIMS, key=keys / "mine")
    return folder


run = partial(commands.run, command)


def test_what_was_written_is_sound_and_its_signer_is_known(folder: Path, keys: Path) -> None:
    found = verify(folder, signers=keys / "signers", identity=None)
    assert (found.sound, found.signed, found.said, found.problems) == (True, "trusted", "ops@example.com", ())
    assert found.key.startswith("SHA256:")
    assert dict(found.manifest.claims) == CLAIMS
    alone = verify(folder, signers=None, identity=None)
    assert (alone.sound, alone.signed, alone.key) == (True, "somebody", found.key)


@pytest.mark.parametrize("attack", ["a byte", "gone", "added", "a link", "a folder"])
def test_a_folder_that_is_not_as_it_was_written_says_which_file(folder: Path, keys: Path, attack: str) -> None:
    victim = folder / "result.json"
    match attack:
        case "a byte":
            victim.write_text('{"a": 2}\n')
        case "gone":
            victim.unlink()
        case "added":
            victim = folder / "more.json"
            victim.write_text("{}")
        case "a link":
            copy = folder.parent / "same.json"
            shutil.copy(victim, copy)
            victim.unlink()
            victim.symlink_to(copy)
        case _:
            victim.unlink()
            victim.mkdir()
    found = verify(folder, signers=keys / "signers", identity=None)
    assert not found.sound
    assert [one.path for one in found.problems] == [victim.name]
    assert run("verify", folder, "--signers", keys / "signers") == 1


def test_a_manifest_made_to_fit_no_longer_fits_its_signature(folder: Path, keys: Path) -> None:
    text = (folder / MANIFEST).read_text().replace('"requests": 3', '"requests": 4')
    (folder / MANIFEST).write_text(text)
    for signers in (keys / "signers", None):
        found = verify(folder, signers=signers, identity=None)
        assert (found.sound, found.signed, found.problems) == (False, "wrong", ())
        assert found.said


def test_another_key_is_not_one_of_the_signers(tmp_path: Path, keys: Path) -> None:
    folder = tmp_path / "e"
    require_folder(folder)
    write_evidence(folder, CONTENTS, CLAIMS, key=keys / "other")
    assert verify(folder, signers=keys / "signers", identity=None).signed == "wrong"
    assert verify(folder, signers=keys / "signers", identity="ops@example.com").signed == "wrong"
    assert verify(folder, signers=None, identity=None).signed == "somebody"


def test_a_signature_for_something_else_does_not_count(tmp_path: Path, keys: Path) -> None:
    folder = tmp_path / "e"
    require_folder(folder)
    write_evidence(folder, CONTENTS, CLAIMS, key=None)
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", str(keys / "mine"), str(folder / MANIFEST)]
    subprocess.run(sign, check=True, capture_output=True)
    assert verify(folder, signers=None, identity=None).signed == "wrong"
    assert verify(folder, signers=keys / "signers", identity=None).signed == "wrong"


def test_unsigned_evidence_is_sound_by_itself_and_not_enough_where_signers_are_named(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "e"
    require_folder(folder)
    write_evidence(folder, CONTENTS, CLAIMS, key=None)
    assert not (folder / SIGNATURE).exists()
    assert run("verify", folder) == 0
    assert "not signed" in capsys.readouterr().out
    assert run("verify", folder, "--signers", keys / "signers", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["sound"], document["signed"]) == (False, "nobody")


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"schema_version": 1, "files": {}, "evidence": []}',
        '{"schema_version": 1, "evidence": {}, "files": {"../x": {"sha256": "%s", "bytes": 1}}}' % ("0" * 64),
        '{"schema_version": 1, "evidence": {}, "files": {"x": {"sha256": "0", "bytes": 1}}}',
        '{"schema_version": 2, "evidence": {}, "files": {}}',
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_told_so(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(SpecError, match=r"manifest|schema_version"):
        verify(tmp_path, signers=None, identity=None)


def test_folders_and_keys_that_cannot_be_used_are_found_before_the_load(tmp_path: Path, keys: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(SpecError):
            require_folder(folder)
    with pytest.raises(SpecError, match="no such key"):
        require_key(tmp_path / "none")
    with pytest.raises(SpecError, match="not a key"):
        require_key(tmp_path / "file")
    require_key(keys / "mine")
    with pytest.raises(SpecError, match="holds no"):
        verify(tmp_path, signers=None, identity=None)
    with pytest.raises(SpecError, match="nothing to sign"):
        run("http://127.0.0.1:1", "--sign", keys / "mine")


def test_without_ssh_keygen_nothing_is_vouched_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ProbeError, match="ssh-keygen"):
        verify(folder, signers=None, identity=None)


def test_a_run_leaves_all_of_it_and_no_secret(tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, folder = tmp_path / "service.yaml", tmp_path / "acceptance"
    spec.write_text(DOCUMENT)
    with threaded_engine() as engine:
        run(engine.url, "--spec", spec, "--requests", 40, "--evidence", folder, "--sign", keys / "mine")
    assert {one.name for one in folder.iterdir()} == {
        "result.json", "report.html", "junit.xml", "document.yaml", MANIFEST, SIGNATURE,
    }  # fmt: skip
    for one in folder.iterdir():
        text = one.read_text()
        assert "sk-very-secret" not in text
        assert "pa55" not in text
    assert (folder / "document.yaml").read_text().count(MASKED) == 2
    assert len(json.loads((folder / "result.json").read_text())["ttfts"]) == 40
    capsys.readouterr()
    assert run("verify", folder, "--signers", keys / "signers") == 0
    assert "signed by ops@example.com" in capsys.readouterr().out


def test_the_same_values_are_the_same_bytes() -> None:
    assert Manifest(files=(), claims=CLAIMS).text() == Manifest(files=(), claims=dict(CLAIMS)).text()
    assert without_secrets("a: sk-12, b: sk-1", ["sk-1", "sk-12"]) == f"a: {MASKED}, b: {MASKED}"
