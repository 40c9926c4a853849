"""A picture of print."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from roadworthy.adapters.longdoc_read.values import ReadDocument, UnreadableError
from roadworthy.longdoc.pages import flowing

if TYPE_CHECKING:
    from roadworthy.adapters.longdoc_read.pdf import Recognise

MOST_PIXELS = 100_000_000


def read_picture(data: bytes, recognise: Recognise | None) -> ReadDocument:
    """Its words. Raises UnreadableError: no OCR at hand, damaged, or larger than anyone's page."""
    from PIL import Image

    if recognise is None:
        raise UnreadableError("a picture, and no OCR is installed", hint="install the extra ocr, or tesseract-ocr")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data))
            if picture.width * picture.height > MOST_PIXELS:
                raise UnreadableError(
                    f"a picture of {picture.width} x {picture.height} pixels",
                    hint=f"up to {MOST_PIXELS:,} pixels are read",
                )
            grey = picture.convert("L")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnreadableError(
            f"not a readable picture: {error}", hint=f"up to {MOST_PIXELS:,} pixels are read"
        ) from error
    flow = flowing([text for _, text in recognise([(0, grey)])])
    return ReadDocument(kind="image", text=flow.text, page_starts=flow.page_starts, pages=1, ocr_pages=(1,))
