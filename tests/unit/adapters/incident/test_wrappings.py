"""One line of the kernel and one of an engine in every wrapping that logs come in: the same clue, place and time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from roadworthy.adapters.incident.read import read_incident

if TYPE_CHECKING:
    from roadworthy.diagnose.values import Clue

XID = "NVRM: Xid (PCI:0000:dd:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FATAL = "(Worker_TP3 pid=77) ERROR 11-02 04:11:09 [core.py:842] EngineCore encountered a fatal error."
AT = datetime(2026, 11, 2, 4, 11, 9, tzinfo=UTC).timestamp()
NS = f"{int(AT)}123456789"
JOURNAL = {
    "__REALTIME_TIMESTAMP": f"{int(AT)}123456", "_HOSTNAME": "node-q", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": XID,
}  # fmt: skip
LOKI = {
    "status": "success",
    "data": {"resultType": "streams", "result": [{"stream": {"pod": "llm-0"}, "values": [[NS, FATAL]]}]},
}  # fmt: skip


def clue_of(tmp_path: Path, text: str | bytes, name: str, file: str = "x.txt") -> Clue:
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    (clue, *more) = read_incident([tmp_path]).examination.book().all(name)
    assert not more
    return clue


HOST_FORMS = {
    "journalctl -o json": json.dumps(JOURNAL),
    "journalctl -o json, bytes as numbers": json.dumps({**JOURNAL, "MESSAGE": list(XID.encode())}),
    "journalctl -o json-seq": "\x1e" + json.dumps(JOURNAL),
    "journalctl -o json-pretty": json.dumps(JOURNAL, indent="\t")
    + "\n"
    + json.dumps({**JOURNAL, "MESSAGE": "x"}, indent="\t"),
    "journalctl -o short-iso": f"2026-11-02T04:11:09+0000 node-q kernel: {XID}",
    "journalctl -o short-iso, another zone": f"2026-11-02T12:11:09+0800 node-q kernel: {XID}",
    "journalctl -o short-iso-precise": f"2026-11-01T23:11:09.123456-0500 node-q kernel: {XID}",
    "journalctl -o short-full": f"Mon 2026-11-02 04:11:09 UTC node-q kernel: {XID}",
    "journalctl -o short-unix": f"{int(AT)}.123456 node-q kernel: {XID}",
    "rsyslog": f"2026-11-02T04:11:09.123456+00:00 node-q kernel: [  771.120] {XID}",
    "RFC 5424": f"<34>1 2026-11-02T04:11:09.003Z node-q kernel - - - {XID}",
    "Filebeat": json.dumps({"@timestamp": "2026-11-02T04:11:09.000Z", "message": XID, "host": {"name": "node-q"}}),
}


@pytest.mark.parametrize("form", HOST_FORMS)
def test_a_line_of_a_host_keeps_host_and_time(tmp_path: Path, form: str) -> None:
    clue = clue_of(tmp_path, HOST_FORMS[form] + "\n", "gpu.xid")
    assert clue.host == "node-q"
    assert clue.time_s is not None
    assert int(clue.time_s) == AT


@pytest.mark.parametrize(
    "line", [f"Nov  2 04:11:09 node-q kernel: {XID}", f"Nov 02 04:11:09.123456 node-q kernel: [ 7.1] {XID}"]
)
def test_syslog_without_a_year_keeps_its_host_and_its_order(tmp_path: Path, line: str) -> None:
    clue = clue_of(tmp_path, line + "\n", "gpu.xid")
    assert clue.host == "node-q"
    assert clue.time_s is not None
    assert datetime.fromtimestamp(clue.time_s, tz=UTC).strftime("%m-%d %H:%M:%S") == "11-02 04:11:09"


def test_dmesg_with_dates_has_a_date(tmp_path: Path) -> None:
    clue = clue_of(tmp_path, f"[Mon Nov  2 04:11:09 2026] {XID}\n", "gpu.xid")
    assert clue.time_s == AT


POD_FORMS = {
    "kubectl logs --prefix": f"[pod/llm-0/vllm] {FATAL}",
    "kubectl logs --prefix --timestamps": f"[pod/llm-0/vllm] 2026-11-02T04:11:09.123456789Z {FATAL}",
    "stern": f"llm-0 vllm {FATAL}",
    "stern, a deployment's pod": f"llm-7d4b9c6f5-x2x9z vllm 2026-11-02T04:11:09Z {FATAL}",
    "stern -o json": json.dumps({"message": FATAL + "\n", "nodeName": "n", "podName": "llm-0", "containerName": "v"}),
    "logcli": f'2026-11-02T04:11:09Z {{app="llm", pod="llm-0", stream="stderr"}} {FATAL}',
    "logcli -o jsonl": json.dumps({"labels": {"pod": "llm-0"}, "line": FATAL, "timestamp": "2026-11-02T04:11:09.1Z"}),
    "Loki's API": json.dumps(LOKI),
    "Loki's API, printed by jq -S": json.dumps(LOKI, indent=2, sort_keys=True),
    "Grafana's export": json.dumps([{"line": FATAL, "timestamp": NS, "fields": {"pod": "llm-0"}}], indent=2),
    "Fluent Bit": json.dumps(
        {"time": "2026-11-02T04:11:09.1Z", "stream": "stderr", "log": FATAL, "kubernetes": {"pod_name": "llm-0"}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", POD_FORMS)
def test_a_line_of_a_pod_keeps_pod_and_rank(tmp_path: Path, form: str) -> None:
    clue = clue_of(tmp_path, POD_FORMS[form] + "\n", "engine.fatal")
    assert clue.host in ("llm-0", "llm-7d4b9c6f5-x2x9z")
    assert clue.rank == 3
    assert clue.time_s is not None
    if "Z" in POD_FORMS[form] or NS in POD_FORMS[form]:
        assert int(clue.time_s) == AT


RUNTIME_FORMS = {
    "containerd": f"2026-11-02T04:11:09.123456789Z stderr F {FATAL}",
    "containerd, in parts": f"2026-11-02T04:11:09.123456789+00:00 stderr P {FATAL}",
    "docker json-file": json.dumps({"log": FATAL + "\n", "stream": "stderr", "time": "2026-11-02T04:11:09.123456789Z"}),
    "docker logs -t": f"2026-11-02T04:11:09.123456789Z {FATAL}",
    "coloured": "2026-11-02T04:11:09Z \x1b[0;36m(Worker_TP3 pid=77)\x1b[0;0m \x1b[31mERROR\x1b[0m 11-02 04:11:09 "
    "EngineCore \x1b[1mencountered\x1b[0m a fatal error.",
    "Windows line ends": f"2026-11-02T04:11:09Z {FATAL}\r",
}  # fmt: skip
RUNTIME_PLACES = [
    "var/log/pods/serving_llm-0_0a1b2c3d-1111-2222-3333-444455556666/vllm/0.log",
    f"var/log/containers/llm-0_serving_vllm-{'a' * 64}.log",
    "namespaces/serving/pods/llm-0/vllm/vllm/logs/current.log",
]


@pytest.mark.parametrize("form", RUNTIME_FORMS)
@pytest.mark.parametrize("place", RUNTIME_PLACES)
def test_logs_of_container_runtimes_take_the_pod_from_where_they_lie(tmp_path: Path, form: str, place: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    clue = clue_of(tmp_path, RUNTIME_FORMS[form] + "\n", "engine.fatal", place)
    assert (clue.host, clue.rank) == ("llm-0", 3)
    assert int(clue.time_s or 0) == AT
    assert "\x1b" not in clue.lines[0].text
    assert not clue.lines[0].text.endswith("\r")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_another_encoding_with_windows_line_ends_counts_lines_right(tmp_path: Path, encoding: str) -> None:
    text = f"eins\r\nzwei 中\r\n{FATAL}\r\n" * 1
    assert clue_of(tmp_path, text.encode(encoding), "engine.fatal").lines[0].number == 3


def test_a_sosreport_gives_its_host_to_what_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "sosreport-gpu7-2026-11-02-abcdefg" / "sos_commands" / "kernel"
    folder.mkdir(parents=True)
    assert (
        clue_of(tmp_path, f"[  771.120] {XID}\n", "gpu.xid", str(folder.relative_to(tmp_path) / "dmesg")).host == "gpu7"
    )


def test_an_event_is_about_its_object_in_a_table_and_in_json(tmp_path: Path) -> None:
    text = "Back-off restarting failed container vllm in pod llm-0_serving"
    (tmp_path / "events.txt").write_text(
        "LAST SEEN   TYPE      REASON    OBJECT      MESSAGE\n"
        f"5m          Warning   BackOff   pod/llm-0   {text}\n"
        f"serving     5m        Warning   BackOff     pod/llm-0   {text}\n"
    )
    event = {"kind": "Event", "involvedObject": {"name": "llm-0", "kind": "Pod"}, "message": text, "reason": "BackOff",
             "type": "Warning", "lastTimestamp": "2026-11-02T04:11:09Z", "metadata": {}}  # fmt: skip
    for number, indent in enumerate((None, 2)):
        listed = {"apiVersion": "v1", "items": [event], "kind": "List"}
        (tmp_path / f"events{number}.json").write_text(json.dumps(listed, indent=indent))
    both = yaml.safe_dump({"apiVersion": "v1", "items": [event, json.loads(json.dumps(event))], "kind": "List"})
    (tmp_path / "events.yaml").write_text(both)
    clues = read_incident([tmp_path]).examination.book().all("k8s.crash-loop")
    assert {clue.host for clue in clues} == {"llm-0"}
    assert len({clue.lines[0].file for clue in clues}) == 4
    assert {int(clue.time_s) for clue in clues if clue.lines[0].file != "events.txt" and clue.time_s} == {int(AT)}
    lines = [clue.lines[0].number for clue in clues if clue.lines[0].file == "events.yaml"]
    assert [both.splitlines()[number - 1][:2] for number in lines] == ["- ", "- "]


def test_a_list_of_pods_tells_how_containers_ended(tmp_path: Path) -> None:
    pod = {
        "kind": "Pod", "metadata": {"name": "llm-0"},
        "status": {"containerStatuses": [{"name": "vllm", "restartCount": 4, "lastState": {"terminated": {
            "reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-02T04:11:09Z"}}}]},
    }  # fmt: skip
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [pod]}, indent=4)
    (tmp_path / "pods.json").write_text(text)
    told = [one for one in read_incident([tmp_path]).examination.book().all("k8s.oom-killed") if one.host == "llm-0"]
    assert told
    assert int(told[0].time_s or 0) == AT


@pytest.mark.parametrize(
    "text",
    [
        '{"session": "a", "worker": "w1", "cached": 5, "message": "turn"}\n',
        '{"messages": [{"role": "user", "content": "hi"}]}\n',
        '{"log": 5}\n{"MESSAGE": null}\n[{"a": 1}]\n{"kubernetes": 3, "log": "x"}\n',
        '{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Event"}, {"kind": "Pod", "status": {"x": [0]}}]}',
        '[{"message": null}, {"message": "x", "time": "9e999"}]',
        "apiVersion: v1\nitems:\n- kind: Event\n  lastTimestamp: 2026-11-02T04:11:09Z\n- [1\n- x: {\nkind: List\n",
        '{"data":{"resultType":"streams","result":[{"stream":3,"values":[1,["x"],["nan","y"]]}, 4]}}',
    ],
)
def test_json_of_another_kind_or_shape_does_no_harm(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert read_incident([tmp_path]).files == 1
