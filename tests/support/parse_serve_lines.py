"""Run by :func:`support.programs.ask`: says of each list of words whether vLLM's own parser of `vllm serve` takes it.

An answer is empty for a line that parses, else what the parser said.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys


def main() -> None:
    logging.disable(logging.WARNING)
    import vllm.entrypoints.cli.serve as serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    cases = json.load(sys.stdin)
    whole = FlexibleArgumentParser(prog="vllm")
    serve.cmd_init()[0].subparser_init(whole.add_subparsers(required=False, dest="subparser"))
    answers = []
    for words in cases:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                whole.parse_args(["serve", *words])
            answers.append("")
        except SystemExit:
            answers.append((said.getvalue().strip().splitlines() or ["refused"])[-1])
        except (ValueError, TypeError, AssertionError) as error:
            answers.append(f"{type(error).__name__}: {error}")
    print("ANSWERS " + json.dumps(answers))


if __name__ == "__main__":
    main()
