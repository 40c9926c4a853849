"""`roadworthy explain`: the page of a root cause, from the same entry that diagnosis uses."""

from __future__ import annotations

import click


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(code: str | None, as_json: bool) -> int:
    """Explain a root cause: how it shows, how to confirm and mend it; without CODE list all."""
    from roadworthy.cli.output import print_json
    from roadworthy.core.errors import Unsupported
    from roadworthy.diagnose.causes import CAUSES
    from roadworthy.diagnose.pages import page_of

    known = {cause.code: cause for cause in CAUSES}
    if code is None:
        if as_json:
            print_json({"causes": [{"code": one.code, "group": one.group, "title": one.title} for one in CAUSES]})
        else:
            click.echo("\n".join(f"{one.code:<30} {one.title}" for one in CAUSES))
        return 0
    if code not in known:
        import difflib

        near = difflib.get_close_matches(code, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "`roadworthy explain` lists all"
        raise Unsupported(f"{code!r} is no root cause that is known here", hint=hint)
    if as_json:
        print_json({"code": code, "page": page_of(known[code])})
    else:
        click.echo(page_of(known[code]), nl=False)
    return 0
