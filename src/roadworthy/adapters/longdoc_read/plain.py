"""Text and Markdown, in whatever encoding they came."""

from __future__ import annotations

from roadworthy.adapters.longdoc_read.values import ReadDocument, UnreadableError

_CHINESE_MARKS = "　、。〈〉《》「」『』【】〔〕，：；？！（）“”‘’…—"


def read_text(data: bytes) -> ReadDocument:
    """UTF-8, UTF-16 with its mark, else GB 18030 where that gives Chinese. Raises UnreadableError for anything else."""
    text, notes = _decoded(data)
    return ReadDocument(kind="text", text=text.replace("\r\n", "\n").replace("\r", "\n"), notes=notes)


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16"), ("read as UTF-16",)
        except UnicodeDecodeError as error:
            raise UnreadableError(f"not UTF-16 at byte {error.start}, though it starts so") from error
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        place = error.start
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        text = ""
    if _mostly_chinese(text):
        return text, ("read as GB 18030",)
    raise UnreadableError(
        f"byte {place} is not UTF-8", hint="convert it, such as: iconv -f ISO-8859-1 -t UTF-8 OLD > NEW"
    )


def _mostly_chinese(text: str) -> bool:
    """Of the characters beyond ASCII nine in ten are common Chinese ones, which are those of GB 2312: an accented
    letter of Latin text and the plain one behind it give others."""
    beyond = [letter for letter in text if letter > "\x7f"]
    common = sum(letter in _CHINESE_MARKS or _in_gb2312(letter) for letter in beyond)
    return len(beyond) >= 2 and common >= 0.9 * len(beyond)


def _in_gb2312(letter: str) -> bool:
    try:
        return "\u4e00" <= letter <= "\u9fa5" and bool(letter.encode("gb2312"))
    except UnicodeEncodeError:
        return False
