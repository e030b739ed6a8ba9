"""The sections of a page: each heading with what follows it."""

from collections.abc import Iterator
from dataclasses import dataclass

from wikiholt.model import MarkdownBlock, Heading, Page
from wikiholt.text.markdown import parse_outline


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
