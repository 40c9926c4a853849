"""The parser that ``vllm serve`` itself builds, with the subcommand it belongs to."""

from __future__ import annotations

import logging
from typing import Any


def build() -> tuple[Any, Any, Any]:
    """(whole parser, parser of ``serve``, the ``serve`` command). Call `stand_in_gpu.install` first."""
    logging.disable(logging.WARNING)
    import vllm.entrypoints.cli.serve as serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    whole = FlexibleArgumentParser(prog="vllm")
    command = serve.cmd_init()[0]
    return whole, command.subparser_init(whole.add_subparsers(required=False, dest="subparser")), command
