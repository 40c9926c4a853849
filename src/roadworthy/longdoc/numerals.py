"""Numbers as statutes write them: Chinese, Roman, ordinal, full-width."""

from __future__ import annotations

import re
import unicodedata

CHINESE_DIGITS = {digit: number for number, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "○": 0, "两": 2}
CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}
CHINESE = "零〇○一二两三四五六七八九十百千万"
ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
ROMAN_STEPS = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
    (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip
ROMAN = re.compile(r"^M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})$")
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth",
)  # fmt: skip
CARDINALS = {
    word: number
    for number, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
}
ORDINAL_WORDS = {word: number for number, word in enumerate(ORDINALS, 1)} | {
    f"twenty-{word}": 20 + number for number, word in enumerate(ORDINALS[:9], 1)
}


def chinese_number(text: str) -> int | None:
    """1032 of ``一千零三十二``, of ``一〇三二`` and of ``１０３２``; None for what is no number."""
    text = unicodedata.normalize("NFKC", text)
    if text.isdigit():
        return int(text)
    if not text or any(letter not in CHINESE for letter in text):
        return None
    if all(letter in CHINESE_DIGITS for letter in text):
        return int("".join(str(CHINESE_DIGITS[letter]) for letter in text))
    total, section, digit = 0, 0, 0
    for letter in text:
        if letter in CHINESE_DIGITS:
            digit = CHINESE_DIGITS[letter]
        elif letter == "万":
            total, section, digit = total + (section + digit) * 10_000, 0, 0
        else:
            section += (digit or 1) * CHINESE_UNITS[letter]
            digit = 0
    return total + section + digit


def chinese_text(number: int) -> str:
    """``一千零三十二`` of 1032, as statutes number their articles (1 to 9999)."""
    if not 1 <= number <= 9999:
        raise ValueError(f"{number} is not between 1 and 9999")
    digits, written, gap = str(number), "", False
    for place, digit in zip(range(len(digits) - 1, -1, -1), digits, strict=True):
        if digit == "0":
            gap = bool(written)
            continue
        written += ("零" if gap else "") + "零一二三四五六七八九"[int(digit)] + ("", "十", "百", "千")[place]
        gap = False
    return written.removeprefix("一") if 10 <= number < 20 else written


def roman_number(text: str) -> int | None:
    """14 of ``XIV``; None for what is no Roman number."""
    text = text.upper()
    if not text or not ROMAN.match(text):
        return None
    values = [ROMAN_VALUES[letter] for letter in text]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def roman_text(number: int) -> str:
    """``XIV`` of 14."""
    written = ""
    for value, letters in ROMAN_STEPS:
        written += letters * (number // value)
        number %= value
    return written


def ordinal_number(text: str) -> int | None:
    """22 of ``22nd`` and of ``twenty-second``; None for what is none."""
    if found := re.match(r"^(\d+)(?:st|nd|rd|th)$", text.lower()):
        return int(found.group(1))
    return ORDINAL_WORDS.get(text.lower().replace(" ", "-"))
