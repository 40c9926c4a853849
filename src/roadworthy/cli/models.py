"""`roadworthy models`: the models in the catalog, with sources."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> int:
    """List the models known, with sources."""
    from roadworthy.catalog.models import ARCHITECTURES, known_models, model_by_id
    from roadworthy.plan.weights import checkpoint_totals

    entries = []
    for known in known_models():
        model = model_by_id(known.id)
        totals = checkpoint_totals(model)
        entries.append(
            {
                "id": known.id,
                "aliases": known.aliases,
                "repository": known.repository,
                "architecture": model.architecture,
                "layers": model.num_layers,
                "parameters": totals.parameters,
                "weights_bytes_total": totals.bytes,
                "max_context_tokens": model.max_context_tokens,
                "source": model.source,
            }
        )
    if as_json:
        from roadworthy.cli.output import print_json

        print_json({"models": entries, "architectures": tuple(ARCHITECTURES)})
        return 0
    _print(entries, tuple(ARCHITECTURES))
    return 0


def _print(entries: list[dict[str, object]], architectures: tuple[str, ...]) -> None:
    from rich import box
    from rich.table import Table

    from roadworthy.cli.output import console
    from roadworthy.core.units import format_bytes

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("model", no_wrap=True)
    for name in ("parameters", "weights", "context"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in entries:
        parameters, size, context = entry["parameters"], entry["weights_bytes_total"], entry["max_context_tokens"]
        assert isinstance(parameters, int)
        assert isinstance(size, int)
        assert isinstance(context, int)
        shown = f"{parameters / 1e9:,.1f} B" if parameters >= 1e8 else f"{parameters / 1e6:,.1f} M"
        table.add_row(str(entry["id"]), shown, format_bytes(size), f"{context:,}")
    screen = console()
    screen.print(table)
    for entry in entries:
        screen.print(f"{entry['id']} ({entry['architecture']}): {entry['source']}", style="dim", soft_wrap=True)
    screen.print(
        "\nAny other checkpoint of these architectures can be named by its folder or config.json: "
        + ", ".join(architectures)
    )
