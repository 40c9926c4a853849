"""What leaves the house: names, addresses, keys and prompts are replaced, the same by the same, and nothing else is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.core.finding import Evidence, Finding
from roadworthy.diagnose.redact import Redactor


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("sk-abcdef123456", "Authorization: Bearer sk-abcdef123456"),
        ("hf_AbCdEfGh12345", "HF_TOKEN=hf_AbCdEfGh12345"),
        ("s3cr3t-value-99", 'api_key="s3cr3t-value-99"'),
        ("192.0.2.17", "Connect to 192.0.2.17<40112> failed"),
        ("fe80::a288:c2ff:fe11:2233", "local GID fe80::a288:c2ff:fe11:2233, remote"),
        ("0000:0000:0000:0000:0000:ffff:c000:022b", "gid 0000:0000:0000:0000:0000:ffff:c000:022b v2"),
        ("node-legal-7", "node-legal-7:10:22 [0] NCCL WARN"),
        ("c92321f8-0000-4000-8000-000000000001", "engine_id 'c92321f8-0000-4000-8000-000000000001'"),
        ("jane.doe@bank.example", "owner jane.doe@bank.example"),
        ("the merger of A and B", 'params: prompt: "the merger of A and B is secret"'),
        ("gpu12.corp.internal", "dial gpu12.corp.internal:8000"),
        ("jdoe", "/home/jdoe/models"),
        ("00:00:5e:00:53:01", "rmac 00:00:5e:00:53:01"),
    ],
)
def test_what_is_private_is_replaced(secret: str, text: str) -> None:
    assert secret not in Redactor(hosts=["node-legal-7"])(text)


@pytest.mark.parametrize(
    "text",
    [
        "INFO 05-01 15:00:23 [core.py:842] EngineCore encountered a fatal error.",
        "2026-11-02T04:11:09.123Z step 12",
        "[rank3]:[E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout",
        "NVRM: Xid (PCI:0000:dd:00): 79, GPU has fallen off the bus.",
        "remote=[127.0.0.1]:14215",
        "mlx5_3:1 Got async event : GID table change",
        "vLLM 0.32.0, NCCL 2.30.7, driver 580.95.05",
        "max seq len (32768) is larger than the KV cache (7344)",
    ],
)
def test_what_a_diagnosis_needs_stays(text: str) -> None:
    assert Redactor()(text) == text


def test_the_same_name_stays_the_same_through_a_report() -> None:
    redact = Redactor(hosts=["node-a", "node-b"])
    first, second = redact("node-a says 192.0.2.1"), redact("192.0.2.1 again, then 192.0.2.2 of node-b and node-a")
    assert first == "host-1 says <address-1>"
    assert second == "<address-1> again, then <address-2> of host-2 and host-1"


@given(st.text(max_size=300))
def test_any_text_can_be_redacted_and_twice_is_once(text: str) -> None:
    redact = Redactor(hosts=["node-a"])
    once = redact(text)
    assert redact(once) == once or "<text of" in once


HOSTS = ["node-legal-7", "gpu12.corp.example", "LLM-0"]
FILES = [
    "hosts/frontdesk/journal.log", "pods/merger-team/llm-7d4b9c6f5-x2x9z/vllm.log", "engines/10.0.0.9_8000/t0.prom",
    "sosreport-quokka-2026-11-02-abcdefg/sos_commands/dmesg",
]  # fmt: skip


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        # keys, however they are set and quoted
        ("hunter2", "VLLM_API_KEY=hunter2"),
        ("hunter2", "password: hunter2"),
        ("hunter2", '--api-key "hunter2" --port 8000'),
        ("hunter2", "vllm serve m --api-key hunter2 --port 8000"),
        ("correct horse", "password='correct horse'"),
        ("hunter2", r"{\"api_key\": \"hunter2\"}"),
        ("dXNlcjpodW50ZXIy", "Authorization: Basic dXNlcjpodW50ZXIy"),
        ("abcdefgh", "authorization=Bearer abcdefgh"),
        ("hunter2", "postgresql://svc:hunter2@db/ledger"),
        ("wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY"),
        ("AKIAIOSFODNN7EXAMPLE", "cred AKIAIOSFODNN7EXAMPLE used"),
        ("nvapi-AbC123xyz", "NGC nvapi-AbC123xyz"),
        ("glpat-x1y2z3w4", "git clone with glpat-x1y2z3w4"),
        ("4f3a9c1e77b04c2d9e8f7a6b5c4d3e2f", "session 4f3a9c1e77b04c2d9e8f7a6b5c4d3e2f ended"),
        ("Zk9vQ2xhU3RyaW5nV2l0aDEyMzQ1Njc4OTBhYmM", "blob Zk9vQ2xhU3RyaW5nV2l0aDEyMzQ1Njc4OTBhYmM= seen"),
        ("MIIEvQIBADANBg", "key -----BEGIN PRIVATE KEY-----MIIEvQIBADANBg"),
        ("sig-value", "https://store.blob.example/x?sv=1&sig=sig-value1&se=2"),
        # addresses in every notation
        ("192.0.2.17", "IP 192.0.2.17.443 > 192.0.2.18.5000: Flags"),
        ("192.0.2.17", "[192.0.2.17]:8000"),
        ("192.0.2.17", "peer=192.0.2.17,port=1"),
        ("192.0.2.17", "::ffff:192.0.2.17 refused"),
        ("192-0-2-17", "ip-192-0-2-17.ec2.internal is unreachable"),
        ("192_0_2_17", "instance ip_192_0_2_17 lost"),
        ("2001:db8::17", "connect to [2001:db8::17]:8000"),
        ("2001:db8::17", "2001:db8::17: connection refused"),
        ("2001:db8::17", "fe80::1%eth0 and 2001:db8::17/64."),
        ("2001:DB8:0:0:8:800:200C:417A", "from 2001:DB8:0:0:8:800:200C:417A"),
        ("00-00-5e-00-53-01", "ether 00-00-5e-00-53-01"),
        ("0000.5e00.5301", "switch port learned 0000.5e00.5301"),
        ("506b:4b03:00ab:1234", "node_guid: 506b:4b03:00ab:1234"),
        ("0xb8599f0300aa0113", "base guid 0xb8599f0300aa0113"),
        # hosts: known ones in every form, their families, names that only a path or a setting tells
        ("node-legal-7", "node-legal-7_rank0.log"),
        ("node-legal-7", "NODE-LEGAL-7 is down".lower()),
        ("NODE-LEGAL-7", "NODE-LEGAL-7 is down"),
        ("node-legal-31", "waiting for node-legal-31:29500"),
        ("gpu12", "gpu12: Link down"),
        ("gpu12.corp.example", "http://gpu12.corp.example/v1/models"),
        ("bank.fr", "resolve llm.prod.bank.fr:443"),
        ("frontdesk", "hosts/frontdesk/journal.log:7"),
        ("merger-team", "Error in pods/merger-team/llm-7d4b9c6f5-x2x9z of merger-team"),
        ("llm-7d4b9c6f5-x2x9z", "pod llm-7d4b9c6f5-x2x9z"),
        ("10.0.0.9", "engines/10.0.0.9_8000/metrics.t0.prom"),
        ("quokka", "quokka kernel: x"),
        ("r4u38", "node: r4u38 is NotReady"),
        # people and customers
        ("jdoe", "/Users/jdoe/llm and C:\\Users\\jdoe\\x"),
        ("jdoe", "sshd: Accepted publickey for user jdoe"),
        ("j.doe+x@bank.example", "mail j.doe+x@bank.example"),
        ("acme", 'roadworthy_gateway_tokens_total{tenant="acme",kind="prompt"} 5'),
        ("1654321098765", "Serial Number : 1654321098765"),
        # prompts, however short, quoted or escaped
        ("My PIN", "prompt: 'My PIN'"),
        ("My PIN", r"body: {\"messages\": [{\"role\": \"user\", \"content\": \"My PIN\"}]}"),
        ("My PIN", '{"input":["My PIN","x"]}'),
        ("My PIN", "prompt=My PIN is 1234"),
        ("15, 7722", "prompt_token_ids: [15, 7722, 318]"),
        ("15, 7722", "Received request x: prompt: None, prompt_token_ids: [15, 7722, 318...], lora_request: None"),
        ("My PIN", 'generated_text="My PIN"'),
        ("merger", "User said: the merger is off"),
    ],
)
def test_nothing_private_gets_through_in_another_form(secret: str, text: str) -> None:
    redacted = Redactor(hosts=HOSTS, files=FILES)(text)
    assert secret not in redacted
    assert secret.lower() not in redacted.lower()


@pytest.mark.parametrize(
    "text",
    [
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268",
        "_ZN4c10d16ProcessGroupNCCL8WatchdogE2vEv12345678901234567890",
        "c10d::ProcessGroupNCCL and at::cuda and std::string",
        "10:22:33 up 11 days, 4:10",
        "num_tokens: 128, max_tokens=4096, eos_token_id=2",
        "Avg prompt throughput: 10.1 tokens/s, Running: 6 reqs",
        "nvidia.com/gpu: 8 requested, k8s.io/kubelet, docs.nvidia.com/x",
        "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0",
        "/models/Mixtral-8x22B-Instruct-v0.1/model-00001-of-00059.safetensors",
        "vllm.v1.engine.core.EngineCore raised in scheduler.py line 12",
        "mlx5_0 port 1 state ACTIVE rate 400 Gb/s",
        "GPU 00000000:DD:00.0 has fallen off the bus",
        "clocks.sm, clocks.max.sm, power.draw",
        "unauthorized: token is missing",
    ],
)
def test_words_of_the_trade_are_not_taken_for_private(text: str) -> None:
    assert Redactor(hosts=HOSTS, files=FILES)(text) == text


def test_a_value_is_redacted_in_every_field_but_our_own_words() -> None:
    finding = Finding(
        code="gpu-fell-off-bus", severity="critical", confidence=0.9, subject="node-legal-7, rank 3",
        evidence=(Evidence(file="hosts/node-legal-7/dmesg", line=3, text="node-legal-7 kernel: x"),),
        diagnosis="node-legal-7 lost its GPU", remedy="write to support at help.corp.example",
    )  # fmt: skip
    redacted = Redactor(hosts=HOSTS).value({"findings": (finding,), "reach": ["node-legal-7"], "n": 3, "none": None})
    assert "legal" not in str(redacted)
    assert redacted["findings"][0].remedy == finding.remedy
    assert redacted["n"] == 3


@pytest.mark.parametrize("part", ["a.", "a@", "::", "0", "\\", "token", "prompt: ", "node-", "1.1.", "a-b="])
def test_a_line_without_end_is_cut_and_says_how_much_is_left_out(part: str) -> None:
    redacted = Redactor(hosts=HOSTS)(part * 20_000 + " node-legal-7\n192.0.2.17")
    assert "characters left out>" in redacted
    assert "legal" not in redacted
    assert re.search(r"\n<address-\d>$", redacted)
