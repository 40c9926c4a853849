"""The rules: each reads what the readers found and reports to a Judge. A rule's id is its row of the truth table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.lint.rules.entry import check_entry
from roadworthy.lint.rules.environment import check_environment
from roadworthy.lint.rules.flags import check_flags
from roadworthy.lint.rules.gateway import check_gateway
from roadworthy.lint.rules.host import check_host
from roadworthy.lint.rules.kubernetes import check_kubernetes
from roadworthy.lint.rules.metrics import check_metrics
from roadworthy.lint.rules.nccl import check_nccl
from roadworthy.lint.rules.ray import check_ray
from roadworthy.lint.rules.servers import check_servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.lint.rules.judge import Judge

CHECKS: tuple[Callable[[Judge], None], ...] = (
    check_entry,
    check_flags,
    check_servers,
    check_environment,
    check_nccl,
    check_ray,
    check_host,
    check_kubernetes,
    check_gateway,
    check_metrics,
)
