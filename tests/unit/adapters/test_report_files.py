"""Whether a report can be written is known before the run, and finding out leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roadworthy.adapters.report_files import require_writable
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_writable_place_stays_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "report.html"
    kept.write_text("the last report")
    require_writable(kept)
    require_writable(tmp_path / "new.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert kept.read_text() == "the last report"


def test_a_folder_or_a_missing_folder_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a folder"):
        require_writable(tmp_path)
    with pytest.raises(SpecError, match="there is no folder") as caught:
        require_writable(tmp_path / "absent" / "report.html")
    assert caught.value.hint == f"mkdir -p {tmp_path / 'absent'}"


def test_a_name_that_the_file_system_refuses_could_not_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises((ProbeError, SpecError), match="cannot be written"):
        require_writable(tmp_path / ("x" * 300))
    with pytest.raises(SpecError, match="not a path"):
        require_writable(tmp_path / "a\0b")
