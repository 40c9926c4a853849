"""Bodies against the reader of bodies alone: what it lets through must mean to the engine what it meant to the gateway.

``check`` is the judge; hypothesis drives it in the tests, and atheris, guided by the reader's coverage, in
``fuzz-gateway --guided``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatewaylab.fuzz_bodies import BODIES, FORBIDDEN
from gatewaylab.fuzz_cases import make
from gatewaylab.fuzz_parts import completion, marker_of
from gatewaylab.lab import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

ATHERIS = "atheris==3.0.0"
ATHERIS_HOME = ROOT / "build" / "atheris"
PATH = "/v1/chat/completions"


def _as_engine(data: bytes) -> tuple[dict[str, Any], list[str]] | None:
    """The object as Python's reader, which is the engine's, sees it, and its names with repeats. None: it cannot."""
    names: list[str] = []

    def top(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names[:] = [name for name, _ in pairs]  # the outermost object is read last
        return dict(pairs)

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=top)
    except (ValueError, RecursionError):
        return None
    return (value, names) if isinstance(value, dict) else None


def check(data: bytes) -> str | None:
    """What is wrong with how the gateway reads ``data`` as a chat completion; None when nothing is."""
    from roadworthy.gateway.data.body import read_body
    from roadworthy.gateway.data.errors import BadRequest
    from roadworthy.gateway.data.routes import ROUTES

    route = ROUTES[PATH]
    try:
        body = read_body(route, data)
    except BadRequest:
        return None
    asked, passed = _as_engine(data), _as_engine(body.forward)
    if passed is None:
        # values too deep or too long for Python's reader pass unread; the engine refuses them
        return None if asked is None else f"what goes on is no JSON object: {body.forward[:300]!r}"
    if asked is None:
        return f"made JSON of what is none: {data[:300]!r}"
    value, names = passed
    if strange := sorted({name for name in names if name not in route.fields or name in FORBIDDEN}):
        return f"fields {strange} go on"
    for name in names:
        if name != "chat_template_kwargs" and json.dumps(value[name]) != json.dumps(asked[0][name]):
            return f"{name} goes on as another value"
    for name in sorted(set(asked[0]) & route.fields - set(value) - {"chat_template_kwargs", *body.dropped}):
        return f"{name} is lost"
    if body.model != value.get("model"):
        return f"routed as model {body.model!r}, and the engine reads {value.get('model')!r}"
    if body.stream != (value.get("stream") is True):
        return f"relayed as stream={body.stream}, and the engine reads {value.get('stream')!r}"
    return None


def seeds() -> Iterator[bytes]:
    """Bodies to begin with: valid ones and every kind of wrong one."""
    from random import Random

    for seed in range(40):
        rng = Random(seed)
        yield completion(marker_of(seed, 0), rng)
        for kind in BODIES:
            if len(body := kind(marker_of(seed, 0), rng)) < 4000:
                yield body
        yield make(seed).data.partition(b"\r\n\r\n")[2][:2000]


def install() -> bool:
    """Whether atheris can be had; into build/, since only this needs it."""
    if not (ATHERIS_HOME / "atheris").exists():
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--target",
             str(ATHERIS_HOME), ATHERIS],
            check=False, capture_output=True,
        )  # fmt: skip
        if done.returncode:
            return False
    sys.path.insert(0, str(ATHERIS_HOME))
    return True


def run(seconds: int, corpus: Path) -> int:
    """Search for ``seconds``, guided by coverage; the exit code. Ends the process, as libFuzzer does."""
    if not install():
        print(f"error: {ATHERIS} cannot be installed here", file=sys.stderr)
        return 3
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=["roadworthy.gateway.data", "json", "msgspec"]):
        import roadworthy.gateway.data.body
        import roadworthy.gateway.data.content  # noqa: F401 - instrumented here, used in check

    corpus.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(body)

    def one(data: bytes) -> None:
        problem = check(data)
        if problem is not None:
            raise AssertionError(problem)

    found = corpus.parent / "found-"
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", f"-artifact_prefix={found}", str(corpus)], one
    )
    atheris.Fuzz()
    return 0
