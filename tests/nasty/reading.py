"""Everything that pure code does with a page, measured in processor time."""

import time
from collections.abc import Callable

from wikiholt.hits import looked_for, mentioned, shown
from wikiholt.model import Blob, Page, Problem
from wikiholt.pages import Pipeline
from wikiholt.surfaces.web.render import render
from wikiholt.testing import FakeEmbedder
from wikiholt.text.frontmatter import split
from wikiholt.text.links import Names, paths_of
from wikiholt.text.page import parse_page
from wikiholt.text.queries import parse_query, plain_query
from wikiholt.text.rewriting import Move, rewritten
from wikiholt.text.snippets import snippet

_EMBEDDER = FakeEmbedder()
_PATHS = ("a", "b", "a/b", "Home")
_NAMES = Names(_PATHS)
_MOVE = Move("b", "c", _NAMES, Names(["a", "c", "a/b", "Home"]))
_QUERY = parse_query('kettle "every month" -winter desc')


def draft(data: bytes) -> None:
    """As a sync does."""
    Pipeline().draft("dir/page.md", Blob("0" * 40, len(data), data), None, _EMBEDDER)


def shown_page(data: bytes) -> None:
    """As the preview does."""
    page = parse_page("dir/page.md", "0" * 40, data, None)
    if isinstance(page, Page):
        render(page, lambda target, wiki: _NAMES.page(paths_of((target,), wiki, "dir/page.md"), wiki))


def moved(data: bytes) -> None:
    """As renaming another page does."""
    rewritten(data, "dir/page.md", "other/page.md", _MOVE)


def asked(data: bytes) -> None:
    """As a search for this text does, and as a hit in a passage of it does."""
    text = data.decode("utf-8", "replace")
    query = parse_query(text)
    plain_query(text[:2000])
    passage = text[:4000]
    snippet(shown(passage), query)
    snippet(passage, _QUERY)
    mentioned(passage, looked_for(query))


def matter(data: bytes) -> None:
    """As frontmatter, in the places that values have in it."""
    text = data.decode("utf-8", "replace")[:20_000]
    for block in (text, f"title: {text}\ntags: {text}\ndate: {text}", f"tags: [{text}]\nx: {{{text}}}"):
        split(f"---\n{block}\n---\nbody\n")
    split(f"+++\na = {text}\n+++\nbody\n")


STEPS: dict[str, Callable[[bytes], None]] = {step.__name__: step for step in (draft, shown_page, moved, asked, matter)}


def seconds(step: Callable[[bytes], object], data: bytes) -> float:
    """Processor time of one step on one page."""
    began = time.process_time()
    step(data)
    return time.process_time() - began


def is_problem(data: bytes) -> bool:
    return isinstance(parse_page("page.md", "0" * 40, data, None), Problem)
