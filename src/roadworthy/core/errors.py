"""The one error tree.

::

    RoadworthyError            anything we raise on purpose; carries a hint and an exit code
    |- SpecError               bad input: the document, a flag or a file is wrong           exit 2
    |- Unsupported             not known here: an architecture, a GPU, an engine version    exit 2
    |- Infeasible              a right question without an answer: nothing fits             exit 1
    |- ProbeError              could not look: engine unreachable, file unreadable          exit 3
    |- Temporary               try again: the thing asked is starting or busy               exit 3
    `- Refused                 turned away on the data port: code, HTTP status, retry_after_s

A message gives the place, the value seen and the value wanted; ``hint`` gives the next step.
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_FINE, EXIT_FINDINGS, EXIT_WRONG_INPUT, EXIT_COULD_NOT_LOOK = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input, in the form ``spec check --json`` prints.

    ``path`` is a dotted place such as ``tenants[1].weight``; ``seen`` is the value as text, cut when long.
    """

    path: str
    seen: str
    wanted: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.seen}, wanted {self.wanted}"


class RoadworthyError(Exception):
    """Root of the tree; ``hint`` is the next step, ``exit_code`` what the command line ends with."""

    exit_code = EXIT_COULD_NOT_LOOK

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SpecError(RoadworthyError):
    """The input is wrong; ``problems`` names every place in one pass."""

    exit_code = EXIT_WRONG_INPUT

    def __init__(self, message: str, *, hint: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class Unsupported(RoadworthyError):
    """The thing asked for may exist, but is not known here."""

    exit_code = EXIT_WRONG_INPUT


class Infeasible(RoadworthyError):
    """The input is right and no answer exists; the message says what would be needed."""

    exit_code = EXIT_FINDINGS


class ProbeError(RoadworthyError):
    """We could not look: unreachable, unreadable, not permitted."""

    exit_code = EXIT_COULD_NOT_LOOK


class Temporary(RoadworthyError):
    """The same call may go through later."""

    exit_code = EXIT_COULD_NOT_LOOK


class Refused(RoadworthyError):
    """A request turned away on the data port.

    Args:
        code: stable, low-cardinality word for programs, such as ``rate_limited``.
        status: the HTTP status that goes with it.
        retry_after_s: seconds after which trying again is worth it, or None when it never is.
    """

    def __init__(
        self, message: str, *, code: str, status: int, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s
