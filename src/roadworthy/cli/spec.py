"""`roadworthy spec`: check a deployment document, or print the JSON Schema of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import EXIT_FINE, EXIT_WRONG_INPUT

if TYPE_CHECKING:
    from roadworthy.core.errors import Problem
    from roadworthy.spec.values import Deployment


@click.group()
def command() -> None:
    """Check a deployment document, or print its JSON Schema."""


@command.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print {problems: [{path, seen, wanted, hint}]} on stdout.")
def check(file: str, as_json: bool) -> int:
    """Name every problem of a document in one pass.

    FILE is the document; - reads standard input.

    Exit codes: 0 none, 2 problems or no such file, 3 the file cannot be read.
    """
    from roadworthy.adapters.documents import check_document
    from roadworthy.cli.output import print_error, print_json
    from roadworthy.core.errors import SpecError

    deployment, problems = check_document(file)
    if deployment is not None:
        problems = _deeper(file, deployment)
        deployment = None if problems else deployment
    shown = "<stdin>" if file == "-" else file
    if as_json:
        print_json({"problems": problems})
    elif deployment is not None:
        click.echo(f"{shown}: no problems (deployment {deployment.name}, digest {deployment.digest[:12]})", err=True)
    else:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        print_error(SpecError(f"{shown}: {count}", problems=problems))
    return EXIT_FINE if deployment is not None else EXIT_WRONG_INPUT


def _deeper(file: str, deployment: Deployment) -> tuple[Problem, ...]:
    """What only the model's shape tells: fields of its config.json, and settings that no layout could take."""
    from roadworthy.adapters.documents import document_folder
    from roadworthy.adapters.model_files import resolve_model
    from roadworthy.catalog.gpus import gpu_by_name
    from roadworthy.core.errors import Problem, SpecError, Unsupported
    from roadworthy.plan.search import check_settings

    try:
        model = resolve_model(deployment.model, base=document_folder(file))
        check_settings(deployment, model, gpu_by_name(deployment.cluster.gpu))
    except SpecError as error:
        return error.problems or (
            Problem(path="model.config", seen=str(error), wanted="a model that can be read", hint=error.hint),
        )
    except Unsupported as error:
        return (
            Problem(path="model.config", seen=str(error), wanted="a model that is known here", hint=error.hint),
        )  # fmt: skip
    return ()


@command.command()
def schema() -> None:
    """Print the JSON Schema of a deployment document, for editors.

    With the YAML language server, begin a document with: # yaml-language-server: $schema=roadworthy.schema.json
    """
    from roadworthy.cli.output import print_json
    from roadworthy.spec.json_schema import json_schema

    print_json(json_schema())
