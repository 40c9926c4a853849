"""The command line: one file a subcommand, loaded when it is used.

``--help`` of the group must not import a subcommand (it answers in well under 150 ms), so each command's one-line help
stands in ``COMMANDS`` and a test holds it to the command's own docstring.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click

from roadworthy import __version__


class Subcommand(NamedTuple):
    """Where a subcommand lives (module below ``roadworthy.cli``) and its line in ``--help``."""

    module: str
    help: str


COMMANDS = {
    "plan": Subcommand("plan", "Say whether it fits, how to split it, and how many tokens and users it holds."),
    "render": Subcommand(
        "render", "Write start files, unit files, manifests and rules for a deployment, each setting with its reason."
    ),
    "up": Subcommand("up", "Start engines, gateway and admin server here, supervised; Ctrl-C stops all."),
    "gateway": Subcommand("gateway", "Serve tenants through the OpenAI-compatible gateway alone."),
    "tenants": Subcommand("tenants", "List, watch and change the tenants of a running gateway."),
    "keys": Subcommand("keys", "Make, rotate and revoke keys of tenants and of the admin API."),
    "quota": Subcommand("quota", "Show and change what tenants may hold and use, while they hold it."),
    "engines": Subcommand(
        "engines", "List the engines of a running gateway: health, load, what they serve, which drain."
    ),
    "drain": Subcommand("drain", "Send the engine at URL no new requests; those in progress end."),
    "bench": Subcommand("bench", "Drive open-loop load and give a verdict for each objective of the SLA."),
    "simulate": Subcommand("simulate", "Run the same deployment in virtual time: hours of traffic in seconds."),
    "cost": Subcommand("cost", "Say what it costs, what a million tokens costs, and whether to buy or build."),
    "check": Subcommand(
        "check", "Check whether this host, or those given, is ready: GPUs, NICs, RDMA, limits, clocks, links."
    ),
    "diagnose": Subcommand(
        "diagnose", "Name the root cause from logs, probe output and metrics, with evidence and remedy."
    ),
    "explain": Subcommand(
        "explain", "Explain a root cause: how it shows, how to confirm and mend it; without CODE list all."
    ),
    "lint": Subcommand(
        "lint", "Name every false setting in launch scripts, manifests and environment files, and mend them."
    ),
    "doc": Subcommand("doc", "Read long documents and find the passage that answers, by number, words and meaning."),
    "spec": Subcommand("spec", "Check a deployment document, or print its JSON Schema."),
    "models": Subcommand("models", "List the models known, with sources."),
    "gpus": Subcommand("gpus", "List the GPUs known, with sources."),
    "flags": Subcommand("flags", "List or explain flags of `vllm serve` and environment variables, by engine version."),
}


class LazyGroup(click.Group):
    """A click group that imports a subcommand's module only to run it or to show that command's own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"roadworthy.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, subcommand.help) for name, subcommand in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a did-you-mean that does not import every command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message}\nhint: did you mean '{close[0]}'?", ctx) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="roadworthy")
def cli() -> None:
    """Plan, launch, govern, measure and diagnose a self-hosted LLM service on vLLM.

    Exit codes: 0 fine, 1 findings or a missed objective, 2 wrong input, 3 could not look.
    """


def main() -> None:
    """Entry point: run the command, turn our errors into one clear message and the right exit code."""
    from roadworthy.cli.output import run

    run(cli)
