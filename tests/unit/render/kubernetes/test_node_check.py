"""Target ``check``: every GPU node is asked, no GPU is taken, nothing on a node can be changed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from roadworthy.core.errors import Unsupported
from roadworthy.diagnose.hosts.commands import capture_script
from roadworthy.lint.run import lint_text
from roadworthy.render.targets import target
from support.kubernetes import documents
from support.rendering import LLAMA_ON_8_H100, TINY, V4_ON_32_H100, render_input, rendered


def daemon_set(document: str) -> dict[str, Any]:
    found = documents(rendered("check", render_input(document))["check.yaml"].text)
    return next(one for one in found if one["kind"] == "DaemonSet")


def pod(document: str) -> dict[str, Any]:
    spec: dict[str, Any] = daemon_set(document)["spec"]["template"]["spec"]
    return spec


def test_the_script_is_the_one_that_check_prints() -> None:
    (script,) = (
        one["data"]["check.sh"]
        for one in documents(rendered("check", render_input(V4_ON_32_H100))["check.yaml"].text)
        if one["kind"] == "ConfigMap"
    )
    assert script == capture_script()


def test_a_checkpoint_on_the_nodes_is_read_through_the_mounted_root() -> None:
    files = rendered("check", render_input(LLAMA_ON_8_H100 + "kubernetes: {model_path: /mnt/nvme}\n"))
    assert "find /host/mnt/nvme " in files["check.yaml"].text


def test_it_goes_to_every_gpu_node_whatever_its_taints() -> None:
    spec = pod(V4_ON_32_H100)
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert "nodeSelector" not in pod(TINY)


def test_it_takes_no_gpu_and_no_rdma_device_from_engines() -> None:
    (container,) = pod(V4_ON_32_H100)["containers"]
    assert set(container["resources"]) == {"requests"}
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in container["env"]
    assert not any(one["name"].startswith("NVIDIA") for one in pod(TINY)["containers"][0]["env"])


def test_nothing_on_the_node_can_be_changed() -> None:
    spec = pod(V4_ON_32_H100)
    (container,) = spec["containers"]
    paths = {one["name"]: one for one in spec["volumes"] if "hostPath" in one}
    for mount in container["volumeMounts"]:
        if mount["name"] in paths:
            assert mount["readOnly"] is True
            assert mount["recursiveReadOnly"] == "IfPossible"
    assert set(paths) == {"host"}
    security = container["securityContext"]
    assert "privileged" not in security
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT", "SYSLOG", "IPC_LOCK"]}
    assert spec["automountServiceAccountToken"] is False


def test_it_sees_the_network_that_engines_use() -> None:
    assert pod(V4_ON_32_H100)["hostNetwork"] is True
    assert "hostNetwork" not in pod(LLAMA_ON_8_H100)


def test_the_two_commands_of_the_page_select_its_pods() -> None:
    page = rendered("check", render_input(V4_ON_32_H100))["README.md"].text
    (selector,) = re.findall(r"logs -l (\S+) --tail=-1 --prefix > check\.log", page)
    wanted = dict(pair.split("=") for pair in selector.split(","))
    assert wanted.items() <= daemon_set(V4_ON_32_H100)["spec"]["template"]["metadata"]["labels"].items()
    assert "roadworthy check DOCUMENT --from check.log" in page
    assert f"daemonset/{daemon_set(V4_ON_32_H100)['metadata']['name']} " in page


@pytest.mark.parametrize("document", [V4_ON_32_H100, LLAMA_ON_8_H100, TINY])
def test_our_own_linter_finds_nothing_in_it(document: str) -> None:
    for artifact in rendered("check", render_input(document)).values():
        assert list(lint_text(artifact.text, file=artifact.path).problems) == []


def test_without_a_script_there_is_no_such_target() -> None:
    with pytest.raises(Unsupported, match="no script"):
        target("check")(replace(render_input(TINY), check_script=""))
