"""What `roadworthy render` prints: every setting with its reason, as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from roadworthy.render.manifest import entries
from roadworthy.render.shell import plain_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from roadworthy.adapters.rendered_files import Written
    from roadworthy.render.values import Artifact, Emitted, RenderInput


def settings_of(artifacts: Sequence[Artifact]) -> tuple[tuple[Emitted, tuple[str, ...]], ...]:
    """Each setting once, with the files that carry it, in order of first appearance."""
    found: dict[Emitted, list[str]] = {}
    for artifact in artifacts:
        for setting in artifact.settings:
            files = found.setdefault(setting, [])
            if artifact.path not in files:
                files.append(artifact.path)
    return tuple((setting, tuple(files)) for setting, files in found.items())


def settings_table(target: str, artifacts: Sequence[Artifact]) -> Table:
    """Name, value, why, source of every setting; the files where not all carry it."""
    table = Table(title=f"{target}: settings", title_justify="left", show_lines=False)
    for head in ("setting", "value", "why", "source", "in"):
        table.add_column(head, overflow="fold")
    everywhere = sum(1 for artifact in artifacts if artifact.settings)
    for setting, files in settings_of(artifacts):
        value = "" if setting.value is None else plain_line(str(setting.value))
        where = "" if len(files) == everywhere else files[0] + (f" +{len(files) - 1}" if len(files) > 1 else "")
        table.add_row(*(escape(cell) for cell in (setting.name, value, setting.why, setting.source, where)))
    return table


def render_json(
    inputs: RenderInput,
    why: str,
    rendered: Mapping[str, tuple[Artifact, ...]],
    results: Mapping[str, Written],
    out: Path | None,
) -> object:
    """The JSON of a rendering: layout, and for each target its files, settings and what writing did."""
    return {
        "deployment": inputs.deployment.name,
        "layout": inputs.chosen.layout.label,
        "why": why,
        "targets": {
            name: {
                "folder": None if out is None else str(out / name),
                "files": entries(artifacts),
                "settings": [
                    {
                        "kind": setting.kind, "name": setting.name, "value": setting.value, "why": setting.why,
                        "source": setting.source, "files": files,
                    }
                    for setting, files in settings_of(artifacts)
                ],
                **({"result": results[name]} if name in results else {}),
            }
            for name, artifacts in rendered.items()
        },
    }  # fmt: skip
