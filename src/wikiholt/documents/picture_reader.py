"""Reads the text in pictures and in scanned pages of a PDF, with PP-OCR models on one core."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from io import BytesIO
from typing import Any

from wikiholt.documents.formats import DocumentFault
from wikiholt.documents.markdown_writer import MarkdownWriter

_MAX_PIXELS = 50_000_000
_MAX_SIDE_PIXELS = 2_000
"""A larger picture is made smaller before it is read."""
_MAX_CPU_S = 300.0
"""CPU time after which no further page of a scanned document is read. The process ends a little later."""


def read_picture(data: bytes, writer: MarkdownWriter) -> None:
    """Read the text in a picture, which may have none."""
    from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415 - only for pictures

    Image.MAX_IMAGE_PIXELS = None  # checked here, without a warning
    try:
        picture = Image.open(BytesIO(data))
        if picture.width * picture.height > _MAX_PIXELS:
            size = f"{picture.width:,} × {picture.height:,} pixels"
            raise DocumentFault("too-large", f"{size}; the limit is {_MAX_PIXELS:,} in all")
        shown = ImageOps.exif_transpose(picture).convert("RGBA")
    except UnidentifiedImageError as error:
        raise DocumentFault("damaged", "it is not a picture of a known format") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DocumentFault("damaged", f"this picture cannot be read: {error}"[:300]) from error
    shown.thumbnail((_MAX_SIDE_PIXELS, _MAX_SIDE_PIXELS))
    background = Image.new("RGBA", shown.size, "white")
    background.alpha_composite(shown)
    writer.add_paragraph("\n".join(_read_lines(background.convert("RGB"))))


def read_scans(document: Any, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The text of pages of a PDF by their numbers (from 0), as far as the time allows."""
    for number in numbers:
        if time.process_time() > _MAX_CPU_S:
            return
        page = document[number]
        scale = min(_MAX_SIDE_PIXELS / max(*page.get_size(), 1), 3.0)
        yield number, "\n".join(_read_lines(page.render(scale=scale).to_pil()))


@cache
def _load_engine() -> Callable[..., Any]:
    from rapidocr import RapidOCR  # noqa: PLC0415 - it takes half a second

    # Lines one by one take half the memory and less time than in batches, which are padded to the longest line.
    options = {"Rec.rec_batch_num": 1, "EngineConfig.onnxruntime.intra_op_num_threads": 1, "Global.use_cls": False}
    # By default small pictures are made larger: ten times the work for the same words.
    sizes = {"Det.limit_type": "max", "Det.limit_side_len": _MAX_SIDE_PIXELS}
    engine: Callable[..., Any] = RapidOCR(params={**options, **sizes, "Global.log_level": "critical"})
    return engine


def _read_lines(picture: Any) -> list[str]:
    import numpy as np  # noqa: PLC0415 - only for pictures

    pixels = np.asarray(picture.convert("RGB"))[:, :, ::-1]
    return [line for line in _load_engine()(pixels, use_cls=False).txts or () if line.strip()]
