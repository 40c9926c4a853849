#!/usr/bin/env python3
"""Does the ledger say what was delivered? 10,000 requests, one in ten leaves early, one worker is killed with -9.

Starts what it needs: fake engines that count in every event (tools/loadlab), a gateway with two workers, a database.
The last line of stdout is JSON: {"requests", "difference_tokens"}. Exit 0: every request that ended on a worker that
lived is billed exactly, those in flight on the killed one within one event, no limit was overrun and what the killed
worker held came back when its lease had run out; 1: not; 3: it could not look.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gatewaylab.ledger import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="how many (default 10000)")
    parser.add_argument("--shared-url", help="count limits there (redis://, valkey://) instead of in the database")
    options = parser.parse_args()
    sys.exit(main(options.requests, options.shared_url))
