"""Subcommands run in this process: their exit code, and the JSON document that they print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click
    import pytest


def run(command: click.Command, *arguments: object) -> int:
    """The exit code; an error is raised as itself."""
    code = command.main([str(one) for one in arguments], standalone_mode=False)
    assert isinstance(code, int)
    return code


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON document on stdout."""
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document
