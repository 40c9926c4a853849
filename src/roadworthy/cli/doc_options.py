"""What the `doc` commands that ask a model have in common: where it answers, and how much it is shown."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.longdoc.prompt import ANSWER_TOKENS

if TYPE_CHECKING:
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.longdoc.prompt import Budget

home_option = click.option(
    "--home", type=click.Path(path_type=Path), envvar="ROADWORTHY_HOME", help="Folder of the store (~/.roadworthy)."
)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that :func:`client_of` and :func:`budget_of` take."""
    for option in reversed(
        (
            click.option("--url", required=True, envvar="ROADWORTHY_URL", help="Gateway data port, or OpenAI API."),
            click.option("--key", envvar="ROADWORTHY_KEY", help="The tenant's key; better in ROADWORTHY_KEY."),
            click.option("--model", help="Model to ask; the first that the gateway lists otherwise."),
            click.option(
                "--budget", type=click.IntRange(256), metavar="TOKENS",
                help="Prompt and answer of one request together; otherwise what the plan or the gateway says.",
            ),
            click.option("--spec", type=click.Path(path_type=Path), help="Document whose plan gives the budget."),
            click.option(
                "--answer-tokens", type=click.IntRange(16, 131_072), metavar="TOKENS",
                help=f"Longest reply of a round ({ANSWER_TOKENS}, or a quarter of the budget).",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def client_of(url: str, key: str | None, model: str | None) -> ModelClient:
    """The endpoint, with a session of its own."""
    from roadworthy.adapters.longdoc_model import ModelClient

    return ModelClient(url, key=key, model=model, session=f"doc-{secrets.token_hex(8)}")


def budget_of(client: ModelClient, budget: int | None, spec: Path | None, answer_tokens: int | None) -> Budget:
    """Tokens of one request: as told, else as the plan of ``spec`` serves them, else as the endpoint does."""
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.prompt import MOST_PROMPT_TOKENS, budget_within

    window = budget
    if window is None and spec is not None:
        window = min(_planned_window(spec), MOST_PROMPT_TOKENS)
    try:
        return budget_within(window, client.window_tokens, answer_tokens)
    except ValueError as error:
        raise SpecError(f"--answer-tokens: {error}", hint="give more with --budget") from None


def _planned_window(spec: Path) -> int:
    from roadworthy.cli.wiring import load_planned

    return int(str(load_planned(str(spec)).best().settings["max_model_len"].value))
