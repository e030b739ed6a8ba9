"""Parses a git blob into a Page, leniently: any text that somebody committed becomes a page."""

import re
from dataclasses import replace
from datetime import datetime

from wikiholt.domain.page import Heading, Page, PageMetadata, PageProblem
from wikiholt.text.charset import decode_bytes
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_blocks import convert_blocks
from wikiholt.text.frontmatter import add_inline_metadata, split_frontmatter, to_utc
from wikiholt.text.markdown import AnchorStyle, parse_outline
from wikiholt.text.page_names import find_namespace_name, get_extension, get_page_path, is_code, make_page_name
from wikiholt.text.site_markup import find_routes
from wikiholt.text.source_lines import set_line_anchors

_LFS_PREFIX = b"version https://git-lfs.github.com/spec/"
_MAX_NAME_CHARS = 500


def parse_page(
    file: str,
    blob: str,
    data: bytes,
    committed: datetime | None,
    anchors: AnchorStyle = "github",
    dialect: Dialect = GFM,
) -> Page | PageProblem:
    """Parse one page; a PageProblem only if there is no text to index. Never raises.

    The name is the title of the frontmatter, else the only level-1 heading if it is the first heading, else made from
    the file name. `metadata.last_updated` is the date in the frontmatter, else of the commit, in UTC. The body is
    Markdown: other formats, and blocks that only the dialect has, are converted.
    """
    if len(data) < 1024 and data.startswith(_LFS_PREFIX):
        return PageProblem(
            file, blob, "lfs-pointer", "the content is in Git LFS; the repository has only a pointer to it"
        )
    decoded = decode_bytes(data)
    if decoded is None:
        return PageProblem(file, blob, "binary", "the file contains binary data, not text")
    page = _build_page(file, decoded.text, anchors, dialect)
    metadata = add_commit_date(page.metadata, committed)
    if metadata is page.metadata and not decoded.warnings:
        return page
    return replace(page, metadata=metadata, warnings=decoded.warnings + page.warnings)


def add_commit_date(metadata: PageMetadata, committed: datetime | None) -> PageMetadata:
    """The metadata with the date of the commit, unless the page has its own."""
    if metadata.last_updated is not None or committed is None:
        return metadata
    return replace(metadata, last_updated=to_utc(committed))


def _build_page(file: str, text: str, anchors: AnchorStyle, dialect: Dialect) -> Page:
    front = split_frontmatter(text)
    body, block_warnings = convert_blocks(front.body, file, dialect)
    outline = parse_outline(body, front.body_line, anchors, file, dialect)
    if outline.metadata.tags or outline.metadata.fields:
        front = add_inline_metadata(front, outline.metadata.tags, outline.metadata.fields)
    if get_extension(file) == ".pdf":
        outline = replace(outline, headings=tuple(map(_set_page_anchor, outline.headings)))
    elif is_code(file):
        outline = replace(outline, headings=set_line_anchors(outline.headings, body, outline.blocks))
    name = get_title(front.metadata) or _find_heading_name(outline.headings)
    metadata = front.metadata
    if dialect.has_note_markup and (full_name := find_namespace_name(file)):
        metadata = replace(metadata, aliases=(*metadata.aliases, full_name))
    if dialect.has_routes and (routes := find_routes(file, front.fields, has_ids=dialect.has_components)):
        metadata = replace(metadata, aliases=tuple(dict.fromkeys((*metadata.aliases, *routes))))
    return Page(
        file=file,
        path=get_page_path(file),
        name=name or make_page_name(file),
        metadata=metadata,
        headings=outline.headings,
        links=outline.links,
        body=body,
        body_line=front.body_line,
        warnings=front.warnings + block_warnings + outline.warnings,
        blocks=outline.blocks,
        name_in_content=bool(name),
        words=_count_words(body),
        length=len(text),
    )


def _set_page_anchor(heading: Heading) -> Heading:
    """The heading of a page of a PDF with the fragment that opens this page in a browser."""
    number = heading.text.removeprefix("Page ")
    return replace(heading, anchor=f"page={number}") if number.isdecimal() else heading


def _count_words(text: str) -> int:
    # a list of all words of a large page would take many times its size in memory
    return len(text.split()) if len(text) < 1_000_000 else sum(1 for _ in re.finditer(r"\S+", text))


def get_title(metadata: PageMetadata) -> str:
    """The name of a page from its frontmatter; empty if it has none."""
    return metadata.title[:_MAX_NAME_CHARS] if metadata.title else ""


def _find_heading_name(headings: tuple[Heading, ...]) -> str:
    # Several headings of level 1 are sections: the first one does not say what the page is about.
    if headings and headings[0].level == 1 and all(heading.level > 1 for heading in headings[1:]):
        return headings[0].text[:_MAX_NAME_CHARS].strip()
    return ""
