"""A command with subcommands that is also a command of its own: what is no subcommand's name goes to the default."""

from __future__ import annotations

import click


class DefaultGroup(click.Group):
    """``bench URL`` runs ``bench run URL``; ``bench sweep URL`` runs its subcommand.

    The default subcommand is called ``run``. A file of a subcommand's name is still reached as ``./name``. ``--help``
    alone shows the default's options and then the other subcommands.
    """

    DEFAULT = "run"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default's name first unless a subcommand's stands there."""
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = [self.DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for the default, one for the others."""
        default = self.commands[self.DEFAULT]
        pieces = " ".join(default.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces)
        others = " | ".join(name for name in self.commands if name != self.DEFAULT)
        formatter.write_usage(ctx.command_path, f"{{{others}}} ...", prefix="   or: ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The default's options, then the subcommands."""
        self.commands[self.DEFAULT].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every subcommand but the default, which needs no name."""
        return [name for name in self.commands if name != self.DEFAULT]
