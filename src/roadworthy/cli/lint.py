"""`roadworthy lint`: what is wrong in launch files that people already have, and the files mended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import EXIT_COULD_NOT_LOOK, EXIT_FINDINGS, EXIT_FINE, SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.lint_files import Found
    from roadworthy.lint.context import LintOptions
    from roadworthy.lint.text import Decoded
    from roadworthy.lint.values import FileReport, LintProblem


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--engine", metavar="vllm==VERSION", help="Judge flags by this version instead of what the file says.")
@click.option("--spec", metavar="SPEC", help="A deployment document that gives model, cluster and engine version.")
@click.option("--fix", is_flag=True, help="Mend what can be mended: in place, the original kept as FILE.orig.")
@click.option("--out", type=click.Path(path_type=Path), help="With --fix: write here (a file, or a folder) instead.")
@click.option("--diff", is_flag=True, help="With --fix: show the changes and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    files: tuple[str, ...],
    engine: str | None,
    spec: str | None,
    fix: bool,
    out: Path | None,
    diff: bool,
    as_json: bool,
) -> int:
    """Name every false setting in launch scripts, manifests and environment files, and mend them.

    FILE is a shell script, Kubernetes or Compose YAML, systemd unit, environment file, sysctl.conf, crontab,
    Dockerfile, Python program or vLLM's --config file, told by what it holds; a folder of such; or - for standard
    input.

    Exit codes: 0 no problem (or none left after --fix), 1 problems, 2 wrong input, 3 a file could not be read.
    """
    from roadworthy.adapters.lint_files import files_to_lint

    _refuse_together(files, fix, out, diff, as_json)
    options = _options(engine, spec)
    session = _Session(options, fix=fix, out=out, diff=diff, as_json=as_json)
    for found in files_to_lint(files):
        session.take(found)
    return session.finish()


def _refuse_together(files: tuple[str, ...], fix: bool, out: Path | None, diff: bool, as_json: bool) -> None:
    for name, given in (("--out", out is not None), ("--diff", diff)):
        if given and not fix:
            raise SpecError(f"{name} without --fix", hint=f"add --fix, or leave {name} out")
    if diff and out is not None:
        raise SpecError("--diff together with --out", hint="--diff writes nothing; leave one of them out")
    if "-" in files and fix and as_json and out is None and not diff:
        raise SpecError(
            "--fix of standard input prints the mended file, and --json prints JSON", hint="name a file with --out"
        )
    if files.count("-") > 1:
        raise SpecError("standard input can be read once", hint="name - once")


def _options(engine: str | None, spec: str | None) -> LintOptions:
    from roadworthy.lint.context import LintOptions
    from roadworthy.lint.flag_book import flag_book

    version = None
    if engine is not None:
        name, _, version = engine.rpartition("==")
        version = version.removeprefix("v")
        if name not in ("", "vllm"):
            raise SpecError(f"--engine {engine}: wanted vllm==VERSION", hint="such as --engine vllm==0.33.0")
        flag_book(version)
    if spec is None:
        return LintOptions(engine_version=version)
    from roadworthy.adapters.documents import load_document

    deployment = load_document(spec)
    cluster = deployment.cluster
    if version is None:
        version = deployment.engine.version
        flag_book(version)
    return LintOptions(
        engine_version=version,
        model=deployment.model.config,
        gpu=cluster.gpu,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        link_layer=cluster.fabric,
        endpoints=len(deployment.engine.endpoints) or None,
    )


class _Session:
    """One run over several files: reports gathered, mended files written."""

    def __init__(self, options: LintOptions, *, fix: bool, out: Path | None, diff: bool, as_json: bool) -> None:
        self.options, self.fix, self.out, self.diff, self.as_json = options, fix, out, diff, as_json
        self.reports: list[FileReport] = []
        self.fixed: list[LintProblem] = []
        self.written: list[str] = []
        self.not_read: list[tuple[str, str]] = []
        self.skipped: list[tuple[str, str]] = []
        self.output: list[str | bytes] = []

    def take(self, found: Found) -> None:
        from roadworthy.lint.run import lint_text
        from roadworthy.lint.text import NotText, decode

        shown = "<stdin>" if found.path == "-" else found.path
        if found.data is None:
            self.not_read.append((shown, found.reason))
            return
        try:
            decoded = decode(found.data)
        except NotText as error:
            (self.not_read if found.named else self.skipped).append((shown, str(error)))
            return
        if self.fix:
            self._fix(found, shown, decoded)
        else:
            self.reports.append(lint_text(decoded.text, file=shown, options=self.options))

    def _fix(self, found: Found, shown: str, decoded: Decoded) -> None:
        from roadworthy.lint.fix import fix_text
        from roadworthy.lint.run import lint_text

        text, done = fix_text(decoded.text, file=shown, options=self.options)
        self.fixed.extend(done)
        if self.diff:
            import difflib

            lines = difflib.unified_diff(
                decoded.text.splitlines(keepends=True), text.splitlines(keepends=True), shown, f"{shown} (fixed)"
            )
            self.output.extend(
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
            )
            self.reports.append(lint_text(decoded.text, file=shown, options=self.options))
            return
        data = found.data if text == decoded.text and found.data is not None else decoded.encode(text)
        self._write(found.path, data, changed=text != decoded.text)
        self.reports.append(lint_text(text, file=shown, options=self.options))

    def _write(self, path: str, data: bytes, *, changed: bool) -> None:
        from roadworthy.adapters.files import write_atomically

        if self.out is not None:
            target = self._target(path)
            write_atomically(target, data, mode=_mode(path))
            self.written.append(str(target))
        elif path == "-":
            self.output.append(data)
        elif changed:
            original = Path(f"{path}.orig")
            if not original.exists():
                write_atomically(original, Path(path).read_bytes(), mode=_mode(path))
            write_atomically(path, data)
            self.written.append(path)

    def _target(self, path: str) -> Path:
        assert self.out is not None
        if not self.out.is_dir():
            if self.written:
                raise SpecError(f"--out {self.out}: one file for several", hint="name a folder that exists")
            return self.out
        return self.out / (Path(path).name if path != "-" else "stdin.fixed")

    def finish(self) -> int:
        """Print everything; the exit code."""
        if self.as_json:
            self._print_json()
        else:
            self._print()
        if self.not_read:
            return EXIT_COULD_NOT_LOOK
        return EXIT_FINDINGS if any(report.problems for report in self.reports) else EXIT_FINE

    def _print_json(self) -> None:
        from roadworthy.cli.output import print_json

        document: dict[str, object] = {
            "problems": [_as_json(problem) for report in self.reports for problem in report.problems],
            "files": [
                {"file": report.file, "kind": report.kind, "problems": len(report.problems)} for report in self.reports
            ],
            "unread": [entry for report in self.reports for entry in report.unread],
            "not_read": [{"file": file, "reason": reason} for file, reason in self.not_read],
            "engine": self.options.engine_version,
        }
        if self.fix:
            document["fixed"] = [_as_json(problem) for problem in self.fixed]
            document["written"] = self.written
            if self.diff:
                document["diff"] = "".join(str(line) for line in self.output)
        print_json(document)

    def _print(self) -> None:
        from roadworthy.cli.output import say

        to_stderr = self.fix and any(isinstance(part, bytes) for part in self.output)
        for part in self.output:
            click.echo(part, nl=False)
        for number, report in enumerate(one for one in self.reports if one.problems):
            if number:
                click.echo("", err=to_stderr)
            for problem in report.problems:
                click.echo(_line(problem), err=to_stderr)
        for report in self.reports:
            for entry in report.unread:
                say(f"{entry.file}:{entry.line}: not read: {entry.what}")
        for file, reason in self.not_read:
            say(f"error: {file}: cannot be read: {reason}")
        for file, reason in self.skipped:
            say(f"{file}: left out: {reason}")
        say(self._summary())

    def _summary(self) -> str:
        problems = [problem for report in self.reports for problem in report.problems]
        fixable = sum(problem.fixable for problem in problems)
        files = len(self.reports)
        parts = [f"{_count(len(problems), 'problem')} in {_count(files, 'file')}"]
        if self.fix and not self.diff:
            parts.append(f"{len(self.fixed)} mended")
            if self.written:
                parts.append(f"wrote {', '.join(self.written)}")
        elif fixable:
            parts.append(f"{fixable} of them --fix can mend")
        return "; ".join(parts)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _line(problem: LintProblem) -> str:
    arrow = f"  -> {problem.replacement}" if problem.replacement else ""
    return (
        f"{problem.file}:{problem.line}  {problem.setting}  {problem.status}  {problem.reason}{arrow}  [{problem.rule}]"
    )


def _as_json(problem: LintProblem) -> dict[str, object]:
    return {
        "file": problem.file,
        "line": problem.line,
        "rule": problem.rule,
        "setting": problem.setting,
        "status": problem.status,
        "reason": problem.reason,
        "replacement": problem.replacement,
        "fixable": problem.fixable,
    }


def _mode(path: str) -> int | None:
    if path == "-":
        return None
    try:
        return Path(path).stat().st_mode & 0o7777
    except OSError:
        return None
