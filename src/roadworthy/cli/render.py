"""`roadworthy render`: the files that start and surround the engines, for one target or all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE, Infeasible, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.adapters.rendered_files import Written
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.render.values import Artifact, RenderInput
    from roadworthy.spec.values import Deployment


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option(
    "--target", "targets", metavar="NAME", multiple=True, required=True, help="Which files; may be repeated, or 'all'."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder; files go to OUT/TARGET/.")
@click.option("--layout", metavar="TEXT", help="Render this split, such as 'TP8 PP4', not the plan's first.")
@click.option(
    "--topology", metavar="FILE", help="Output of `nvidia-smi topo -m`: which GPUs, NICs and cores belong together."
)
@click.option("--explain", is_flag=True, help="Print every setting with its value, reason and source.")
@click.option(
    "--diff", "compare", is_flag=True, help="Print what would change in OUT, write nothing; exit 1 if anything."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    spec: str,
    targets: tuple[str, ...],
    out: Path | None,
    layout: str | None,
    topology: str | None,
    explain: bool,
    compare: bool,
    as_json: bool,
) -> int:
    """Write start files, unit files, manifests and rules for a deployment, each setting with its reason.

    SPEC is a deployment document (- reads standard input). Exit code 1: no layout fits, or --diff found a difference.
    """
    if out is None and (compare or not explain):
        raise SpecError("--out: nothing given, wanted a folder", hint="--out build/rendered")
    names = target_names(targets)
    inputs, why = render_input(spec, layout)
    if topology is not None:
        inputs = with_topology(inputs, topology)
    rendered = render(inputs, names)
    if compare and out is not None:
        return _compare(out, rendered, as_json=as_json)
    from roadworthy.cli.output import say

    say(f"layout: {why}")
    results = _write(out, rendered) if out is not None else {}
    if as_json:
        from roadworthy.cli.output import print_json
        from roadworthy.cli.render_report import render_json

        print_json(render_json(inputs, why, rendered, results, out))
    elif explain:
        from roadworthy.cli.output import console
        from roadworthy.cli.render_report import settings_table

        screen = console()
        for name in names:
            screen.print(settings_table(name, rendered[name]))
    return EXIT_FINE


def target_names(asked: Sequence[str]) -> tuple[str, ...]:
    """The targets asked for, each once, in the registry's order. Raises Unsupported for one that is not there."""
    from roadworthy.render.targets import TARGETS, target

    wanted = [name for text in asked for name in text.split(",") if name]
    if not wanted:
        raise SpecError("--target: no name in it, wanted one of " + ", ".join([*TARGETS, "all"]))
    if "all" in wanted:
        return tuple(TARGETS)
    for name in wanted:
        target(name)
    return tuple(name for name in TARGETS if name in wanted)


def render_input(spec: str, layout: str | None) -> tuple[RenderInput, str]:
    """What targets are made from, and in words which layout and why.

    Raises Infeasible when no layout fits, or the one asked for does not.
    """
    from roadworthy.cli.plan import only
    from roadworthy.cli.wiring import load_planned
    from roadworthy.render.values import RenderInput

    planned = load_planned(spec)
    if layout is None:
        chosen, why = _first(planned)
    else:
        chosen = only(planned.plan, layout).layouts[0]
        why = f"{chosen.layout.label}, as --layout asks"
        if chosen.feasible is False:
            reason = chosen.reasons[0] if chosen.reasons else "it does not fit"
            raise Infeasible(f"{chosen.layout.label}: {reason}", hint="`roadworthy plan --all` shows what fits")
    if chosen.feasible == "uncertain":
        why += "; it may not fit: " + "; ".join(chosen.reasons)
    inputs = RenderInput(
        deployment=planned.deployment, model=planned.model, gpu=planned.gpu, chosen=chosen,
        check_script=check_script(planned.deployment),
    )  # fmt: skip
    return inputs, why


def check_script(deployment: Deployment) -> str:
    """What a pod asks its node: `check --script`, with the read speed of a checkpoint that lies on every node."""
    from roadworthy.diagnose.hosts.commands import capture_script
    from roadworthy.render.kubernetes.node_check import HOST_ROOT

    folder = deployment.kubernetes.model_path
    return capture_script(weights=HOST_ROOT + folder if folder else None)


def with_topology(inputs: RenderInput, path: str) -> RenderInput:
    """``inputs`` with what the matrix in ``path`` tells of a host; what the document says itself stays."""
    from dataclasses import replace

    from roadworthy.adapters.files import read_text
    from roadworthy.cli.output import say
    from roadworthy.render.topology import fitting, read_topology

    topology = read_topology(read_text(path, what="the output of `nvidia-smi topo -m`"), source=path)
    cluster = inputs.deployment.cluster
    found = fitting(topology, cluster, source=path)
    for name, values in found.items():
        say(f"{path}: cluster.{name}: [{', '.join(str(value) for value in values)}]")
    if not topology.compute_nics and not cluster.hcas:
        say(f"{path}: no NICs taken: not every GPU has one of its own near, or others are as near; name cluster.hcas")
    filled = replace(inputs.deployment, cluster=replace(cluster, **found))  # type: ignore[arg-type]
    return replace(inputs, deployment=filled, topology=topology)


def _first(planned: Planned) -> tuple[LayoutPlan, str]:
    """The first layout that fits and goes evenly over the hosts."""
    from roadworthy.render.placement import why_not_placed

    best = planned.best()
    for judged in planned.plan.layouts:
        if judged.feasible is not False and not why_not_placed(judged.layout, planned.deployment.cluster):
            why = f"{judged.layout.label}, first of the plan without simulated queueing (--layout takes another)"
            if judged is not best:
                reason = why_not_placed(best.layout, planned.deployment.cluster)
                why += f"; {best.layout.label} is before it, but {reason}"
            return judged, why
    reason = why_not_placed(best.layout, planned.deployment.cluster)
    raise Infeasible(f"{planned.deployment.name}: no layout that fits goes evenly over the hosts: {reason}")


def render(inputs: RenderInput, names: Sequence[str]) -> Mapping[str, tuple[Artifact, ...]]:
    """The files of every target, by name."""
    from roadworthy.render.targets import target

    return {name: target(name)(inputs) for name in names}


def _write(out: Path, rendered: Mapping[str, tuple[Artifact, ...]]) -> Mapping[str, Written]:
    from roadworthy.adapters.rendered_files import write_artifacts
    from roadworthy.cli.output import say

    results = {}
    for name, artifacts in rendered.items():
        done = results[name] = write_artifacts(out / name, artifacts)
        removed = f", {len(done.removed)} removed" if done.removed else ""
        say(f"{out / name}: {len(done.written)} written, {len(done.unchanged)} as they were{removed}")
        for path in done.kept:
            say(f"{out / name / path}: no longer rendered, but changed by hand since: left in place")
    return results


def _compare(out: Path, rendered: Mapping[str, tuple[Artifact, ...]], *, as_json: bool) -> int:
    from roadworthy.adapters.rendered_files import difference

    found = {name: difference(out / name, artifacts) for name, artifacts in rendered.items()}
    if as_json:
        from roadworthy.cli.output import print_json

        print_json({"different": any(found.values()), "targets": found})
    else:
        click.echo("".join(found.values()), nl=False)
    return EXIT_FINDINGS if any(found.values()) else EXIT_FINE
