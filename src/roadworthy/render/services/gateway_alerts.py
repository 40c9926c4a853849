"""Alerts on what clients see, from the gateways' metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.services.alerts import GATEWAYS_JOB, Alert, histogram_series, number_text

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

DEFAULT_BUDGET_RATIO = 0.001
FAST_BURN, SLOW_BURN = 14.4, 6.0
"""Of a month's budget: 2 % in one hour, 5 % in six (Google SRE workbook, alerting on SLOs)."""


def gateway_alerts(inputs: RenderInput) -> tuple[Alert, ...]:
    """Every alert that the gateways' metrics can raise; time to first token only where the document promises one."""
    return (*_reachable(), *_latency(inputs), *_failures(inputs), *_routing(), *_itself(), *_tenants())


def _reachable() -> tuple[Alert, ...]:
    return (
        Alert(
            name="GatewayDown",
            expr=f'up{{job="{GATEWAYS_JOB}"}} == 0',
            for_="1m",
            severity="critical",
            why="clients reach engines only through gateways",
            summary="gateway {{ $labels.instance }} does not answer on its admin port",
            runbook="Is the process there? /healthz on the admin port; its log; is --admin-host reachable from here?",
            fires=((f'up{{job="{GATEWAYS_JOB}",instance="g0:8081"}}', "1x5 0x20"),),
            quiet=((f'up{{job="{GATEWAYS_JOB}",instance="g0:8081"}}', "1x30"),),
        ),
    )


def _latency(inputs: RenderInput) -> tuple[Alert, ...]:
    limit_s = inputs.deployment.sla.ttft_p99_s
    if limit_s is None:
        return ()
    labels = 'model="m",endpoint="http://e0:8000",operation="chat",outcome="ok"'
    return (
        Alert(
            name="TtftMissed",
            expr=f"gateway:ttft_seconds:p99_5m > {number_text(limit_s)}",
            for_="5m",
            severity="critical",
            why="time to first token at the gateway above sla.ttft_p99",
            summary="time to first token of {{ $labels.model }} is above the objective",
            runbook="Queue at the engines (engine:queue_seconds:p99_5m)? Hit rate fallen? Long prompts of one "
            "tenant? Then capacity: `roadworthy simulate` with the measured rate.",
            fires=histogram_series(
                "roadworthy_gateway_ttft_seconds",
                labels,
                below=("0.005", number_text(limit_s)),
                at_most="1000.0",
            ),
            quiet=histogram_series("roadworthy_gateway_ttft_seconds", labels, below=(), at_most="0.005"),
        ),
    )


def _failures(inputs: RenderInput) -> tuple[Alert, ...]:
    success = inputs.deployment.sla.success_ratio
    budget = max(1 - success, 0.0) if success is not None else DEFAULT_BUDGET_RATIO
    promised = "sla.success" if success is not None else "99.9 %, a default"
    ok = 'roadworthy_gateway_requests_total{tenant="t",operation="chat",outcome="ok",status_class="2xx"}'
    bad = 'roadworthy_gateway_requests_total{tenant="t",operation="chat",outcome="engine_error",status_class="5xx"}'
    return (
        Alert(
            name="RequestsFail",
            expr=_burn(budget, FAST_BURN, "1h", "5m"),
            for_="2m",
            severity="critical",
            why=f"failures use up a month's budget of {promised} within two days",
            summary="requests fail through engines or gateway",
            runbook="Gateway /api/status: which engine is out, and why? Outcome engine_timeout: a hang; engine_error: "
            "the engine's log; no_engine: all are out.",
            fires=((ok, "0+60x30"), (bad, "0+60x30")),
            quiet=((ok, "0+60x30"), (bad, "0x30")),
        ),
        Alert(
            name="RequestsFailSlowly",
            expr=_burn(budget, SLOW_BURN, "6h", "30m"),
            for_="15m",
            severity="warning",
            why=f"failures use up a month's budget of {promised} within five days",
            summary="some requests fail through engines or gateway",
            runbook="As RequestsFail; there is time until the working day.",
            fires=((ok, "0+60x30"), (bad, "0+60x30")),
            quiet=((ok, "0+60x30"), (bad, "0x30")),
            at_minute=25,
        ),
    )


def _routing() -> tuple[Alert, ...]:
    return (
        Alert(
            name="EngineOutOfRouting",
            expr="roadworthy_gateway_engine_up == 0",
            for_="2m",
            severity="warning",
            why="the gateway sends nothing there; capacity is short by one engine",
            summary="{{ $labels.instance }} leaves engine {{ $labels.endpoint }} out",
            runbook="/api/status says why. Up for Prometheus and out for the gateway: network between the two, or "
            "failures in a row.",
            fires=(('roadworthy_gateway_engine_up{instance="g0:8081",endpoint="http://e0:8000"}', "0x30"),),
            quiet=(('roadworthy_gateway_engine_up{instance="g0:8081",endpoint="http://e0:8000"}', "1x30"),),
        ),
        Alert(
            name="EngineFailsUnseen",
            expr='sum by (instance) (rate(roadworthy_gateway_retries_total{reason=~"connect|hard"}[5m])) > 0.05',
            for_="5m",
            severity="warning",
            why="clients see nothing because the gateway tries elsewhere; the engine is ill all the same",
            summary="{{ $labels.instance }} gives engines up for others again and again",
            runbook="roadworthy_gateway_engine_up and each engine's log: which one refuses or dies?",
            fires=(('roadworthy_gateway_retries_total{instance="g0:8081",reason="hard"}', "0+30x30"),),
            quiet=(('roadworthy_gateway_retries_total{instance="g0:8081",reason="full"}', "0+30x30"),),
        ),
    )


def _itself() -> tuple[Alert, ...]:
    return (
        Alert(
            name="GatewayWorkerDied",
            expr="increase(roadworthy_gateway_worker_restarts_total[15m]) > 0",
            for_="0m",
            severity="warning",
            why="a worker was started again; its streams were cut",
            summary="a worker of {{ $labels.instance }} died and was started again",
            runbook="The gateway's log around that time; memory of the pod or unit (killed?).",
            fires=(('roadworthy_gateway_worker_restarts_total{instance="g0:8081"}', "0x10 1x20"),),
            quiet=(('roadworthy_gateway_worker_restarts_total{instance="g0:8081"}', "1x30"),),
        ),
        Alert(
            name="DocumentRefused",
            expr="increase(roadworthy_gateway_reloads_refused_total[1h]) > 0",
            for_="0m",
            severity="warning",
            why="a changed document was refused; the one before stays in force, and a restart would fail",
            summary="{{ $labels.instance }} refused a changed document",
            runbook="`roadworthy spec check` names every problem in it; mend it and reload again.",
            fires=(('roadworthy_gateway_reloads_refused_total{instance="g0:8081"}', "0x10 1x20"),),
            quiet=(('roadworthy_gateway_reloads_refused_total{instance="g0:8081"}', "1x30"),),
        ),
    )


def _tenants() -> tuple[Alert, ...]:
    refused = 'roadworthy_gateway_requests_total{tenant="t",operation="chat",outcome="refused",status_class="4xx"}'
    return (
        Alert(
            name="TenantRefused",
            expr='sum by (tenant) (rate(roadworthy_gateway_requests_total{outcome="refused"}[10m])) > 0.1',
            for_="10m",
            severity="info",
            why="a tenant that lives at its limit needs a larger one, or a talk",
            summary="tenant {{ $labels.tenant }} is refused again and again",
            runbook="Its rpm and concurrency in the document against its traffic; nothing is broken.",
            fires=((refused, "0+60x40"),),
            quiet=((refused, "0+1x40"),),
            at_minute=24,
        ),
    )


def _burn(budget: float, factor: float, long: str, short: str) -> str:
    limit = number_text(min(factor * budget, 0.5))
    return f"gateway:failed:ratio{long} > {limit}\nand\ngateway:failed:ratio{short} > {limit}"
