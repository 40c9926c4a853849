"""`roadworthy tenants`, `keys`, `quota`, `engines` and `drain` against an admin port."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes.governed import ENGINE, FlakyRegistry, live
from roadworthy.cli.drain import wait_for_the_last
from roadworthy.cli.output import console
from roadworthy.cli.tenants_top import screen_of, watch
from roadworthy.core.errors import ProbeError
from roadworthy.route.ledger import UsageRow
from support.admin import BOOTSTRAP, Office, admin_port, command

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Office]:
    """A gateway that the environment names, with its key; columns enough for the tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with admin_port(registry=FlakyRegistry()) as office:
        monkeypatch.setenv("ROADWORTHY_ADMIN", office.url)
        monkeypatch.setenv("ROADWORTHY_ADMIN_KEY", BOOTSTRAP)
        yield office


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Office]:
    """A gateway that no command of these changes."""
    with admin_port() as office:
        yield office


KEYED = {"ROADWORTHY_ADMIN_KEY": BOOTSTRAP}


def rows(table: str) -> list[str]:
    """The rows below a table's head."""
    lines = table.splitlines()
    start = next(index for index, line in enumerate(lines) if "───" in line)
    return [line for line in lines[start + 1 :] if line]


def as_json(*arguments: str) -> Any:
    code, out, err = command(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_tenants_are_listed_with_limits_and_where_they_come_from(here: Office) -> None:
    command("tenants", "edit", "acme", "--rpm", "7")
    code, out, err = command("tenants", "list")
    assert (code, err) == (0, "")
    acme, beta = rows(out)
    assert acme.split()[:5] == ["acme", "2", "0", "1.00", "GiB"]
    assert acme.endswith("document, edited: rpm")
    assert beta.split()[-2:] == ["all", "document"]


def test_a_tenant_is_added_with_sizes_and_counts_as_people_write_them(here: Office) -> None:
    code, out, err = command(
        "tenants", "add", "new", "--kv-quota", "64GiB", "--tpm", "200k", "--daily-tokens", "5M", "--weight", "0.5",
        "--priority", "-3", "--model", "a", "--model", "b", "--fallback", "s", "--with-key",
    )  # fmt: skip
    assert code == 0, err
    assert out.startswith("rw-")
    assert "added new" in err
    new = here.view.tenants["new"]
    assert (new.kv_quota_bytes, new.tokens_per_minute, new.daily_tokens) == (64 * 2**30, 200_000, 5_000_000)
    assert (new.weight, new.priority, new.models, new.fallback) == (0.5, -3, ("a", "b"), "s")
    assert [one.tenant_id for one in here.view.keys.values()] == ["new"]


def test_none_takes_a_limit_away_and_all_opens_every_model(here: Office) -> None:
    edited = as_json("tenants", "edit", "acme", "--rpm", "none", "--kv-quota", "None", "--model", "all")
    assert (edited["rpm"], edited["kv_quota_bytes"], edited["models"], edited["weight"]) == (None, None, [], 2.0)


def test_removing_asks_first_and_reset_brings_back(here: Office) -> None:
    code, _, err = command("tenants", "remove", "acme")
    assert code == 2
    assert "--yes" in err
    assert "acme" in here.view.tenants
    assert as_json("tenants", "remove", "acme", "--yes")["removed"] == "acme"
    assert "acme" not in here.view.tenants
    assert as_json("tenants", "reset", "acme")["source"] == "document"
    assert "acme" in here.view.tenants


def test_the_key_alone_is_on_stdout(here: Office) -> None:
    code, out, err = command("keys", "create", "acme", "--label", "ci", "--scope", "trusted-caller", "--expires", "90d")
    assert code == 0
    assert out.startswith("rw-")
    assert len(out.splitlines()) == 1
    assert "expires 2027-02-28" in err
    assert out.strip() not in err
    (key,) = here.view.keys.values()
    assert (key.label, key.scopes) == ("ci", ("trusted-caller",))


def test_a_key_that_ends_with_the_gateway_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with admin_port() as office:
        code, _, err = command("keys", "create", "acme", "--admin", office.url, environment=KEYED)
    assert code == 0
    assert "state_url" in err


def test_a_key_is_rotated_edited_and_revoked_by_id_prefix_or_itself(here: Office) -> None:
    made = as_json("keys", "create", "acme")
    turned = as_json("keys", "rotate", made["secret"], "--overlap", "10min")
    assert turned["replaced"]["expires"] == "2026-11-30T12:10:00.000Z"
    new = turned["key"]["id"]
    edited = as_json("keys", "edit", f"rw-{new}", "--label", "x", "--expires", "1h")
    assert (edited["label"], edited["expires"]) == ("x", "2026-11-30T13:00:00.000Z")
    assert as_json("keys", "edit", new, "--expires", "none", "--no-scopes")["expires"] is None
    assert as_json("keys", "revoke", new)["state"] == "revoked"
    code, out, _ = command("keys", "list", "--tenant", "acme")
    assert code == 0
    assert [line.split()[:3] for line in rows(out)] == sorted(
        [[made["key"]["id"], "acme", "active"], [new, "acme", "revoked"]]
    )
    assert as_json("keys", "list", "--state", "revoked")["keys"][0]["id"] == new


def test_an_admin_key_has_a_role_and_opens_the_commands(here: Office) -> None:
    made = as_json("keys", "create", "--role", "viewer")
    code, _, err = command("quota", "set", "acme", "--rpm", "1", environment={"ROADWORTHY_ADMIN_KEY": made["secret"]})
    assert code == 3
    assert "role is viewer" in err
    assert "operator" in err


def test_a_quota_is_set_and_shown_beside_what_is_held(here: Office) -> None:
    here.view.shown = [live("acme", in_flight=3, waiting=1, blocks_held=40, blocks_quota=64, tokens_today=1234)]
    assert as_json("quota", "set", "acme", "--concurrency", "2")["limits"]["concurrency"] == 2
    code, out, _ = command("quota", "show")
    assert code == 0
    acme, beta = rows(out)
    assert acme.split() == [
        "acme", "1.00", "GiB", "100", "-", "-", "2", "640.00", "MiB", "40", "of", "64", "1,234", "4",
    ]  # fmt: skip
    assert beta.split() == ["beta", *"-----", *"----"]
    one, all_of = as_json("quota", "show", "acme"), as_json("quota", "show")["quotas"]
    assert one == all_of[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tenants", "edit", "acme"), "nothing to change"),
        (("quota", "set", "acme"), "nothing to change"),
        (("keys", "edit", "abcdefghijkl"), "nothing to change"),
        (("keys", "create"), "TENANT or --role"),
        (("keys", "create", "acme", "--role", "admin"), "TENANT or --role"),
        (("keys", "create", "--role", "admin", "--scope", "trusted-caller"), "scopes are for"),
        (("tenants", "edit", "acme", "--rpm", "-1"), "wanted"),
        (("tenants", "edit", "acme", "--kv-quota", "64"), "with a unit"),
        (("keys", "rotate", "abcdefghijkl", "--overlap", "1.5s"), "whole seconds"),
        (("tenants", "add", "acme"), "tenants edit"),
        (("tenants", "add", "a b"), "letters, digits"),
        (("tenants", "edit", "nobody", "--rpm", "1"), "tenants list"),
        (("tenants", "edit", "../keys", "--rpm", "1"), "letters, digits"),
        (("keys", "revoke", "abcdefghijkl"), "keys list"),
        (("drain", "http://10.9.9.9:1"), ENGINE),
        (("drain", ENGINE, "--undo", "--wait"), "nothing to wait for"),
        (("tenants", "usage", "--json", "--csv"), "one of them"),
        (("tenants", "usage", "--from", "yesterday"), "2026-11-30"),
        (("tenants", "list", "--admin", "http://h:1", "--spec", "x.yaml"), "one of them"),
        (("tenants", "list", "--admin", "localhost:8081"), "http://HOST:PORT"),
        (("tenants", "list", "--admin", "http://h:99999"), "http://HOST:PORT"),
    ],
)
def test_what_cannot_be_meant_is_said_with_the_next_step(
    unchanged: Office, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*arguments, environment={**KEYED, "ROADWORTHY_ADMIN": unchanged.url})
    assert code == 2
    assert out == "" or "--json" in arguments
    assert words in err
    assert "Traceback" not in err
    assert unchanged.view.told == []


def test_a_gateway_that_is_not_there_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for arguments in (("tenants", "top"), ("tenants", "list", "--json"), ("engines",), ("drain", ENGINE)):
            code, out, err = command(*arguments, "--admin", url)
            assert code == 3
            assert f"{url}: the admin port does not answer" in err
            assert "hint: is the gateway running" in err
            if "--json" in arguments:
                assert set(json.loads(out)) == {"error", "problems"}


def test_without_the_key_the_message_says_where_it_is_read_from(here: Office) -> None:
    code, _, err = command("tenants", "list", environment={"ROADWORTHY_ADMIN_KEY": ""})
    assert code == 3
    assert "export ROADWORTHY_ADMIN_KEY" in err


def test_a_port_that_is_no_admin_port_is_told_apart() -> None:
    from fakes.receivers import HookServer, hook_server

    with hook_server(HookServer()) as server:
        code, _, err = command("tenants", "list", "--admin", server.url)
    assert code == 3
    assert "not as an admin port does" in err


def test_the_gateway_is_found_by_ready_file_document_and_environment(
    here: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text(json.dumps({"data_url": "http://h:1", "admin_url": here.url, "engines": [], "tenants": []}))
    port = here.url.rpartition(":")[2]
    document = "model: {config: tiny}\ngateway: {port: 1, admin_port: %s}\n"
    (tmp_path / "mine.yaml").write_text(document % port)
    monkeypatch.delenv("ROADWORTHY_ADMIN")
    for named in (("--ready-file", str(ready)), ("--spec", "mine.yaml"), ("--admin", here.url + "/")):
        assert command("engines", *named)[0] == 0
    code, _, err = command("engines")
    assert code == 2
    assert "which gateway" in err
    (tmp_path / "roadworthy.yaml").write_text(document % port)
    assert command("engines")[0] == 0
    (tmp_path / "roadworthy.yaml").write_text(document % 0)
    code, _, err = command("engines")
    assert code == 2
    assert "admin_port" in err


def test_engines_are_listed_and_one_that_is_not_well_is_exit_code_1(here: Office) -> None:
    code, out, _ = command("engines")
    assert code == 0
    assert ENGINE in out
    assert "healthy" in out
    here.view.healthy = False
    assert command("engines")[0] == 1


def test_draining_says_what_is_in_progress_and_undo_takes_it_back(here: Office) -> None:
    code, out, err = command("drain", ENGINE)
    assert (code, out) == (0, "")
    assert f"{ENGINE} is drained" in err
    assert here.view.draining[ENGINE]
    answer = as_json("drain", ENGINE + "/", "--undo")
    assert (answer["draining"], answer["in_flight"]) == (False, 0)
    assert not here.view.draining[ENGINE]
    here.view.in_flight = 2
    assert "2 are in progress" in command("drain", ENGINE)[2]
    assert command("drain", ENGINE, "--wait", "--timeout", "0")[0] == 1


def test_waiting_ends_with_the_last_request_or_with_the_time() -> None:
    left, slept, clock = [3, 1, 0], [], [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    assert wait_for_the_last(lambda: left.pop(0), 60, now_s=lambda: clock[0], sleep=sleep) == 0
    assert len(slept) == 2
    assert wait_for_the_last(lambda: 5, 2, now_s=lambda: clock[0], sleep=sleep) == 5
    assert sum(slept[2:]) == 2


BUSY = [
    live("quiet", requests=4, tokens_today=10),
    live("idle"),
    live(
        "busy", in_flight=12, waiting=3, borrowed=2, blocks_held=950, blocks_quota=1000, tokens_per_min=12345.6,
        tokens_today=99_000, ttft_p50_s=0.123, ttft_p99_s=1.5, requests=77, refused=5, failed=1,
    ),
    live("over", in_flight=1, blocks_held=30, blocks_quota=20, requests=1),
]  # fmt: skip


def test_top_once_shows_the_busiest_first_and_leaves_idle_ones_out(here: Office) -> None:
    here.view.shown = BUSY
    code, out, _ = command("tenants", "top", "--once")
    assert code == 0
    lines = rows(out)
    assert [line.split()[0] for line in lines[:3]] == ["busy", "over", "quiet"]
    assert lines[0].split() == [
        "busy", "12", "3", "2", "950", "95%", "12,346", "99,000", "123", "ms", "1.50", "s", "77", "5", "1",
    ]  # fmt: skip
    assert "150%" in lines[1]
    assert "3 tenants that asked for something (--idle shows all), 13 requests in flight, 3 waiting" in out
    assert "4 tenants, 13" in command("tenants", "top", "--once", "--idle")[1]
    assert as_json("tenants", "top", "--idle")["tenants"] == BUSY


def test_top_keeps_the_most_telling_columns_where_there_is_little_room(here: Office) -> None:
    here.view.shown = BUSY
    code, out, _ = command("tenants", "top", "--once", environment={"COLUMNS": "80"})
    assert code == 0
    assert rows(out)[0].split() == ["busy", "12", "3", "2", "95%", "12,346", "1.50", "s", "5"]
    assert max(map(len, out.splitlines()[:-1])) <= 80


def test_top_in_a_narrow_terminal_tells_row_by_row(here: Office) -> None:
    here.view.shown = BUSY
    code, out, _ = command("tenants", "top", "--once", environment={"COLUMNS": "40"})
    assert code == 0
    assert "waiting: 3" in out


def test_top_goes_on_while_the_gateway_is_gone_and_ends_with_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[Any] = [
        ProbeError("http://h:1: the admin port does not answer"), {"at": "T2", "tenants": BUSY}, KeyboardInterrupt(),
    ]  # fmt: skip

    class Client:
        url = "http://h:1"

        def get(self, path: str, **query: Any) -> Any:
            assert (path, query) == ("/api/live", {"idle": None})
            answer = answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    slept: list[float] = []
    watch(Client(), {"at": "T1", "tenants": []}, interval_s=2.5, idle=False, sleep=slept.append)  # type: ignore[arg-type]
    assert (slept, answers) == ([2.5] * 3, [])


def test_the_screen_says_that_what_it_shows_is_old(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(screen_of("http://h:1", {"at": "T1", "tenants": BUSY}, "connection refused", idle=False))
    assert "no answer since: connection refused" in capsys.readouterr().out


def test_usage_is_summed_for_people_and_programs(here: Office) -> None:
    assert here.registry is not None
    here.registry.used = (
        UsageRow(day="2026-11-30", tenant="acme", model="m", requests=1200, prompt_tokens=7000, cached_tokens=0,
                 output_tokens=3000),
    )  # fmt: skip
    code, out, _ = command("tenants", "usage")
    assert code == 0
    assert "2026-11-01 to 2026-11-30" in out
    assert ["acme", "1,200", "7,000", "0", "3,000", "10,000"] in [line.split() for line in out.splitlines()]
    assert (
        command("tenants", "usage", "acme", "--by", "all", "--csv")[1].splitlines()[1].startswith("2026-11-30,acme,m,")
    )
    assert as_json("tenants", "usage", "--by", "model")["totals"]["requests"] == 1200


def test_the_audit_is_told_in_lines(here: Office) -> None:
    command("tenants", "edit", "acme", "--rpm", "7")
    command("drain", ENGINE)
    _, out, _ = command("tenants", "audit")
    assert f"bootstrap from 127.0.0.1: engine.drain engine:{ENGINE}" in out
    assert "before: rpm 100" in out
    assert "after: rpm 7" in out
    assert "engine.drain" not in command("tenants", "audit", "acme")[1]
    assert len(as_json("tenants", "audit", "--limit", "1")["rows"]) == 1


def test_a_key_sent_in_clear_to_another_host_is_warned_of() -> None:
    code, _, err = command("tenants", "list", "--admin", "http://192.0.2.1:1", environment={**KEYED, "NO_PROXY": "*"})
    assert code == 3
    assert "unencrypted" in err


@pytest.mark.parametrize("name", ["tenants", "keys", "quota"])
def test_completion_offers_the_subcommands(name: str) -> None:
    from click.shell_completion import ShellComplete

    from roadworthy.cli import cli

    offered = {one.value for one in ShellComplete(cli, {}, "roadworthy", "_X").get_completions([name], "")}
    assert (
        offered
        >= {
            "tenants": {"list", "top", "add", "edit", "remove"},
            "keys": {"list", "create", "rotate", "revoke"},
            "quota": {"show", "set"},
        }[name]
    )


def offered(*words: str) -> set[str]:
    from click.shell_completion import ShellComplete

    from roadworthy.cli import cli

    *before, last = words
    return {one.value for one in ShellComplete(cli, {}, "roadworthy", "_X").get_completions(before, last)}


def test_completion_offers_the_gateways_own_tenants_keys_and_engines(
    here: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = as_json("keys", "create", "acme")["key"]["id"]
    gone = as_json("keys", "create", "beta")["key"]["id"]
    as_json("keys", "revoke", gone)
    assert offered("tenants", "edit", "") == {"acme", "beta"}
    assert offered("quota", "set", "b") == {"beta"}
    assert offered("keys", "revoke", "") == {made}
    assert offered("drain", "") == {ENGINE}
    monkeypatch.delenv("ROADWORTHY_ADMIN")
    assert offered("tenants", "edit", "--admin", here.url, "a") == {"acme"}
    assert offered("tenants", "edit", "") == set()  # no gateway is named
    monkeypatch.setenv("ROADWORTHY_ADMIN", here.url)
    monkeypatch.setenv("ROADWORTHY_ADMIN_KEY", "another-key-that-opens-nothing")
    assert offered("tenants", "edit", "") == set()
