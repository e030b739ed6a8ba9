"""The lines of source code: which of them each part of the Markdown shows that is made from a file."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

from wikiholt.domain.page import Chunk, Heading, MarkdownBlock, Page

_INFO = re.compile(r"`{6,}\w+ L(\d{1,9})$", re.MULTILINE)
_BLOCK_BORDER = re.compile(r"^(`{6,})\n\n\1\w+ L\d{1,9}\n", re.MULTILINE)
_FENCE = re.compile(r"^`{6,}.*$", re.MULTILINE)
_DOTTED_NAME = re.compile(r"\b\w+(?:[.'\-]\w+)+")
_JOINED_WORDS = re.compile(r"[^\W_]_+[^\W_]|[a-z][A-Z]")


def list_source_lines(body: str, blocks: Iterable[MarkdownBlock]) -> list[tuple[int, int, int]]:
    """Of each block of code: its line in the Markdown, and the first and last line of the file that it shows."""
    found = []
    for block in blocks:
        if block.kind == "fence" and (match := _INFO.match(body, block.start)):
            first = int(match[1])
            found.append((block.first_line, first, first + max(block.last_line - block.first_line - 2, 0)))
    return found


def set_line_anchors(headings: Sequence[Heading], body: str, blocks: Sequence[MarkdownBlock]) -> tuple[Heading, ...]:
    """The headings with the lines under them as anchors, as code hosts write them: `L10-L42`."""
    shown = list_source_lines(body, blocks)
    numbers = [number for number, _, _ in shown]
    ends = [*(heading.line for heading in headings[1:]), float("inf")]
    anchored = []
    for heading, end in zip(headings, ends, strict=False):
        under = shown[bisect_right(numbers, heading.line) : bisect_right(numbers, end)]
        anchored.append(replace(heading, anchor=f"L{under[0][1]}-L{under[-1][2]}") if under else heading)
    return tuple(anchored)


def to_source_lines(page: Page, chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """The chunks with the lines of the file; those above all headings also get their lines as anchor."""
    shown = list_source_lines(page.body, page.blocks)
    mapped = []
    for chunk in chunks:
        before = bisect_right(shown, chunk.first_line, key=itemgetter(0)) - 1
        number, first, last = shown[max(before, 0)]
        if before >= 0 and chunk.first_line > number + last - first + 1 and before + 1 < len(shown):
            first = shown[before + 1][1]  # the chunk begins with a heading
        else:
            first = min(first + max(chunk.first_line - number - 1, 0), last)
        number, start, last = shown[max(bisect_right(shown, chunk.last_line, key=itemgetter(0)) - 1, 0)]
        last = max(min(start + max(chunk.last_line - number - 1, 0), last), first)
        anchor = chunk.anchor or f"L{first}-L{last}"
        mapped.append(replace(chunk, first_line=first, last_line=last, anchor=anchor))
    return tuple(mapped)


def join_blocks(markdown: str) -> str:
    """The Markdown of source code with the blocks of each section as one, to be read."""
    return _BLOCK_BORDER.sub("", markdown)


def to_code_words(body: str) -> str:
    """The words of source code: without fences, and with names such as `max_bytes` of `self.max_bytes` as words."""
    text = _FENCE.sub("", body)
    parts = (part for name in _DOTTED_NAME.findall(text) for part in re.split(r"[.'\-]", name))
    return "\n".join((text, *dict.fromkeys(part for part in parts if _JOINED_WORDS.search(part))))
