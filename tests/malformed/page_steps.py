"""Everything that pure code does with a page, measured in processor time."""

import time
from collections.abc import Callable

from wikiholt.domain.git import Blob
from wikiholt.domain.page import Page, PageProblem
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.interfaces.web.renderer import render_markdown
from wikiholt.search.hits import count_mentions, get_stems, strip_leading_headings
from wikiholt.testing import FakeEmbedder
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.keyword_query import parse_query, to_plain_query
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, resolve_link_paths
from wikiholt.text.page_parser import parse_page
from wikiholt.text.snippets import build_snippet

_EMBEDDER = FakeEmbedder()
_PATHS = ("a", "b", "a/b", "Home")
_NAMES = PageNameIndex(_PATHS)
_MOVE = PageMove("b", "c", _NAMES, PageNameIndex(["a", "c", "a/b", "Home"]))
_QUERY = parse_query('kettle "every month" -winter desc')


def draft(data: bytes) -> None:
    """As a sync does."""
    TextPipeline().prepare("dir/page.md", Blob("0" * 40, len(data), data), None, _EMBEDDER)


def shown_page(data: bytes) -> None:
    """As the preview does."""
    page = parse_page("dir/page.md", "0" * 40, data, None)
    if isinstance(page, Page):
        render_markdown(
            page, lambda target, wiki: _NAMES.find_page(resolve_link_paths((target,), wiki, "dir/page.md"), wiki)
        )


def moved(data: bytes) -> None:
    """As renaming another page does."""
    rewrite_links(data, "dir/page.md", "other/page.md", _MOVE)


def asked(data: bytes) -> None:
    """As a search for this text does, and as a hit in a passage of it does."""
    text = data.decode("utf-8", "replace")
    query = parse_query(text)
    to_plain_query(text[:2000])
    passage = text[:4000]
    build_snippet(strip_leading_headings(passage), query)
    build_snippet(passage, _QUERY)
    count_mentions(passage, get_stems(query))


def matter(data: bytes) -> None:
    """As frontmatter, in the places that values have in it."""
    text = data.decode("utf-8", "replace")[:20_000]
    for block in (text, f"title: {text}\ntags: {text}\ndate: {text}", f"tags: [{text}]\nx: {{{text}}}"):
        split_frontmatter(f"---\n{block}\n---\nbody\n")
    split_frontmatter(f"+++\na = {text}\n+++\nbody\n")


STEPS: dict[str, Callable[[bytes], None]] = {step.__name__: step for step in (draft, shown_page, moved, asked, matter)}


def measure_seconds(step: Callable[[bytes], object], data: bytes) -> float:
    """Processor time of one step on one page."""
    began = time.process_time()
    step(data)
    return time.process_time() - began


def is_problem(data: bytes) -> bool:
    return isinstance(parse_page("page.md", "0" * 40, data, None), PageProblem)
