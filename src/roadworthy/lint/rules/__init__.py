"""The rules: each reads what the readers found and reports to a Judge. A rule's id is its row of the truth table.

Modules are imported when a file has something that they judge: files are short, and start-up is most of their time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.lint.rules.judge import Judge


def judge_all(judge: Judge) -> None:
    """Run every rule that the file gives a reason for."""
    reading = judge.reading
    text = judge.code.lower()
    if reading.invocations or "api_server" in text or "benchmark_" in text:
        from roadworthy.lint.rules.entry import check_entry
        from roadworthy.lint.rules.flags import check_flags
        from roadworthy.lint.rules.servers import check_servers

        check_entry(judge)
        check_flags(judge)
        check_servers(judge)
    if reading.env or reading.documents:
        from roadworthy.lint.rules.environment import check_environment
        from roadworthy.lint.rules.nccl import check_nccl

        check_environment(judge)
        check_nccl(judge)
    if "ray" in text or "heartbeat" in text:
        from roadworthy.lint.rules.ray import check_ray

        check_ray(judge)
    from roadworthy.lint.rules.host import check_host

    check_host(judge)
    if reading.documents or reading.images:
        from roadworthy.lint.rules.kubernetes import check_kubernetes

        check_kubernetes(judge)
    if reading.documents or reading.kind == "nginx":
        from roadworthy.lint.rules.gateway import check_gateway

        check_gateway(judge)
    if "vllm:" in text or "vllm_" in text:
        from roadworthy.lint.rules.metrics import check_metrics

        check_metrics(judge)
