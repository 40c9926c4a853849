"""`roadworthy check`: options, captures of a fabric judged again, exit codes, the page."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from roadworthy.adapters.fabric_files import write_fabric
from roadworthy.catalog.vocabulary import CatalogVocabulary
from roadworthy.cli import check
from roadworthy.core.errors import ProbeError, SpecError
from roadworthy.diagnose.hosts.fabric.values import Command, End, FabricCapture, Inventory, Output, Run, Step
from support import commands
from support.commands import told
from support.fabric import write_bw, write_lat

SPEC = """\
model: {config: tiny}
cluster: {nodes: 4, gpus_per_node: 1, gpu: H100-80GB, nics: [{count: 1, rate: 400Gb/s}]}
"""

run = partial(commands.run, check.command)


def captured(folder: Path, slow: str = "", *, of_gigabits: float = 392.0, broken: str = "") -> Path:
    """A capture of four hosts with one rail; links of the host ``slow`` get a quarter, those of ``broken`` an error."""
    runs = []
    hosts = [f"node-{letter}" for letter in "abcd"]
    for one in hosts:
        for two in hosts:
            if one != two:
                speed = of_gigabits / 4 if slow in (one, two) else of_gigabits
                text = "Failed to modify QP 8 to RTR\n" if broken in (one, two) else write_bw(speed)
                runs.append(taken("ib_write_bw", one, two, text))
                if one < two:
                    runs.append(taken("ib_write_lat", one, two, write_lat(2.2)))
    write_fabric(folder, FabricCapture(inventories=tuple(Inventory(host=host) for host in hosts), runs=tuple(runs)))
    return folder


def taken(program: str, one: str, two: str, text: str) -> Run:
    name = f"{program}.{one}.{two}"
    step = Step(
        name=name, tool="perftest", program=program, kinds=("latency",) if "lat" in program else ("bandwidth",),
        one=End(host=one, part="mlx5_0"), two=End(host=two, part="mlx5_0"), both_ways="lat" in program,
        link_bytes_per_s=50e9, first=Command(host=two, argv=()),
    )  # fmt: skip
    return Run(step=step, outputs=(Output(file=f"fabric/{name}.sends.txt", text=text),))


def test_a_captured_fabric_in_order_is_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", captured(tmp_path), "--json") == 0
    document = told(capsys)
    assert (document["status"], document["findings"], document["could_not_look"]) == ("healthy", [], {"fabric": []})
    assert len(document["fabric"]["measurements"]) == 18


def test_a_capture_is_judged_without_loading_what_asks_hosts(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom roadworthy.cli import check\n"
        f"check.command.main(['--from', {str(captured(tmp_path))!r}], standalone_mode=False)\n"
        "loaded = {'roadworthy.adapters.remote_shell', 'roadworthy.adapters.fabric'}\n"
        "print(sorted(loaded & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_slow_host_is_a_finding_with_the_lines_that_were_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "fabric.html"
    assert run("--from", captured(tmp_path / "cap", slow="node-c"), "--json", "--html", page) == 1
    (finding,) = told(capsys)["findings"]
    assert (finding["code"], finding["subject"]) == ("rdma-link-degraded", "node-c mlx5_0")
    evidence = finding["evidence"][0]
    assert "98.00" in evidence["text"]
    assert (tmp_path / "cap" / evidence["file"]).read_text().splitlines()[evidence["line"] - 1].strip() == evidence[
        "text"
    ]
    assert "rdma-link-degraded: node-c mlx5_0" in page.read_text()


def test_the_matrix_marks_slow_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", captured(tmp_path, slow="node-c")) == 1
    out = capsys.readouterr().out
    assert "  node-a       -    49.0   12.2!    49.0\n" in out
    assert "us\n" in out


def test_the_documents_rate_goes_before_the_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All links run alike, at a quarter of what the document says."""
    spec = tmp_path / "my.yaml"
    spec.write_text(SPEC)
    assert run(spec, "--from", captured(tmp_path / "cap", of_gigabits=98.0), "--json") == 1
    (finding,) = told(capsys)["findings"]
    assert finding["code"] == "rdma-path-oversubscribed"
    assert "50 GB/s" in finding["diagnosis"]


def test_hosts_that_nobody_reaches_are_critical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", captured(tmp_path, broken="node-b"), "--json") == 1
    (finding,) = told(capsys)["findings"]
    assert (finding["code"], finding["severity"]) == ("rdma-peer-unreachable", "critical")


def test_a_fabric_that_nobody_could_measure_is_insufficient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of = Run(step=taken("ib_write_bw", "a", "b", "").step, trouble="no ib_write_bw on b")
    write_fabric(tmp_path, FabricCapture(inventories=(Inventory(host="a"), Inventory(host="b")), runs=(run_of,)))
    assert run("--from", tmp_path, "--json") == 3
    document = told(capsys)
    assert document["status"] == "insufficient"
    assert document["capture_next"]
    assert document["could_not_look"]["fabric"][0]["why"] == "missing: no ib_write_bw on b"


def test_without_fabric_its_options_are_refused() -> None:
    with pytest.raises(SpecError, match="only with --fabric"):
        run("--hosts", "a,b")


@pytest.mark.parametrize("option", ["--hosts", "--reach", "--python"])
def test_what_was_measured_before_takes_no_way_to_measure(option: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="judges what was measured before"):
        run("--fabric", "--from", tmp_path, option, "{host}")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("SEVERAL",), "no hosts"), (("--hosts", ","), "no hosts"), (("--hosts", "a,a"), "twice"),
        (("--hosts", "a,b", "--reach", "kubectl exec"), r"no \{host\}"),
        (("--hosts", "-oProxyCommand=x,b"), "no host name"),
    ],
)  # fmt: skip
def test_hosts_must_be_named_once_and_reachable(arguments: tuple[str, ...], match: str, tmp_path: Path) -> None:
    """A document of several nodes (``SEVERAL``) must name them."""
    spec = tmp_path / "several.yaml"
    spec.write_text(SPEC)
    with pytest.raises(SpecError, match=match):
        run("--fabric", *(str(spec) if one == "SEVERAL" else one for one in arguments))


def test_hosts_take_interface_and_compute_nics_from_the_document() -> None:
    """Those of the document, and those named beside it: by address where it knows them, else the cluster's."""
    from roadworthy.cli.check_fabric import fabric_hosts
    from roadworthy.spec.load import load_text

    text = SPEC.replace(
        "nodes: 4,",
        "nodes: 2, interface: ens3, hcas: [mlx5_0], hosts: [{address: 10.0.0.1}, {address: 10.0.0.2, hcas: [mlx5_9]}],",
    )
    deployment = load_text(text, source="my.yaml", vocabulary=CatalogVocabulary(is_checkpoint=lambda _: False))
    assert [(one.name, one.address, one.interface, one.hcas) for one in fabric_hosts(deployment, None)] == [
        ("10.0.0.1", "10.0.0.1", "ens3", ("mlx5_0",)), ("10.0.0.2", "10.0.0.2", "ens3", ("mlx5_9",)),
    ]  # fmt: skip
    assert [(one.name, one.hcas) for one in fabric_hosts(deployment, "pod-a=10.0.0.2, pod-b=10.0.0.7")] == [
        ("pod-a", ("mlx5_9",)), ("pod-b", ("mlx5_0",)),
    ]  # fmt: skip


def test_without_hosts_it_is_this_one_alone_and_without_gpus_there_is_nothing_to_measure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--fabric", "--tool", "perftest", "--json") == 3
    document = told(capsys)
    assert document["status"] == "insufficient"
    assert len(document["fabric"]["hosts"]) == 1
    assert document["fabric"]["hosts"][0]["unanswered"] is None


def test_a_page_is_asked_for_where_there_is_a_fabric(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="holds no fabric"):
        run("--from", CAPTURES / "one-nic-down" / "node-a", "--html", tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_a_folder_without_a_fabric_is_an_error_when_one_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"fabric\.json"):
        run("--fabric", "--from", tmp_path)


def test_what_a_host_says_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "Max locked memory         65536                65536    \x1b]0;pwned\x07\x1b[2J\n"
    (tmp_path / "limits.txt").write_text(said)
    (tmp_path / "rdma.txt").write_text("CA 'mlx5_0'\n\tState: ACTIVE\n\tRate: 400\n\tLink layer: InfiniBand\n")
    assert run("--from", tmp_path) == 1
    out = capsys.readouterr().out
    assert "memlock-limit" in out
    assert "\x1b" not in out
    assert "\x07" not in out


CAPTURES = Path(__file__).parents[2] / "data" / "captures"


def test_the_document_tells_a_captured_host_what_is_expected_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPUs and NICs, the traffic class, and the ports that engines will listen on."""
    spec = tmp_path / "my.yaml"
    spec.write_text(
        "model: {config: tiny}\n"
        "cluster: {nodes: 2, gpus_per_node: 8, gpu: H100-80GB, nics: [{count: 8, rate: 400Gb/s}], roce_dscp: 26}\n"
    )
    shutil.copytree(CAPTURES / "one-nic-down" / "node-a", tmp_path / "cap")
    (tmp_path / "cap" / "mlnx_qos.txt").write_text("Priority trust state: pcp\n")
    (tmp_path / "cap" / "rdma.txt").write_text(
        "".join(f"CA 'mlx5_{n}'\n\tState: ACTIVE\n\tRate: 400\n\tLink layer: Ethernet\n" for n in range(8))
    )
    (tmp_path / "cap" / "ports.txt").write_text("LISTEN 0      2048               *:29501             *:*\n")
    assert run(spec, "--from", tmp_path / "cap", "--json") == 1
    document = told(capsys)
    assert [one["code"] for one in document["findings"]] == ["roce-congestion"]
    assert [note["what"] for note in document["notes"]] == ["port-in-use"]


def test_the_log_of_pods_is_judged_like_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "check.log"
    lines = [
        "@@@ host gpu-7", "@@@ begin df.txt", "shm              64M     0   64M   0% /dev/shm", "@@@ rc 0",
        "@@@ end df.txt done", "@@@ whole",
    ]  # fmt: skip
    log.write_text("".join(f"[pod/my-check-x7k2p/check] {line}\n" for line in lines))
    assert run("--from", log, "--json") == 1
    document = told(capsys)
    (finding,) = document["findings"]
    assert (finding["code"], finding["evidence"][0]["file"]) == ("shm-too-small", "gpu-7/df.txt")
    assert {one["why"] for one in document["could_not_look"]["gpu-7"]} == {"not in the log"}


def test_hosts_that_cannot_be_reached_are_not_called_healthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = ProbeError("node-b: no route to host")
    monkeypatch.setattr(
        "roadworthy.adapters.capture.capture_over_ssh", lambda hosts, weights: {"node-a": (), "node-b": gone}
    )
    assert run("--ssh", "node-a", "--ssh", "node-b", "--json") == 3
    document = told(capsys)
    assert (document["status"], document["findings"]) == ("insufficient", [])
    assert "no route" in document["unreachable"]["node-b"]
    assert run("--ssh", "node-a", "--ssh", "node-b") == 3
    shown = capsys.readouterr().out
    assert "Nothing found among what could be looked at." in shown
    assert "Could not reach node-b" in shown
