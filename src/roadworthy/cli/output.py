"""What every command shares: errors as one message with a hint, JSON on stdout, words on stderr."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import IO, TYPE_CHECKING, NoReturn, cast

import click

from roadworthy.core.errors import EXIT_COULD_NOT_LOOK, EXIT_WRONG_INPUT, RoadworthyError, SpecError, Unsupported

if TYPE_CHECKING:
    from rich.console import Console


_printed = threading.Event()
"""Set once the process has printed its JSON document, so that an error after it does not print a second."""

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""What tells a service to stop in order; SIGHUP is a terminal or an ssh session that closed."""


def open_standard_streams() -> None:
    """Give descriptors 0 to 2 a place when we were started without (cron, daemons): a socket must never get one."""
    lowest = os.open(os.devnull, os.O_RDWR)
    while lowest <= 2:
        lowest = os.dup(lowest)
    os.close(lowest)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - lives as long as we


def run(command: click.Command) -> NoReturn:
    """Run ``command`` on ``sys.argv`` and exit with its code; no traceback for anything we can foresee."""
    open_standard_streams()
    try:
        code = command.main(prog_name="roadworthy", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        say("interrupted")
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_WRONG_INPUT)
    except RoadworthyError as error:
        print_error(error)
        if "--json" in sys.argv[1:] and not _printed.is_set():
            print_json(error_json(error))
            sys.stdout.flush()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()  # the reader of our output left
        sys.exit(EXIT_COULD_NOT_LOOK)
    except OSError as error:
        _drop_output()
        what = "cannot write the output" if error.filename is None else str(error.filename)
        say(f"error: {what}: {error.strerror or error}")
        sys.exit(EXIT_COULD_NOT_LOOK)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """Point stdout at nothing, so that what is still buffered makes no noise when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """``text`` on stderr. A reader that left or a full disk changes nothing of what the program does."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, err=True)


def require_extra(extra: str, *modules: str) -> None:
    """Raise Unsupported, naming the install command, unless every one of ``modules`` can be imported."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise Unsupported(
            f"this command needs {', '.join(missing)}, not installed here",
            hint=f"pip install 'roadworthy[{extra}]'",
        )


def require_two_ports(port: int | None, admin_port: int | None) -> None:
    """Raise SpecError when both listeners are asked to take one port; 0 and None are no port yet."""
    if port and port == admin_port:
        raise SpecError(f"--port and --admin-port: both {port}, wanted two ports", hint="0 takes a free one")


def print_error(error: RoadworthyError) -> None:
    """The error on stderr: message, every problem of a SpecError, then the hint."""
    say(f"error: {error}")
    if isinstance(error, SpecError):
        for problem in error.problems:
            say(f"  {problem}")
            if problem.hint:
                say(f"    hint: {problem.hint}")
    if error.hint:
        say(f"hint: {error.hint}")


def error_json(error: RoadworthyError) -> Mapping[str, object]:
    """The one document that a command with ``--json`` prints when it comes to no result: what is wrong, and what next.

    ``problems`` is as `spec check --json` has it, empty where the error is not about the document.
    """
    problems = error.problems if isinstance(error, SpecError) else ()
    return {"error": {"message": str(error), "hint": error.hint}, "problems": problems}


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
    _printed.set()
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    """A rich console that colours only a terminal, honours ``NO_COLOR`` and ``COLUMNS``, and pads no line of a pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return Console(stderr=stderr, highlight=False)
    from roadworthy.cli.narrow import Trimmed

    return Console(file=cast("IO[str]", Trimmed(stream)), stderr=stderr, highlight=False)
