"""Command line of one twin process; `roadworthy up` starts these."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from roadworthy.adapters.files import read_text
from roadworthy.adapters.twin_server.serve import serve
from roadworthy.core.errors import EXIT_FINE, RoadworthyError
from roadworthy.twin.config import TwinConfig


def main(arguments: list[str] | None = None) -> int:
    """Serve the twin that ``--config`` describes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="roadworthy-twin", description="A simulated engine with vLLM's HTTP surface.")
    parser.add_argument("--config", type=Path, required=True, help="twin configuration, a JSON file")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port, 0 for a free one (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        config = TwinConfig.from_json(read_text(options.config, what="twin configuration"))
        serve(config, options.host, options.port)
    except RoadworthyError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return EXIT_FINE


if __name__ == "__main__":
    sys.exit(main())
