"""Files of every format, made by the formats' own libraries, come back as text with its place."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from roadworthy.adapters.longdoc_read.ocr import Recogniser, lines_of
from roadworthy.adapters.longdoc_read.read import read_document
from roadworthy.adapters.longdoc_read.sniff import kind_of
from roadworthy.adapters.longdoc_read.values import UnreadableError
from support.pdf_file import pdf_of


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def picture_of(*lines: str) -> Image.Image:
    picture = Image.new("L", (1200, 120 + 60 * len(lines)), 255)
    draw = ImageDraw.Draw(picture)
    for place, line in enumerate(lines):
        draw.text((60, 60 + 60 * place), line, fill=0, font=ImageFont.load_default(size=36))
    return picture


def test_a_pdf_gives_its_pages() -> None:
    first = ["1. Grant", "The Licensor grants a licence to the Licensee."]
    read = read_document(pdf_of([first, ["2. Term", "Five years it lasts."]]))
    assert read.kind == "pdf"
    assert read.pages == 2
    assert read.text.index("2. Term") == read.page_starts[1]
    assert "grants a licence" in read.text


def test_a_damaged_pdf_says_so() -> None:
    with pytest.raises(UnreadableError, match="not a readable PDF"):
        read_document(b"%PDF-1.7\n" + b"nothing of the kind" * 50)


def test_an_encrypted_pdf_says_so(test_data: Path) -> None:
    del test_data  # a password needs a real writer of PDF
    if shutil.which("qpdf") is None:
        pytest.skip("qpdf is not installed")
    done = subprocess.run(
        ["qpdf", "--encrypt", "secret", "owner", "256", "--", "-", "-"],
        input=pdf_of([["Secret words on a page, enough of them."]]), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    with pytest.raises(UnreadableError, match="encrypted"):
        read_document(done.stdout)


def test_word_keeps_headings_and_tables_in_order() -> None:
    import docx

    document = docx.Document()
    document.add_heading("Duties", level=1)
    document.add_paragraph("The tenant pays.")
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Rent", "900 EUR"
    document.add_heading("Term", level=2)
    assert read_document(saved(document)).text == "# Duties\n\nThe tenant pays.\n\n| Rent | 900 EUR |\n\n## Term"


def test_excel_rows_carry_the_names_of_their_columns() -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Prices"
    book.active.append(["Item", "EUR"])
    book.active.append(["Lamp", 12.5])
    book.active.append([None, None])
    book.active.append(["Chair", None])
    assert read_document(saved(book)).text == "# Prices\n\n| Item | EUR |\n\nItem: Lamp; EUR: 12.5\n\nItem: Chair"


def test_a_slide_is_a_page() -> None:
    import pptx

    show = pptx.Presentation()
    for title, words in (("Plan", "First we measure."), ("Costs", "Then we pay.")):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, words
    read = read_document(saved(show))
    assert read.text == "# Plan\n\nFirst we measure.\n\n# Costs\n\nThen we pay."
    assert read.text[read.page_starts[1] :].startswith("# Costs")


def test_html_is_its_words_without_its_scripts() -> None:
    page = (
        "<html><head><title>x</title><style>p{}</style></head><body><nav>Menu</nav><h2>Rights</h2>"
        "<p>Everyone has <b>rights</b>.</p><script>alert(1)</script><ul><li>One</li><li>Two</li></ul>"
        "<table><tr><td>a</td><td>b</td></tr></table></body></html>"
    )
    assert read_document(page.encode()).text == "## Rights\n\nEveryone has rights.\n\nOne\n\nTwo\n\n| a | b"


@pytest.mark.parametrize("depth", [200, 20_000])
def test_deeply_nested_html_does_not_end_the_program(depth: int) -> None:
    """The parser gives up somewhere; then the file is reported, as any other that gives nothing."""
    page = "<html><body>" + "<div>" * depth + "deep words" + "</div>" * depth
    try:
        assert "deep words" in read_document(page.encode()).text
    except UnreadableError:
        assert depth > 200


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_chinese_text_in_the_encodings_it_comes_in(encoding: str) -> None:
    text = "第一条　为了保护民事主体的合法权益，制定本法。\r\n第二条　民法调整人身关系。"
    assert read_document(text.encode(encoding)).text == text.replace("\r\n", "\n")


def test_latin_text_in_an_old_encoding_is_not_taken_for_chinese() -> None:
    with pytest.raises(UnreadableError, match="byte 1 is not UTF-8") as caught:
        read_document("Ménage à trois, déjà vu: où êtes-vous allés?".encode("latin-1"))
    assert "iconv" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "legacy-office"),
        (b"\x7fELF\x02\x01\x01\x00", "binary"),
        (b"PK\x03\x04 not a zip", "archive"),
        (b"\x89PNG\r\n\x1a\n damaged", "image"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, kind: str) -> None:
    assert kind_of(data) == kind
    with Recogniser(Path("/nonexistent")) as recogniser, pytest.raises(UnreadableError) as caught:
        read_document(data, recognise=recogniser.pages)
    assert str(caught.value)


def test_an_empty_file_and_one_of_spaces_hold_no_text() -> None:
    with pytest.raises(UnreadableError, match="empty"):
        read_document(b"")
    with pytest.raises(UnreadableError, match="no text"):
        read_document(b" \n\n ")


def test_an_office_file_that_unpacks_without_end_is_not_unpacked() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"<x>" + b"0" * 10)
        for number in range(9):
            with archive.open(f"word/media/{number}", "w", force_zip64=True) as member:
                for _ in range(64):
                    member.write(bytes(1 << 20))
    with pytest.raises(UnreadableError, match="unpacks to"):
        read_document(out.getvalue())


def test_a_picture_larger_than_any_page_is_not_drawn() -> None:
    out = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(out, "PNG")
    with Recogniser(Path("/nonexistent")) as recogniser, pytest.raises(UnreadableError, match="pixels"):
        read_document(out.getvalue(), recognise=recogniser.pages)


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_print_in_a_picture_is_recognised_once(tmp_path: Path) -> None:
    out = io.BytesIO()
    picture_of("The tenant shall pay the rent", "on the first day of every month.").save(out, "PNG")
    with Recogniser(tmp_path, workers=1) as recogniser:
        read = read_document(out.getvalue(), recognise=recogniser.pages)
    assert "tenant shall pay the rent" in read.text
    assert read.ocr_pages == (1,)
    (kept,) = tmp_path.glob("*.txt")
    kept.write_text("The second time it is not recognised again.")
    with Recogniser(tmp_path, workers=1) as recogniser:
        assert "second time" in read_document(out.getvalue(), recognise=recogniser.pages).text


def test_boxes_at_one_height_are_a_line_and_an_indented_article_gets_its_space() -> None:
    boxes = [
        (100.0, 10.0, 50.0, "页眉"), (60.0, 70.0, 110.0, "的民事责任。"),
        (140.0, 130.0, 170.0, "第一千条行为人承担责任"),
        (60.0, 190.0, 230.0, "第九百条规定的责任"), (300.0, 191.0, 231.0, "右边"),
    ]  # fmt: skip
    assert lines_of(boxes) == ["页眉", "的民事责任。", "第一千条　行为人承担责任", "第九百条规定的责任　右边"]


def test_ingest_reports_each_file_and_stores_the_good_ones(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.bin", tmp_path / "bad.pdf"
    good.write_bytes(pdf_of([[f"{number}.1 Clause {number} of the agreement is binding." for number in range(1, 9)]]))
    bad.write_bytes(b"\x00\x01\x02")
    command = [
        sys.executable,
        "-m",
        "roadworthy",
        "doc",
        "ingest",
        str(good),
        str(bad),
        "--home",
        str(tmp_path / "home"),
    ]
    done = subprocess.run([*command, "--no-vectors", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    first, second = json.loads(done.stdout)["documents"]
    assert (first["outcome"], first["kind"], first["pages"]) == ("stored", "pdf", 1)
    assert "neither text" in second["error"]
    again = subprocess.run([*command, "--no-vectors", "--json"], capture_output=True, text=True, check=False)
    assert json.loads(again.stdout)["documents"][0]["outcome"] == "unchanged"


def test_the_civil_code_from_its_pdf(test_data: Path) -> None:
    """All 1,260 articles, each whole and under its headings, with the page it begins on."""
    from roadworthy.longdoc.pages import paged
    from roadworthy.longdoc.split import split
    from roadworthy.longdoc.tokens import count_tokens

    corpus = test_data / "corpus/longdoc"
    read = read_document((corpus / "pdf/civil_code_text.pdf").read_bytes())
    units, notes = split(read.text, count_tokens)
    assert notes == ()
    sections = [json.loads(line) for line in (corpus / "zh/civil_code.sections.jsonl").read_text("utf-8").splitlines()]
    found = {one.number: one for one in paged(units, read.page_starts)}
    assert len(found) == len(sections) == 1260
    for section in sections:
        unit = found[str(section["no"])]
        assert "".join(unit.text.split()) == "".join(section["text"].split())
        assert unit.path == tuple(section["path"])
    assert found["1024"].page == 105


def test_a_document_read_in_part_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OCR the page that is a picture is missing; the same file is not "unchanged" for that."""
    from click.testing import CliRunner

    from roadworthy.cli.doc import command

    pictured = io.BytesIO()
    first = Image.new("L", (600, 800), 255)
    first.save(pictured, "PDF")
    words = pdf_of([[f"{number}.1 Clause {number} of the agreement is binding." for number in range(1, 9)]])
    import pypdfium2

    both = pypdfium2.PdfDocument(words)
    both.import_pages(pypdfium2.PdfDocument(pictured.getvalue()))
    both.save(tmp_path / "both.pdf")
    monkeypatch.setattr("roadworthy.adapters.longdoc_read.ocr.engines", lambda: ())
    arguments = ["ingest", str(tmp_path / "both.pdf"), "--home", str(tmp_path / "home"), "--no-vectors", "--json"]
    for _ in range(2):
        (told,) = json.loads(CliRunner().invoke(command, arguments).stdout)["documents"]
        assert (told["outcome"], told["pages"], told["unread_pages"]) == ("stored", 2, [2])
        assert "1 pages are pictures" in told["notes"][0]
