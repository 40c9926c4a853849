"""The panels of the board: what each shows, why one looks at it, and where it turns bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One graph.

    Args:
        queries: (PromQL, legend) pairs.
        unit: Grafana's name of it: ``s``, ``percentunit``, ``reqps``, ``short``.
        limit: where a threshold line is drawn; None for none.
    """

    title: str
    why: str
    queries: tuple[tuple[str, str], ...]
    unit: str
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


RANK = "{{instance}} rank {{engine}}"
ENGINES = '{instance=~"$engine"}'


def rows(inputs: RenderInput) -> tuple[Row, ...]:
    """The board from what clients see down to the pool."""
    return (_clients(inputs), _engines(inputs), _pool(), _tenants())


def _clients(inputs: RenderInput) -> Row:
    sla = inputs.deployment.sla
    budget = 1 - sla.success_ratio if sla.success_ratio is not None else None
    return Row(
        title="What clients see",
        panels=(
            Panel(
                title="Time to first token, p99",
                why="Whole request read to first event relayed, at the gateway; the line is sla.ttft_p99.",
                queries=(("gateway:ttft_seconds:p99_5m", "{{model}}"),),
                unit="s",
                limit=sla.ttft_p99_s,
            ),
            Panel(
                title="Time per output token, p99",
                why="Mean gap of each request: as clients see it, and by engine; the line is sla.tpot_p99.",
                queries=(
                    ("gateway:tpot_seconds:p99_5m", "{{model}} at the gateway"),
                    (f"engine:tpot_seconds:p99_5m{ENGINES}", RANK),
                ),
                unit="s",
                limit=sla.tpot_p99_s,
            ),
            Panel(
                title="Failed requests",
                why="Share that failed through us; clients that left and agreed limits are not counted.",
                queries=(("gateway:failed:ratio5m", "5 min"), ("gateway:failed:ratio1h", "1 h")),
                unit="percentunit",
                limit=budget,
            ),
            Panel(
                title="Requests by outcome",
                why="engine_error and engine_timeout: look at the engines; refused: at the tenant.",
                queries=(("sum by (outcome) (rate(roadworthy_gateway_requests_total[5m]))", "{{outcome}}"),),
                unit="reqps",
            ),
            Panel(
                title="Engines in routing",
                why="0: the gateway sends nothing there; /api/status says why.",
                queries=(("min by (endpoint) (roadworthy_gateway_engine_up)", "{{endpoint}}"),),
                unit="short",
            ),
            Panel(
                title="Engines given up for another",
                why="connect and hard: an engine fails, unseen by clients; full: queues at their limit.",
                queries=(("sum by (reason) (rate(roadworthy_gateway_retries_total[5m]))", "{{reason}}"),),
                unit="reqps",
            ),
        ),
    )


def _engines(inputs: RenderInput) -> Row:
    setting = inputs.chosen.settings.get("max_num_seqs")
    most = setting.value if setting is not None else None
    return Row(
        title="Engines",
        panels=(
            Panel(
                title="Requests running",
                why="The line is --max-num-seqs of one rank: at it, new requests wait.",
                queries=((f"vllm:num_requests_running{ENGINES}", RANK),),
                unit="short",
                limit=float(most) if isinstance(most, int) else None,
            ),
            Panel(
                title="Requests waiting, by reason",
                why="capacity: no room; deferred: waits for a KV transfer or an adapter.",
                queries=((f"vllm:num_requests_waiting_by_reason{ENGINES}", RANK + " {{reason}}"),),
                unit="short",
            ),
            Panel(
                title="Gap between tokens, p99",
                why="Single gaps by engine: long prefills between decodes show here first.",
                queries=((f"engine:itl_seconds:p99_5m{ENGINES}", RANK),),
                unit="s",
                limit=0.15,
            ),
            Panel(
                title="Queue in the engine, p99",
                why="Arrival in the scheduler to first scheduled; the histogram's smallest bound is 0.3 s.",
                queries=((f"engine:queue_seconds:p99_5m{ENGINES}", RANK),),
                unit="s",
            ),
            Panel(
                title="Output tokens",
                why="A second, by rank; uneven for long: one is slower.",
                queries=((f"engine:output_tokens:rate5m{ENGINES}", RANK),),
                unit="short",
            ),
            Panel(
                title="Scheduler steps",
                why="A second. None while requests run: the engine hangs.",
                queries=((f"engine:steps:rate2m{ENGINES}", RANK),),
                unit="short",
            ),
        ),
    )


def _pool() -> Row:
    return Row(
        title="KV pool and prefix cache",
        panels=(
            Panel(
                title="KV pool in use",
                why="Above 90 % long prompts wait, above 98 % requests are preempted. Blocks cannot be fragmented.",
                queries=((f"engine:kv_pool_used:ratio{ENGINES}", RANK),),
                unit="percentunit",
                limit=0.9,
            ),
            Panel(
                title="Preemptions",
                why="A second: each computes a request again from its start.",
                queries=((f"engine:preemptions:rate5m{ENGINES}", RANK),),
                unit="reqps",
                limit=0.001,
            ),
            Panel(
                title="Prefix cache hits",
                why="Tokens found of tokens asked for. Compare with what the prompts share; no fixed value is good.",
                queries=((f"engine:prefix_cache_hits:ratio5m{ENGINES}", RANK),),
                unit="percentunit",
            ),
            Panel(
                title="Prompt tokens",
                why="A second, cached ones included.",
                queries=((f"engine:prompt_tokens:rate5m{ENGINES}", RANK),),
                unit="short",
            ),
        ),
    )


def _tenants() -> Row:
    return Row(
        title="Tenants",
        panels=(
            Panel(
                title="Output tokens by tenant",
                why="Who uses the capacity.",
                queries=(('sum by (tenant) (rate(roadworthy_gateway_tokens_total{kind="output"}[5m]))', "{{tenant}}"),),
                unit="short",
            ),
            Panel(
                title="Refused by tenant",
                why="At its own limit: nothing is broken.",
                queries=(
                    ('sum by (tenant) (rate(roadworthy_gateway_requests_total{outcome="refused"}[5m]))', "{{tenant}}"),
                ),
                unit="reqps",
            ),
        ),
    )
