"""`roadworthy bench verify`, and what `bench --evidence` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roadworthy.adapters.evidence import Verified
    from roadworthy.adapters.load_run import BenchRun

MASKED = "(masked)"
_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")

_SIGNED = {
    "nobody": "not signed: whoever had the folder could have made it anew",
    "somebody": "signed by key {key}, whom nobody vouches for here (--signers FILE)",
    "trusted": "signed by {said}, key {key}",
    "wrong": "the signature does not hold: {said}",
}


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """A document's text as it may be shown around: without keys, and without passwords in addresses."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, MASKED)
    return _PASSWORD.sub(rf"\1{MASKED}@", text)


def write_run(run: BenchRun, contents: Mapping[str, str], folder: Path, *, key: Path | None) -> None:
    """Write a run and what it was asked by into ``folder``, signed with ``key`` where there is one.

    Raises:
        ProbeError: it cannot be written or signed.
    """
    from roadworthy import __version__
    from roadworthy.adapters.evidence import write_evidence

    report = run.report
    write_evidence(
        folder,
        contents,
        {
            "target": run.target,
            "model": run.model.id,
            "simulated": run.simulated,
            "verdict": report.verdict,
            "reason": report.reason,
            "requests": report.requests,
            "roadworthy": __version__,
        },
        key=key,
    )
    click.echo(f"wrote {folder}" + (f", signed with {key}" if key is not None else ""), err=True)


@click.command("verify")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--signers", type=click.Path(path_type=Path), help="Keys that may sign, as in OpenSSH's allowed_signers file."
)
@click.option("--identity", help="Which of the signers it must be; whichever it was otherwise.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(folder: Path, signers: Path | None, identity: str | None, as_json: bool) -> int:
    """Check that evidence of `bench --evidence` is as it was written, and who signed it.

    Exit code 0: every file is as the manifest says, and the signature holds (with --signers: is there, and theirs); 1:
    something is not; 2: no evidence; 3: it could not be read. The verdict of the run itself is shown, not judged again.
    """
    from roadworthy.adapters.evidence import verify
    from roadworthy.cli.output import plain, print_json

    found = verify(folder, signers=signers, identity=identity)
    sound = found.sound and (signers is None or found.signed == "trusted")
    if as_json:
        print_json(
            {
                "sound": sound,
                "signed": found.signed,
                "key": found.key,
                "signer": found.said if found.signed == "trusted" else "",
                "evidence": dict(found.manifest.claims),
                "problems": plain(found.problems),
            }
        )
    else:
        _print(found, sound=sound)
    return 0 if sound else 1


def _print(found: Verified, *, sound: bool) -> None:
    claims = found.manifest.claims
    kind = "simulated run" if claims.get("simulated") else "run"
    click.echo(f"{kind} of {claims.get('model')} at {claims.get('target')}: {claims.get('verdict')}")
    if claims.get("reason"):
        click.echo(f"  {claims['reason']}")
    for problem in found.problems:
        click.echo(f"  {problem.path}: {problem.seen}; wanted {problem.wanted}")
        click.echo(f"    hint: {problem.hint}")
    if not found.problems:
        click.echo(f"  {len(found.manifest.files)} files, each as the manifest says")
    click.echo("  " + _SIGNED[found.signed].format(key=found.key or "unknown", said=found.said or "no reason given"))
    click.echo("sound" if sound else "NOT sound")
