"""What commands that ask a running gateway share: which gateway, which key, and values as people write them."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.adapters.admin_client import AdminClient

ADMIN_VARIABLE = "ROADWORTHY_ADMIN"
DOCUMENT = "roadworthy.yaml"


def asks_gateway(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which gateway; the command gets ``client`` and ``as_json`` in their place."""

    @click.option(
        "--admin", metavar="URL", help=f"Admin port; else --ready-file, --spec, {ADMIN_VARIABLE}, ./{DOCUMENT}."
    )
    @click.option("--ready-file", type=click.Path(path_type=Path), help="As written by `up` or `gateway`.")
    @click.option("--spec", metavar="SPEC", help="The document whose gateway it is, when that names its admin_port.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @wraps(function)
    def asking(admin: str | None, ready_file: Path | None, spec: str | None, **more: Any) -> Any:
        return function(client=client_for(admin, ready_file=ready_file, spec=spec), **more)

    return asking


def client_for(
    admin: str | None, *, ready_file: Path | None, spec: str | None, timeout_s: float = 10.0, warn: bool = True
) -> AdminClient:
    """The client of the gateway that is meant; ``warn`` of a key that would go unencrypted.

    Raises:
        SpecError: more than one is named, or none can be told.
    """
    from roadworthy.adapters.admin_client import KEY_VARIABLE, AdminClient
    from roadworthy.cli.output import say

    client = AdminClient(_url(admin, ready_file, spec), key=os.environ.get(KEY_VARIABLE) or None, timeout_s=timeout_s)
    if client.exposes_key and warn:
        say(f"warning: the admin key goes to {client.url} unencrypted\nhint: an ssh tunnel, or https, keeps it private")
    return client


def _url(admin: str | None, ready_file: Path | None, spec: str | None) -> str:
    named = [name for name, value in (("--admin", admin), ("--ready-file", ready_file), ("--spec", spec)) if value]
    if len(named) > 1:
        raise SpecError(f"{' and '.join(named)}: each names a gateway", hint="give one of them")
    if admin:
        return admin
    if ready_file:
        from roadworthy.adapters.ready_file import read_ready

        return read_ready(ready_file).admin_url
    if spec:
        return _of_document(spec)
    if value := os.environ.get(ADMIN_VARIABLE):
        return value
    if Path(DOCUMENT).is_file():
        return _of_document(DOCUMENT)
    raise SpecError(
        "which gateway? none is named",
        hint=f"--admin http://127.0.0.1:8081, --ready-file FILE, --spec FILE, or export {ADMIN_VARIABLE}=URL",
    )


def _of_document(spec: str) -> str:
    from roadworthy.adapters.documents import load_document

    port = load_document(spec).gateway.admin_port
    if not port:
        raise SpecError(
            f"{spec}: gateway.admin_port is not named, so that the gateway takes a free port",
            hint="name it in the document, or give --admin URL or --ready-file FILE",
        )
    return f"http://127.0.0.1:{port}"


class Parsed(click.ParamType):  # type: ignore[type-arg] # generic in some versions of click only
    """A value as people write it, such as ``64GiB`` or ``200k``; ``none`` takes a limit away where that can be said.

    Args:
        name: what stands in the help.
        parse: from text to the value; raises ValueError with what is wanted.
    """

    def __init__(self, name: str, parse: Callable[[str], Any], *, none: bool = False) -> None:
        self.name, self._parse, self._none = name, parse, none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if self._none and value.lower() == "none":
            return NO_LIMIT
        try:
            return self._parse(value)
        except (ValueError, OverflowError) as error:
            more = ", or none" if self._none else ""
            self.fail(f"{value!r}, wanted {error}{more}", param, ctx)


class _NoLimit:
    """Stands for ``none`` on the command line, where None is an option that was left out."""

    def __repr__(self) -> str:
        return "none"


NO_LIMIT = _NoLimit()


def given(**options: Any) -> dict[str, Any]:
    """The body of a request: options that were given, ``none`` as null."""
    return {
        name: None if value is NO_LIMIT else value
        for name, value in options.items()
        if value is not None and value != ()
    }
