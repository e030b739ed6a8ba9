"""Splits a page into sections and chunks, the pieces that are stored and embedded."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple

from wikiholt.domain.page import Chunk, Heading, MarkdownBlock, Page, PageMetadata
from wikiholt.text.markdown import parse_outline
from wikiholt.text.page_names import get_extension
from wikiholt.text.segmentation import (
    SENTENCE_END_CHARACTERS,
    TokenCounter,
    TokenSpans,
    estimate_token_spans,
    find_sentence_starts,
    find_spaced_starts,
    find_word_starts,
    has_at_most,
)


class PageSection(NamedTuple):
    """A heading with the blocks under it, including directly preceding headings that have no text."""

    heading_blocks: tuple[MarkdownBlock, ...]
    blocks: tuple[MarkdownBlock, ...]
    heading_path: tuple[str, ...]
    anchor: str


def iter_sections(page: Page) -> Iterator[PageSection]:
    """The sections in order. Headings (and rules) without text join the next section with text, or end the page."""
    headings = {heading.line: heading for heading in page.headings}
    blocks = page.blocks or parse_outline(page.body, page.body_line).blocks
    heading_blocks: list[MarkdownBlock] = []
    section_blocks: list[MarkdownBlock] = []
    open_headings: list[Heading] = []
    for block in blocks:
        heading = headings.get(block.first_line) if block.kind == "heading" else None
        if heading is None:
            section_blocks.append(block)
            continue
        if all(block.kind == "rule" for block in section_blocks):
            heading_blocks += section_blocks
        else:
            yield _make_section(heading_blocks, section_blocks, open_headings)
            heading_blocks = []
        section_blocks = []
        while open_headings and open_headings[-1].level >= heading.level:
            open_headings.pop()
        open_headings.append(heading)
        heading_blocks.append(block)
    if heading_blocks or section_blocks:
        yield _make_section(heading_blocks, section_blocks, open_headings)


def _make_section(
    heading_blocks: list[MarkdownBlock], blocks: list[MarkdownBlock], open_headings: list[Heading]
) -> PageSection:
    path = tuple(heading.text for heading in open_headings if heading.text)
    anchor = open_headings[-1].anchor if open_headings else ""
    return PageSection(tuple(heading_blocks), tuple(blocks), path, anchor)


# Chunks. A chunk is a range of the body, so no text is lost.

_ATOMIC_KINDS = frozenset({"fence", "code", "table"})
_get_start = attrgetter("start")


def build_chunks(
    page: Page, token_spans: TokenSpans, *, target_tokens: int = 200, overlap_tokens: int = 50
) -> tuple[Chunk, ...]:
    """Split a page into chunks of at most `target_tokens`, including the overlap; a blank body has none.

    Leave room in the model's window for the page name and headings that `build_embedding_text` prepends:
    `target_tokens` should be about 50 below the window.
    """
    target = max(target_tokens, 1)
    builder = _ChunkBuilder(
        page, TokenCounter(page.body, token_spans), token_spans, target, min(overlap_tokens, target // 2)
    )
    sections = list(iter_sections(page))
    # A hit in a PDF leads to one of its pages.
    if sections and get_extension(page.file) != ".pdf" and builder.can_fit(sections):
        builder.add_whole_page(sections)
    else:
        for section in sections:
            builder.add_section(section)
    return tuple(builder.chunks)


def chunk_page(content: str, target_tokens: int = 200, overlap_tokens: int = 50) -> list[str]:
    """Split a page's text (without frontmatter) into overlapping chunks, with estimated token counts."""
    outline = parse_outline(content)
    page = Page("", "", "", PageMetadata(), outline.headings, (), content, 1, blocks=outline.blocks)
    chunks = build_chunks(page, estimate_token_spans, target_tokens=target_tokens, overlap_tokens=overlap_tokens)
    return [chunk.text for chunk in chunks]


class _ChunkBuilder:
    """Builds one chunk after another; within a section each chunk begins with the end of the previous one."""

    def __init__(
        self, page: Page, token_counter: TokenCounter, token_spans: TokenSpans, target: int, overlap: int
    ) -> None:
        self.chunks: list[Chunk] = []
        self._page = page
        self._body = page.body
        self._token_counter = token_counter
        self._token_spans = token_spans
        self._target = target
        self._overlap = max(overlap, 0)
        self._section = PageSection((), (), (), "")
        self._counted = (0, page.body_line)
        """A position, and the line that it is on: lines are counted from the position before."""
        self._floor = 0
        self._start = self._end = -1

    def can_fit(self, sections: list[PageSection]) -> bool:
        start, end = _get_extent(sections)
        return self._token_counter.count(start, end) <= self._target

    def add_whole_page(self, sections: list[PageSection]) -> None:
        """Make the page one chunk, with the heading above all its sections that have text."""
        with_text = [section for section in sections if section.blocks] or sections[:1]
        self._section = _find_common_section(with_text, self._page.headings)
        self._start, self._end = _get_extent(sections)
        self._emit_chunk()

    def add_section(self, section: PageSection) -> None:
        self._section = section
        self._start = self._end = -1
        if not section.blocks and self._extend_last(section.heading_blocks[-1].end):
            return
        # Blocks begin and end with a line, so that no word is cut. A part of a section that fits would fit too.
        start, end = _get_extent([section])
        if self._token_counter.count(start, end) <= self._target:
            self._start, self._end = start, end
            self._emit_chunk()
            return
        # the overlap never includes the headings
        self._floor = section.blocks[0].start if section.blocks else len(self._body)
        for heading in section.heading_blocks:
            self._add_block(heading)
        for block in section.blocks:
            self._add_block(block)
        self._emit_chunk()

    def _extend_last(self, end: int) -> bool:
        """Extend the last chunk to `end` if it fits: headings at the end of a page are not a chunk of their own."""
        if not self.chunks or not self._has_room(self.chunks[-1].start, end):
            return False
        last = self.chunks[-1]
        text = self._body[last.start : end]
        self.chunks[-1] = replace(last, text=text, end=end, last_line=last.first_line + text.count("\n", 0, -1))
        return True

    def _add_block(self, block: MarkdownBlock) -> None:
        if self._extend_current(block.start, block.end):
            return
        size = self._token_counter.count(block.start, block.end)
        room = self._target - size
        if room >= 0 and (block.kind in _ATOMIC_KINDS or (self._end > self._floor and room * 4 >= self._overlap)):
            self._start_next(block.start, block.end, room)
            return
        for start, end in self._split_block(block):
            if not self._extend_current(start, end):
                self._start_next(start, end, self._target - self._token_counter.count(start, end))

    def _extend_current(self, start: int, end: int) -> bool:
        """Add the range to the current chunk if it fits."""
        first = start if self._start < 0 else self._start
        if not self._has_room(first, end):
            return False
        self._start, self._end = first, end
        return True

    def _has_room(self, start: int, end: int) -> bool:
        if self._token_counter.count(start, end) > self._target:
            return False
        # A cut inside a word can increase its number of tokens: there the model itself must count.
        is_inside = self._is_inside_word(start) or self._is_inside_word(end)
        return not is_inside or has_at_most(self._body[start:end], self._target, self._token_spans)

    def _is_inside_word(self, position: int) -> bool:
        """Whether a cut here may split a word of the model."""
        if not 0 < position < len(self._body):
            return False
        before, after = self._body[position - 1], self._body[position]
        return not (before.isspace() or after.isspace() or before in SENTENCE_END_CHARACTERS)

    def _start_next(self, start: int, end: int, room: int) -> None:
        """Emit the current chunk and begin the next with this range, preceded by as much overlap as fits."""
        before = self._end
        self._emit_chunk()
        self._start, self._end = start, end
        tokens = min(self._overlap, room) if before > self._floor else 0
        while tokens > 0:
            self._start = self._find_overlap_start(before, start, tokens)
            if self._start == start or self._has_room(self._start, end):
                return
            self._start = start
            tokens //= 2

    def _find_overlap_start(self, end: int, start: int, tokens: int) -> int:
        """Where the last sentences or lines before `end` begin, or the last words if a sentence is too long."""
        earliest = self._token_counter.find_start(end, tokens, self._floor)
        if earliest >= end:
            return start
        for block in self._iter_blocks_between(earliest, end):
            if earliest <= block.start < end:
                return block.start
            starts = find_sentence_starts(self._body, max(block.start, earliest - 2), min(block.end, end), block.kind)
            for position in starts:
                if position >= earliest:
                    return position
            if block.kind in _ATOMIC_KINDS:
                return start  # the end of a row or of a line of code says nothing
        words = find_word_starts(self._body, max(earliest - 1, 0), end)
        # the first may be the rest of a split word
        for position in words:
            if position >= earliest and (position == self._floor or self._is_boundary(position)):
                return position
        return start

    def _is_boundary(self, position: int) -> bool:
        before = self._body[position - 1]
        return before.isspace() or find_word_starts(self._body, position - 1, position + 1) == [position - 1, position]

    def _iter_blocks_between(self, start: int, end: int) -> Iterator[MarkdownBlock]:
        blocks = self._section.blocks
        first = max(0, bisect_right(blocks, start, key=_get_start) - 1)
        for block in blocks[first:]:
            if block.start >= end:
                return
            if block.end > start:
                yield block

    def _split_block(self, block: MarkdownBlock) -> Iterator[tuple[int, int]]:
        """The block in pieces that leave room for the overlap: lines or sentences, else words, else tokens."""
        limit = max(self._target - self._overlap, 1)
        starts = find_sentence_starts(self._body, block.start, block.end, block.kind)
        for start, end in self._iter_ranges(block.start, starts, block.end):
            if self._token_counter.count(start, end) <= limit:
                yield start, end
            elif block.kind in _ATOMIC_KINDS:
                for first, last in self._iter_ranges(start, find_sentence_starts(self._body, start, end), end):
                    yield from self._split_sentence(first, last, limit)
            else:
                yield from self._split_sentence(start, end, limit)

    def _split_sentence(self, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
        """A sentence in one piece if it is short enough, else its words, else tokens."""
        if self._token_counter.count(start, end) <= limit:
            yield start, end
            return
        for first, last in self._iter_ranges(start, find_spaced_starts(self._body, start, end), end):
            if self._token_counter.count(first, last) <= (limit if self._body[first:last].isascii() else limit // 4):
                yield first, last
            else:
                yield from self._split_by_tokens(first, last, limit)

    def _split_by_tokens(self, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
        """Split a word too long for one chunk, or text without spaces, at token boundaries."""
        size = max(limit // 4, 1)
        for first, last in self._iter_ranges(start, self._token_counter.find_token_starts(start, end, size), end):
            yield from self._split_until_fits(first, last, limit)

    def _split_until_fits(self, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
        """Halve a piece of a word until the model itself counts at most `limit` tokens."""
        if end - start > 1 and not has_at_most(self._body[start:end], limit, self._token_spans):
            middle = (start + end) // 2
            yield from self._split_until_fits(start, middle, limit)
            yield from self._split_until_fits(middle, end, limit)
        else:
            yield start, end

    def _iter_ranges(self, start: int, cuts: list[int], end: int) -> Iterator[tuple[int, int]]:
        """The ranges between the cuts, without whitespace at their ends."""
        for cut in (*cuts, end):
            stop = cut
            while stop > start and self._body[stop - 1].isspace():
                stop -= 1
            if stop > start:
                yield start, stop
            start = cut

    def _emit_chunk(self) -> None:
        if self._start < 0:
            return
        start, end = self._start, self._end
        previous = self.chunks[-1].end if self.chunks else 0
        first_line = self._count_lines(start)
        self.chunks.append(
            Chunk(
                index=len(self.chunks),
                text=self._body[start:end],
                heading_path=self._section.heading_path,
                anchor=self._section.anchor,
                first_line=first_line,
                last_line=self._count_lines(end - 1),
                start=start,
                end=end,
                overlap=max(previous - start, 0),
            )
        )

    def _count_lines(self, position: int) -> int:
        """The line of a position. A chunk may begin a little before the end of the one before it."""
        counted, line = self._counted
        if position >= counted:
            line += self._body.count("\n", counted, position)
        else:
            line -= self._body.count("\n", position, counted)
        self._counted = (position, line)
        return line


def _find_common_section(sections: list[PageSection], headings: tuple[Heading, ...]) -> PageSection:
    """The section itself if there is one; of several, the heading path and anchor that they share."""
    first = sections[0]
    levels = zip(*(section.heading_path for section in sections), strict=False)
    path = tuple(texts[0] for texts in takewhile(lambda texts: len(set(texts)) == 1, levels))
    if len(path) == len(first.heading_path):
        return first
    anchor = next((heading.anchor for heading in headings if path and heading.text == path[-1]), "")
    return first._replace(heading_path=path, anchor=anchor)


def _get_extent(sections: list[PageSection]) -> tuple[int, int]:
    first, last = sections[0], sections[-1]
    return (first.heading_blocks or first.blocks)[0].start, (last.blocks or last.heading_blocks)[-1].end
