"""The group's one-line help agrees with each command's own, and nothing else is imported to show it."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from roadworthy.cli import COMMANDS, cli


@pytest.mark.parametrize("name", COMMANDS)
def test_the_one_line_help_is_the_first_line_of_the_commands_own(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help is not None
    assert command.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name].help


def test_help_of_the_group_imports_no_subcommand() -> None:
    code = (
        "import sys, json\n"
        "sys.argv = ['roadworthy', '--help']\n"
        "from roadworthy.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('roadworthy')]), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    assert loaded <= {
        "roadworthy",
        "roadworthy.cli",
        "roadworthy.cli.output",
        "roadworthy.core",
        "roadworthy.core.errors",
    }


def test_a_mistyped_command_gets_a_suggestion_and_exit_code_2() -> None:
    done = subprocess.run([sys.executable, "-m", "roadworthy", "pln"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean 'plan'" in done.stderr
