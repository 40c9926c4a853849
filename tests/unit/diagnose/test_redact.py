"""What leaves the house: names, addresses, keys and prompts are replaced, the same by the same, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
