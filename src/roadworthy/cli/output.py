"""What every command shares: errors as one message with a hint, JSON on stdout, words on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, NoReturn

import click

from roadworthy.core.errors import EXIT_COULD_NOT_LOOK, EXIT_WRONG_INPUT, RoadworthyError, SpecError

if TYPE_CHECKING:
    from rich.console import Console


def run(command: click.Command) -> NoReturn:
    """Run ``command`` on ``sys.argv`` and exit with its code; no traceback for anything we can foresee."""
    try:
        code = command.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_WRONG_INPUT)
    except RoadworthyError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output left; point stdout at nothing so that interpreter shutdown stays quiet
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_COULD_NOT_LOOK)
    sys.exit(code if isinstance(code, int) else 0)


def print_error(error: RoadworthyError) -> None:
    """The error on stderr: message, every problem of a SpecError, then the hint."""
    click.echo(f"error: {error}", err=True)
    if isinstance(error, SpecError):
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
            if problem.hint:
                click.echo(f"    hint: {problem.hint}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)


def plain(value: object) -> object:
    """``value`` as JSON knows it: dataclasses and mappings become objects, NaN and infinity null, tuples lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def print_json(value: object) -> None:
    """Exactly one JSON document on stdout."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    """A rich console that colours only a terminal and honours ``NO_COLOR`` and ``COLUMNS``."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)
