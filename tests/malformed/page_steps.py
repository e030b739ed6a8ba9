"""The processing steps of a page, measured in CPU time."""

import time
from collections.abc import Callable

from tests.support.snippets import build_snippet
from wikiholt.domain.git import Blob
from wikiholt.domain.page import Page
from wikiholt.index.pipeline import PageTask, TextPipeline
from wikiholt.interfaces.web.renderer import render_markdown
from wikiholt.search.hits import count_mentions, get_stems, strip_leading_headings
from wikiholt.testing import FakeEmbedder
from wikiholt.text.dialect import GFM, MKDOCS, OBSIDIAN
from wikiholt.text.dialect_blocks import convert_blocks, convert_to_markdown
from wikiholt.text.dialect_markup import find_inline_metadata, to_gfm
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.keyword_query import parse_query, to_plain_query
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, resolve_link_paths
from wikiholt.text.page_parser import parse_page

_EMBEDDER = FakeEmbedder()
_PATHS = ("a", "b", "a/b", "Home")
_NAMES = PageNameIndex(_PATHS)
_MOVE = PageMove("b", "c", _NAMES, PageNameIndex(["a", "c", "a/b", "Home"]))
_QUERY = parse_query('kettle "every month" -winter desc')


def prepare_page(data: bytes) -> None:
    """As in a sync."""
    TextPipeline().prepare(PageTask("dir/page.md", Blob("0" * 40, len(data), data), None), _EMBEDDER)


def render_page(data: bytes) -> None:
    """As in the preview."""
    page = parse_page("dir/page.md", "0" * 40, data, None)
    if isinstance(page, Page):
        render_markdown(
            page, lambda target, wiki: _NAMES.find_page(resolve_link_paths((target,), wiki, "dir/page.md"), wiki)
        )


def prepare_in_dialects(data: bytes) -> None:
    """Convert a page as in a sync, a hit and the preview, in dialects and formats that have markup of their own."""
    text = data.decode("utf-8", "replace")
    for dialect, file in ((OBSIDIAN, "a.md"), (MKDOCS, "a.mdx"), (GFM, "a.rst"), (GFM, "a.adoc")):
        body, _ = convert_blocks(text, file, dialect)
        convert_to_markdown(body, dialect)
        to_gfm(body, dialect)
    find_inline_metadata([text], OBSIDIAN)


def rewrite_page_links(data: bytes) -> None:
    """As in the rename of another page."""
    rewrite_links(data, "dir/page.md", "other/page.md", _MOVE)


def search_for_text(data: bytes) -> None:
    """As in a search for this text, and in a hit of one of its passages."""
    text = data.decode("utf-8", "replace")
    query = parse_query(text)
    to_plain_query(text[:2000])
    passage = text[:4000]
    build_snippet(strip_leading_headings(passage), query)
    build_snippet(passage, _QUERY)
    count_mentions(passage, get_stems(query))


def parse_frontmatter(data: bytes) -> None:
    """Parse the text as frontmatter and as values in frontmatter."""
    text = data.decode("utf-8", "replace")[:20_000]
    for block in (text, f"title: {text}\ntags: {text}\ndate: {text}", f"tags: [{text}]\nx: {{{text}}}"):
        split_frontmatter(f"---\n{block}\n---\nbody\n")
    split_frontmatter(f"+++\na = {text}\n+++\nbody\n")


STEPS: dict[str, Callable[[bytes], None]] = {
    step.__name__: step
    for step in (
        prepare_page,
        prepare_in_dialects,
        render_page,
        rewrite_page_links,
        search_for_text,
        parse_frontmatter,
    )
}


def measure_seconds(step: Callable[[bytes], object], data: bytes) -> float:
    """CPU time of one step on one page."""
    began = time.process_time()
    step(data)
    return time.process_time() - began
