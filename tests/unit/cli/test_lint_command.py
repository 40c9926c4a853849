"""`roadworthy lint`: exit codes, JSON, files mended in place or beside, encodings, what cannot be read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from roadworthy.cli.lint import command
from roadworthy.core.errors import SpecError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

FALSE = (
    "#!/bin/bash\n# fabric\nexport NCCL_ALGO=Tree\nexport NCCL_DEBUG=WARN\n"
    "vllm serve m \\\n  --swap-space 16 \\\n  --max-num-seqs 8\n"
)
MENDED = "#!/bin/bash\n# fabric\nexport NCCL_DEBUG=WARN\nvllm serve m \\\n  --max-num-seqs 8\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, text: str | bytes | None = None) -> Result:
        return CliRunner().invoke(command, list(arguments), input=text, standalone_mode=False)

    return invoke


def code(result: Result) -> int:
    if result.exception is not None:
        raise result.exception
    return int(result.return_value)


def problems(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["problems"]
    return found


def test_problems_are_listed_by_file_and_line(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    result = run("a.sh")
    assert code(result) == 1
    assert re.match(r"a\.sh:3  NCCL_ALGO=Tree  dangerous  .+  -> .+  \[nccl\.ALGO\]$", result.stdout.splitlines()[0])
    assert result.stdout.splitlines()[1].startswith("a.sh:6  --swap-space 16  removed  ")
    assert "2 problems in 1 file; 2 of them --fix can mend" in result.stderr


def test_json_is_one_document_with_the_pinned_keys(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    found = problems(run("--json", "a.sh"))
    keys = {"file", "line", "rule", "setting", "status", "reason", "replacement", "fixable"}
    assert [set(problem) for problem in found] == [keys, keys]
    assert [(one["file"], one["line"], one["rule"], one["fixable"]) for one in found] == [
        ("a.sh", 3, "nccl.ALGO", True),
        ("a.sh", 6, "vllm.obsolete-flags", True),
    ]


def test_a_clean_file_is_fine_and_says_nothing_on_stdout(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(MENDED)
    result = run("a.sh")
    assert (code(result), result.stdout) == (0, "")


def test_mending_in_place_keeps_the_original_beside(run: Callable[..., Result], tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_text(FALSE)
    script.chmod(0o755)
    result = run("--fix", "a.sh")
    assert code(result) == 0
    assert script.read_text() == MENDED
    assert script.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a.sh.orig").read_text() == FALSE
    assert code(run("--fix", "a.sh")) == 0
    assert (tmp_path / "a.sh.orig").read_text() == FALSE, "the first original stays"


def test_a_clean_file_is_not_written(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(MENDED)
    before = (tmp_path / "a.sh").stat().st_mtime_ns
    assert code(run("--fix", "a.sh")) == 0
    assert (tmp_path / "a.sh").stat().st_mtime_ns == before
    assert not (tmp_path / "a.sh.orig").exists()


def test_out_writes_elsewhere_even_what_is_clean(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    (tmp_path / "b.sh").write_text(MENDED)
    (tmp_path / "new").mkdir()
    assert code(run("--fix", "--out", "new", "a.sh", "b.sh")) == 0
    assert (tmp_path / "a.sh").read_text() == FALSE
    assert (tmp_path / "new" / "a.sh").read_text() == (tmp_path / "new" / "b.sh").read_text() == MENDED
    assert code(run("--fix", "--out", "one.sh", "a.sh")) == 0
    assert (tmp_path / "one.sh").read_text() == MENDED


def test_a_diff_writes_nothing(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    result = run("--fix", "--diff", "a.sh")
    assert code(result) == 1
    assert "-export NCCL_ALGO=Tree\n" in result.stdout
    assert (tmp_path / "a.sh").read_text() == FALSE


def test_what_needs_a_person_stays_a_problem_after_mending(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(FALSE + "export NCCL_CROSS_NIC=1\n")
    result = run("--fix", "--json", "a.sh")
    assert code(result) == 1
    document = json.loads(result.stdout)
    assert [problem["rule"] for problem in document["problems"]] == ["nccl.CROSS_NIC"]
    assert [problem["rule"] for problem in document["fixed"]] == ["nccl.ALGO", "vllm.obsolete-flags"]
    assert document["written"] == ["a.sh"]


def test_standard_input_is_linted_and_mended_to_standard_output(run: Callable[..., Result]) -> None:
    assert [problem["file"] for problem in problems(run("--json", "-", text=FALSE))] == ["<stdin>", "<stdin>"]
    result = run("--fix", "-", text=FALSE)
    assert (code(result), result.stdout) == (0, MENDED)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_encodings_and_line_ends_are_read_and_kept(
    run: Callable[..., Result], tmp_path: Path, encoding: str, ending: str
) -> None:
    text = FALSE.replace("fabric", "Netz für alle").replace("\n", ending)
    path = tmp_path / "a.sh"
    path.write_bytes(text.encode(encoding))
    assert [problem["line"] for problem in problems(run("--json", "a.sh"))] == [3, 6]
    assert code(run("--fix", "a.sh")) == 0
    assert path.read_bytes() == MENDED.replace("fabric", "Netz für alle").replace("\n", ending).encode(encoding)


@pytest.mark.parametrize(
    "data", [b"\x7fELF\x02\x01\x01" + bytes(40), b"PK\x03\x04rest", bytes(range(256)), b"\xff\xfeodd", b"\x89PNG\r\n"]
)
def test_a_binary_file_cannot_be_read(run: Callable[..., Result], tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    result = run("a.bin")
    assert code(result) == 3
    assert "error: a.bin: cannot be read: " in result.stderr


def test_a_folder_is_walked_and_binaries_in_it_left_out(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "d" / ".git").mkdir(parents=True)
    (tmp_path / "d" / ".git" / "x.sh").write_text(FALSE)
    (tmp_path / "d" / "b.sh").write_text(FALSE)
    (tmp_path / "d" / "a.env").write_text("NCCL_ALGO=Tree\n")
    (tmp_path / "d" / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    result = run("--json", "d")
    assert code(result) == 1
    assert [one["file"] for one in problems(result)] == ["d/a.env", "d/b.sh", "d/b.sh"]


def test_a_file_that_is_not_there_is_wrong_input(run: Callable[..., Result]) -> None:
    with pytest.raises(SpecError, match=r"no-such\.sh: no such file"):
        code(run("no-such.sh"))


def test_a_file_that_may_not_be_read_is_said(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    opened = Path.open

    def refuse(self: Path, *arguments: Any, **named: Any) -> Any:
        if self.name == "a.sh":
            raise PermissionError(13, "Permission denied")
        return opened(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    result = run("--json", "a.sh")
    assert code(result) == 3
    assert json.loads(result.stdout)["not_read"] == [{"file": "a.sh", "reason": "Permission denied"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "x", "a.sh"), "--out without --fix"),
        (("--diff", "a.sh"), "--diff without --fix"),
        (("--fix", "--diff", "--out", "x", "a.sh"), "--diff together with --out"),
        (("--engine", "sglang==1.0", "a.sh"), "wanted vllm==VERSION"),
        (("--fix", "--json", "-"), "prints the mended file"),
    ],
)
def test_options_that_do_not_go_together(
    run: Callable[..., Result], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    with pytest.raises(SpecError, match=message):
        code(run(*arguments))


def test_an_engine_that_is_not_known_is_said(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(FALSE)
    with pytest.raises(Unsupported, match=r"0\.99\.0"):
        code(run("--engine", "vllm==0.99.0", "a.sh"))


def test_the_engine_version_decides(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("vllm serve m --disable-log-requests\n")
    assert code(run("--engine", "vllm==0.33.0", "a.sh")) == 0
    assert code(run("--engine", "vllm==0.32.0", "a.sh")) == 1
    assert "--engine vllm==VERSION settles it" in run("a.sh").stdout


def test_a_document_says_what_the_file_leaves_out(run: Callable[..., Result], tmp_path: Path, examples: Path) -> None:
    (tmp_path / "a.sh").write_text('vllm serve "$MODEL" --kv-cache-dtype fp8\n')
    assert "--spec says which it is" in run("a.sh").stdout
    assert code(run("--spec", str(examples / "deepseek-v4-pro-32xh100.yaml"), "a.sh")) == 0
    assert code(run("--spec", str(examples / "kimi-k3-32xh200.yaml"), "a.sh")) == 1


def test_what_of_a_chart_is_templated_is_said_and_the_rest_linted(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  template:\n    spec:\n"
        "      {{- with .Values.nodeSelector }}\n      nodeSelector:\n        {{- toYaml . | nindent 8 }}\n     "
        " {{- end }}\n"
        "      containers:\n        - name: vllm\n          image: {{ .Values.image }}:{{ .Values.tag }}\n"
        "          command: [vllm, serve]\n          args:\n            - {{ .Values.model | quote }}\n           "
        " - --swap-space\n"
        '            - "16"\n          env:\n            - name: NCCL_ALGO\n              value: Tree\n'
    )
    result = run("--json", "c.yaml")
    assert {(one["line"], one["rule"]) for one in problems(result)} >= {(18, "vllm.obsolete-flags"), (21, "nccl.ALGO")}
    assert (4, "template {{ .Release.Name }}") in {
        (one["line"], one["what"]) for one in json.loads(result.stdout)["unread"]
    }


def test_half_a_manifest_is_linted_to_its_end(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "h.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      image: vllm/vllm-openai:v0.6.3\n    "
        "  env:\n"
        "        - name: NCCL_ALGO\n          value: Tree\n      args: [\n        --swap-space\n    - name: b\n"
        "      env:\n        - name: NCCL_PROTO\n          value: Simple\n"
    )
    result = run("--json", "h.yaml")
    assert {(one["line"], one["rule"]) for one in problems(result)} >= {
        (6, "k8s.image-v0.6.3"),
        (8, "nccl.ALGO"),
        (11, "vllm.obsolete-flags"),
        (14, "nccl.PROTO"),
    }
    assert json.loads(result.stdout)["unread"][0]["what"].startswith("not YAML from here on")


def test_a_line_too_long_is_left_out_and_said(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"export NCCL_ALGO=Tree\nX={'y' * 300_000}\nexport NCCL_PROTO=Simple\n")
    result = run("--json", "a.sh")
    assert [(one["line"], one["rule"]) for one in problems(result)] == [(1, "nccl.ALGO"), (3, "nccl.PROTO")]
    assert json.loads(result.stdout)["unread"][0]["line"] == 2
