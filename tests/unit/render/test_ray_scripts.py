"""Ray's scripts, run for real: the cluster of an engine, and the line that uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.rendering import (
    LLAMA_ON_8_H100,
    TINY,
    V4_ON_32_H100,
    fake_program,
    flags,
    render_input,
    rendered,
    shellcheck,
    start,
    write,
)

HOSTS = "hosts: [{address: 10.0.0.1}, {address: 10.0.0.2}, {address: 10.0.0.3}, {address: 10.0.0.4}], interface: ens3"
NAMED = V4_ON_32_H100.replace("nics:", f"{HOSTS}, nics:")

START_OPTIONS = {
    "--head", "--port", "--address", "--node-ip-address", "--num-gpus", "--object-store-memory", "--dashboard-host",
    "--disable-usage-stats", "--block",
}  # fmt: skip
"""Of `ray start` in Ray 2.60.0 (`ray/scripts/scripts.py`), those that we use."""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    fake_program(folder, "vllm")
    fake_program(folder, "ray")
    return folder


def test_each_engine_has_a_cluster_of_its_own_hosts(tmp_path: Path, programs: Path) -> None:
    write(tmp_path, rendered("ray", render_input(NAMED, "2 x TP8 PP2")))
    started = [start(tmp_path / f"node-{host}.sh", path=programs) for host in range(4)]
    assert ["--head" in one.argv for one in started] == [True, False, True, False]
    assert [flags(one.argv).get("--address") for one in started] == [None, "10.0.0.1:6379", None, "10.0.0.3:6379"]
    assert [flags(one.argv)["--node-ip-address"] for one in started] == [f"10.0.0.{n}" for n in range(1, 5)]
    assert [one.env["VLLM_HOST_IP"] for one in started] == [f"10.0.0.{n}" for n in range(1, 5)]


def test_ray_is_started_with_options_that_it_has(tmp_path: Path, programs: Path) -> None:
    write(tmp_path, rendered("ray", render_input(NAMED, "TP8 PP4")))
    for host in range(4):
        started = start(tmp_path / f"node-{host}.sh", path=programs)
        assert started.argv[0] == "start"
        assert set(flags(started.argv)) <= START_OPTIONS
        assert flags(started.argv)["--num-gpus"] == "8"


def test_health_checks_are_set_on_the_head_where_they_count(tmp_path: Path, programs: Path) -> None:
    write(tmp_path, rendered("ray", render_input(NAMED, "TP8 PP4")))
    head, other = (start(tmp_path / f"node-{host}.sh", path=programs) for host in (0, 1))
    assert head.env["RAY_health_check_timeout_ms"] == "30000"
    assert head.env["RAY_health_check_failure_threshold"] == "10"
    assert not [name for name in other.env if name.startswith("RAY_")]
    assert "RAY_heartbeat_timeout_milliseconds" not in head.env


def test_the_dashboard_is_nobody_elses(tmp_path: Path, programs: Path) -> None:
    write(tmp_path, rendered("ray", render_input(NAMED, "TP8 PP4")))
    assert flags(start(tmp_path / "node-0.sh", path=programs).argv)["--dashboard-host"] == "127.0.0.1"


def test_ray_passes_the_network_on_to_workers_because_the_daemon_has_it(tmp_path: Path, programs: Path) -> None:
    write(tmp_path, rendered("ray", render_input(NAMED, "TP8 PP4")))
    for host in range(4):
        env = start(tmp_path / f"node-{host}.sh", path=programs).env
        assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("=ens3", "ens3")


def test_serving_uses_the_engines_own_cluster(tmp_path: Path, programs: Path) -> None:
    write(tmp_path, rendered("ray", render_input(NAMED, "2 x TP8 PP2")))
    served = [start(tmp_path / f"serve-{replica}.sh", path=programs) for replica in range(2)]
    assert [one.env["RAY_ADDRESS"] for one in served] == ["10.0.0.1:6379", "10.0.0.3:6379"]
    assert all(flags(one.argv)["--distributed-executor-backend"] == "ray" for one in served)


def test_engines_of_one_host_share_its_cluster_and_no_gpu_is_hidden(tmp_path: Path, programs: Path) -> None:
    files = rendered("ray", render_input(LLAMA_ON_8_H100, "4 x TP2"))
    assert sorted(path for path in files if path.startswith("node-")) == ["node-0.sh"]
    write(tmp_path, files)
    served = [start(tmp_path / f"serve-{replica}.sh", path=programs) for replica in range(4)]
    assert {one.env["RAY_ADDRESS"] for one in served} == {"127.0.0.1:6379"}
    assert all("CUDA_VISIBLE_DEVICES" not in one.env for one in served), "Ray hands GPUs out"
    assert len({flags(one.argv)["--port"] for one in served}) == 4


def test_a_single_host_leaves_its_address_to_ray_and_vllm_alike(tmp_path: Path, programs: Path) -> None:
    """Ray replaces a loopback address by another, and vLLM refuses a host whose two addresses differ."""
    write(tmp_path, rendered("ray", render_input(LLAMA_ON_8_H100, "TP8")))
    daemon, served = (start(tmp_path / name, path=programs) for name in ("node-0.sh", "serve-0.sh"))
    assert "--node-ip-address" not in flags(daemon.argv)
    assert "VLLM_HOST_IP" not in daemon.env | served.env


@pytest.mark.parametrize(("document", "layout"), [(NAMED, "TP8 DP4 EP32"), (V4_ON_32_H100, "TP8 PP4"), (TINY, None)])
def test_shellcheck_has_nothing_to_say(document: str, layout: str | None, tmp_path: Path) -> None:
    write(tmp_path, rendered("ray", render_input(document, layout)))
    assert not shellcheck(*sorted(tmp_path.glob("*.sh")))


def test_the_readme_says_that_vllm_brings_no_ray() -> None:
    page = rendered("ray", render_input(V4_ON_32_H100, "TP8 PP4"))["README.md"].text
    assert "ray[default]==2.60.0" in page
    assert "`./serve-0.sh`" in page
