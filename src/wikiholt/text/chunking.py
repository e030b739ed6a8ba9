"""The sections of a page: each heading with what follows it."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wikiholt.domain.page import Chunk, Heading, MarkdownBlock, Page, PageMetadata
from wikiholt.text.markdown import parse_outline
from wikiholt.text.model_text import build_embedding_text, get_content_name
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


@dataclass(frozen=True, slots=True)
class PageSection:
    """A heading (and those without text of their own right before it) with the blocks under it."""

    heading_blocks: tuple[MarkdownBlock, ...]
    blocks: tuple[MarkdownBlock, ...]
    heading_path: tuple[str, ...]
    anchor: str


def iter_sections(page: Page) -> Iterator[PageSection]:
    """The sections in order; a run of headings (and rules) alone joins the next section with text, or ends the page."""
    headings = {heading.line: heading for heading in page.headings}
    blocks = page.blocks or parse_outline(page.body, page.body_line).blocks
    heads: list[MarkdownBlock] = []
    texts: list[MarkdownBlock] = []
    trail: list[Heading] = []
    for block in blocks:
        heading = headings.get(block.first_line) if block.kind == "heading" else None
        if heading is None:
            texts.append(block)
            continue
        if all(text.kind == "rule" for text in texts):
            heads += texts
        else:
            yield _make_section(heads, texts, trail)
            heads = []
        texts = []
        while trail and trail[-1].level >= heading.level:
            trail.pop()
        trail.append(heading)
        heads.append(block)
    if heads or texts:
        yield _make_section(heads, texts, trail)


def _make_section(headings: list[MarkdownBlock], texts: list[MarkdownBlock], trail: list[Heading]) -> PageSection:
    path = tuple(heading.text for heading in trail if heading.text)
    return PageSection(tuple(headings), tuple(texts), path, trail[-1].anchor if trail else "")


# Chunks: the passages of a page that are embedded and found. A chunk is a range of the body, so no text is lost.


__all__ = ["build_chunks", "build_embedding_text", "chunk_page", "get_content_name"]

_ATOMIC_KINDS = frozenset({"fence", "code", "table"})
_PROSE_KINDS = frozenset({"paragraph", "heading"})


def build_chunks(
    page: Page, token_spans: TokenSpans, *, target_tokens: int = 200, overlap_tokens: int = 50
) -> tuple[Chunk, ...]:
    """Cut a page into chunks of at most `target_tokens`, its overlap included; a blank body has none.

    Leave room in the model's window for the page name and headings that `embedded_text` puts in front:
    `target_tokens` some 50 below the window.
    """
    target = max(target_tokens, 1)
    gatherer = _ChunkBuilder(
        page, TokenCounter(page.body, token_spans), token_spans, target, min(overlap_tokens, target // 2)
    )
    parts = list(iter_sections(page))
    if parts and gatherer.can_fit(parts):
        gatherer.add_whole_page(parts)
    else:
        for section in parts:
            gatherer.add_section(section)
    return tuple(gatherer.chunks)


def chunk_page(content: str, target_tokens: int = 200, overlap_tokens: int = 50) -> list[str]:
    """Split a page's text (without frontmatter) into overlapping chunks, counting tokens roughly."""
    plan = parse_outline(content)
    page = Page("", "", "", PageMetadata(), plan.headings, (), content, 1, blocks=plan.blocks)
    pieces = build_chunks(page, estimate_token_spans, target_tokens=target_tokens, overlap_tokens=overlap_tokens)
    return [piece.text for piece in pieces]


class _ChunkBuilder:
    """Fills one chunk after the other; within a section each new one begins with the end of the one before."""

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
        self._newlines = array("q", (found.start() for found in re.finditer("\n", page.body)))
        self._section = PageSection((), (), (), "")
        self._floor = 0
        self._start = self._end = -1

    def can_fit(self, parts: list[PageSection]) -> bool:
        start, end = _get_extent(parts)
        return self._token_counter.count(start, end) <= self._target

    def add_whole_page(self, parts: list[PageSection]) -> None:
        """Make the whole page one chunk, headed by its first section with text."""
        self._section = next((part for part in parts if part.blocks), parts[0])
        self._start, self._end = _get_extent(parts)
        self._emit_chunk()

    def add_section(self, section: PageSection) -> None:
        self._section = section
        self._start = self._end = -1
        if not section.blocks and self._extend_last(section.heading_blocks[-1].end):
            return
        # overlap never reaches back over the headings
        self._floor = section.blocks[0].start if section.blocks else len(self._body)
        for head in section.heading_blocks:
            self._add_block(head)
        for block in section.blocks:
            self._add_block(block)
        self._emit_chunk()

    def _extend_last(self, end: int) -> bool:
        """Let the last chunk reach to here if it can: headings that end a page are no passage of their own."""
        if not self.chunks or not self._has_room(self.chunks[-1].start, end):
            return False
        last = self.chunks[-1]
        self.chunks[-1] = replace(last, text=self._body[last.start : end], end=end, last_line=self._get_line(end - 1))
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
        """Take the range into the current chunk if there is room."""
        first = start if self._start < 0 else self._start
        if not self._has_room(first, end):
            return False
        self._start, self._end = first, end
        return True

    def _has_room(self, start: int, end: int) -> bool:
        if self._token_counter.count(start, end) > self._target:
            return False
        # a cut inside a word can make more tokens of it than it was: there the model itself must count
        inside = self._is_inside_word(start) or self._is_inside_word(end)
        return not inside or has_at_most(self._body[start:end], self._target, self._token_spans)

    def _is_inside_word(self, at: int) -> bool:
        """Whether a cut here would part what may be one word to the model."""
        if not 0 < at < len(self._body):
            return False
        before, after = self._body[at - 1], self._body[at]
        return not (before.isspace() or after.isspace() or before in SENTENCE_END_CHARACTERS)

    def _start_next(self, start: int, end: int, room: int) -> None:
        """Close the current chunk and begin the next with this range, after as much overlap as there is room for."""
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
        """Where the last sentences before `end` begin, or the last words where a sentence is too long."""
        earliest = self._token_counter.find_start(end, tokens, self._floor)
        if earliest >= end:
            return start
        for block in self._iter_blocks_between(earliest, end):
            if earliest <= block.start < end:
                return block.start
            starts = find_sentence_starts(
                self._body, max(block.start, earliest - 2), min(block.end, end), by_line=block.kind not in _PROSE_KINDS
            )
            for at in starts:
                if at >= earliest:
                    return at
        words = find_word_starts(self._body, max(earliest - 1, 0), end)
        # the first may be the rest of a word
        return next((at for at in words if at >= earliest and (at == self._floor or self._is_boundary(at))), start)

    def _is_boundary(self, at: int) -> bool:
        before = self._body[at - 1]
        return before.isspace() or find_word_starts(self._body, at - 1, at + 1) == [at - 1, at]

    def _iter_blocks_between(self, start: int, end: int) -> Iterator[MarkdownBlock]:
        blocks = self._section.blocks
        first = max(0, bisect_right(blocks, start, key=lambda block: block.start) - 1)
        for block in blocks[first:]:
            if block.start >= end:
                return
            if block.end > start:
                yield block

    def _split_block(self, block: MarkdownBlock) -> Iterator[tuple[int, int]]:
        """The block in pieces that leave room for the overlap: sentences, else words, else tokens."""
        limit = max(self._target - self._overlap, 1)
        by_line = block.kind not in _PROSE_KINDS
        for start, end in self._iter_ranges(
            block.start, find_sentence_starts(self._body, block.start, block.end, by_line=by_line), block.end
        ):
            if self._token_counter.count(start, end) <= limit:
                yield start, end
                continue
            for first, last in self._iter_ranges(start, find_spaced_starts(self._body, start, end), end):
                if self._token_counter.count(first, last) <= (
                    limit if self._body[first:last].isascii() else limit // 4
                ):
                    yield first, last
                else:
                    yield from self._split_by_tokens(first, last, limit)

    def _split_by_tokens(self, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
        """A word too long for one chunk, or text without spaces, cut where tokens begin."""
        size = max(limit // 4, 1)
        for first, last in self._iter_ranges(start, self._token_counter.find_token_starts(start, end, size), end):
            yield from self._split_until_fits(first, last, limit)

    def _split_until_fits(self, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
        """A piece of a word, halved until the model itself finds no more tokens in it than there is room for."""
        if end - start > 1 and not has_at_most(self._body[start:end], limit, self._token_spans):
            middle = (start + end) // 2
            yield from self._split_until_fits(start, middle, limit)
            yield from self._split_until_fits(middle, end, limit)
        else:
            yield start, end

    def _iter_ranges(self, start: int, cuts: list[int], end: int) -> Iterator[tuple[int, int]]:
        """The ranges between the cuts, without the whitespace at their ends."""
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
        self.chunks.append(
            Chunk(
                index=len(self.chunks),
                text=self._body[start:end],
                heading_path=self._section.heading_path,
                anchor=self._section.anchor,
                first_line=self._get_line(start),
                last_line=self._get_line(end - 1),
                start=start,
                end=end,
                overlap=max(previous - start, 0),
            )
        )

    def _get_line(self, at: int) -> int:
        return self._page.body_line + bisect_right(self._newlines, at - 1)


def _get_extent(parts: list[PageSection]) -> tuple[int, int]:
    first, last = parts[0], parts[-1]
    return (first.heading_blocks or first.blocks)[0].start, (last.blocks or last.heading_blocks)[-1].end
