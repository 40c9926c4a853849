"""The truth table: complete, its ids stable, its words those of the product."""

from __future__ import annotations

import pytest

from roadworthy.catalog.flags import FLAG_VERSIONS, flag_catalog
from roadworthy.catalog.truth import STATUSES, truth_row, truth_rows


def test_every_row_has_an_id_of_its_own_a_status_word_a_reason_and_a_source() -> None:
    rows = truth_rows()
    assert len(rows) == 170
    for row_id, row in rows.items():
        assert row.id == row_id
        assert row.status in STATUSES
        assert row.why
        assert row.source
        assert row.kind


def test_no_text_speaks_of_where_a_claim_was_read() -> None:
    for row in truth_rows().values():
        assert "brief" not in f"{row.claimed} {row.emit} {row.why} {row.source}".lower(), row.id


def test_a_row_is_found_by_its_id() -> None:
    assert truth_row("nccl.ALGO").status == "dangerous"
    with pytest.raises(KeyError):
        truth_row("nccl.NONSENSE")


def test_advice_to_a_person_does_not_speak_of_emitting_nothing() -> None:
    assert truth_row("nccl.ALGO").instead == "Leave it out."
    assert not [row.id for row in truth_rows().values() if "Emit nothing" in row.instead]


@pytest.mark.parametrize("version", FLAG_VERSIONS)
def test_every_flag_of_a_command_in_the_table_is_one_that_the_parsers_take(version: str) -> None:
    catalog = flag_catalog(version)
    commands = [row for row in truth_rows().values() if row.kind == "command_line" and row.status == "real"]
    assert len(commands) > 20
    for row in commands:
        words = row.emit.replace("'", " ").split()
        unknown = [word for word in words if word.startswith("--") and catalog.match(word) is None]
        assert not unknown, row.id


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        truth_rows()["x"] = None  # type: ignore[index]
