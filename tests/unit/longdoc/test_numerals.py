"""Numbers of statutes, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.longdoc.numerals import chinese_number, chinese_text, ordinal_number, roman_number, roman_text


@given(st.integers(1, 9999))
def test_a_chinese_number_is_read_as_it_is_written(number: int) -> None:
    assert chinese_number(chinese_text(number)) == number


@given(st.integers(1, 3999))
def test_a_roman_number_is_read_as_it_is_written(number: int) -> None:
    assert roman_number(roman_text(number)) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("一千零三十二", 1032),
        ("一〇三二", 1032),
        ("１０３２", 1032),
        ("十", 10),
        ("二十", 20),
        ("一百零五", 105),
        ("两百", 200),
        ("甲", None),
        ("", None),
    ],
)
def test_chinese_numbers_in_every_form(text: str, number: int | None) -> None:
    assert chinese_number(text) == number


def test_ordinals_and_what_is_none() -> None:
    assert ordinal_number("22nd") == 22
    assert ordinal_number("twenty-second") == 22
    assert ordinal_number("Fourteenth") == 14
    assert ordinal_number("proposed") is None
    assert roman_number("IIII") is None
