"""The share of words that are right in recognized pictures of text, and the time and memory a picture takes.

    python -m bench.pictures [--write]

A page of docs/ is rendered at several sizes, on a dark ground, with serifs, as a photograph of a screen and as scans.
Each picture is read by the process of the product, whose start is part of its CPU time.
"""

import re
import resource
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageFilter, ImageFont

from bench.report import make_head, make_parser, publish
from wikiholt.documents.conversion import convert_document

_TEXT = Path("docs/search.md")
_FONTS = Path("/usr/share/fonts/truetype/dejavu")
_CASES = (
    ("9 px", 9, (1200, 600), ""),
    ("12 px", 12, (1200, 800), ""),
    ("14 px", 14, (1200, 800), ""),
    ("14 px, small", 14, (420, 90), ""),
    ("14 px, dark", 14, (1200, 800), "dark"),
    ("14 px, monospace", 14, (1200, 800), "mono"),
    ("20 px, serifs", 20, (1200, 800), "serif"),
    ("32 px", 32, (1200, 800), ""),
    ("40 px of 3,000 × 2,000", 40, (3000, 2000), ""),
    ("10 px, blurred JPEG", 10, (1200, 800), "blur"),
    ("14 px, blurred JPEG", 14, (1200, 800), "blur"),
    ("A4 scan of 150 dpi, 10 pt", 21, (1240, 1754), "scan"),
    ("A4 scan of 150 dpi, 10 pt, PDF", 21, (1240, 1754), "scan pdf"),
)


def main() -> None:
    arguments = make_parser(__doc__, "pictures").parse_args()
    publish("pictures", __doc__, "\n".join(measure()), write=arguments.write)


def measure() -> Iterator[str]:
    plain = " ".join(re.sub(r"[#`|*\[\]()<>_-]", " ", _TEXT.read_text()).split())
    yield make_head("| picture | words | right | CPU seconds |")
    for name, size, area, style in _CASES:
        picture, shown = render(plain, size, area, style)
        out = BytesIO()
        kind = "PDF" if "pdf" in style else "JPEG" if style in ("blur", "scan") else "PNG"
        picture.save(out, kind, quality=50)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = convert_document(f"a.{kind.lower()}", out.getvalue(), reads_pictures=True).text
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        words, right = count_words(shown), count_words(shown) & count_words(found)
        yield f"| {name} | {words.total()} | {right.total() / words.total():.1%} | {seconds:.1f} |"
    yield f"\nLargest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024} MB."


def count_words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.casefold()))


def render(text: str, size: int, area: tuple[int, int], style: str) -> tuple[Image.Image, str]:
    """A picture of as much of the text as fits, and this part."""
    face = {"mono": "DejaVuSansMono", "serif": "DejaVuSerif"}.get(style, "DejaVuSans")
    picture = Image.new("RGB", area, "#222" if style == "dark" else "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.truetype(_FONTS / f"{face}.ttf", size)
    margin = 8 if area[0] < 1240 else 90
    y, shown, line = float(margin), list[str](), list[str]()
    for word in text.split():
        if pen.textlength(" ".join([*line, word]), font) > area[0] - 2 * margin:
            if y + size * 1.5 > area[1] - margin:
                break
            pen.text((margin, y), " ".join(line), fill="#ddd" if style == "dark" else "black", font=font)
            shown += line
            line = []
            y += size * 1.5
        line.append(word)
    if style == "blur":
        picture = picture.filter(ImageFilter.GaussianBlur(0.8))
    elif "scan" in style:
        picture = picture.rotate(0.7, fillcolor="white").convert("L")
        noise = Image.frombytes("L", area, Random(1).randbytes(area[0] * area[1]))
        picture = Image.blend(picture, noise, 0.15).filter(ImageFilter.GaussianBlur(0.6))
    return picture, " ".join(shown)


if __name__ == "__main__":
    main()
