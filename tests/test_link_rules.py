"""Whatever wiki and whatever rename: links mean after it what they meant before."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wiki_contents import ADA, Notebook

from wikiholt.model import Page
from wikiholt.text.links import Names
from wikiholt.text.page import page_path, parse_page
from wikiholt.text.rewriting import Move, rewritten

PARTS = st.sampled_from(
    ["a", "A", "b", "a b", "a_b", "c.d", "ü", "(x)", "100%", "a#b", "x&amp;", "e^f", "n: o", "[z]", "é`"]
)


FILES = st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".md")


@st.composite
def links(draw: st.DrawFn) -> str:
    """A link in one of the ways people write them, to something that may be there."""
    path = "/".join(draw(st.lists(PARTS, min_size=1, max_size=3)))
    ending = draw(st.sampled_from(["", ".md"]))
    tail = draw(st.sampled_from(["", "#here"]))
    lead = draw(st.sampled_from(["", "/", "../", "./"]))
    form = draw(st.integers(0, 5))
    if form == 0:
        return f"[[{lead}{path}{ending}{tail}]]"
    if form == 1:
        return f"[[text|{path}{tail}]]"
    if form == 2:
        return f"[[{path}|a]]"
    safe = path.replace("%", "%25").replace("#", "%23").replace(" ", "%20").replace("(", "%28").replace(")", "%29")
    if form == 3:
        return f"[t](<{lead}{path.replace('%', '%25').replace('#', '%23')}{ending}{tail}>)"
    return (
        f"[t]({lead}{safe}{ending}{tail})" if form == 4 else f"[t][{path[:1]}]\n\n[{path[:1]}]: {lead}{safe}{ending}\n"
    )


WIKIS = st.dictionaries(FILES, st.lists(links(), max_size=5).map("\n\n".join), min_size=1, max_size=6)


def read(pages: dict[str, str]) -> dict[str, Page]:
    found = {file: parse_page(file, "", text.encode(), None) for file, text in pages.items()}
    return {file: page for file, page in found.items() if isinstance(page, Page)}


def meanings(pages: dict[str, str]) -> dict[str, list[str | None]]:
    """For every page, the page each of its links means, in order."""
    names = Names(map(page_path, pages))
    return {page.path: [names.page(link.paths, link.wiki) for link in page.links] for page in read(pages).values()}


@settings(max_examples=300, deadline=None)
@given(wiki=WIKIS, new=FILES, data=st.data())
def test_after_a_rename_every_link_means_the_page_it_meant(wiki: dict[str, str], new: str, data: st.DataObject) -> None:
    old = data.draw(st.sampled_from(sorted(wiki)))
    if new in wiki:
        return
    names = {page_path(file) for file in wiki}
    move = Move(page_path(old), page_path(new), Names(names), Names(names - {page_path(old)} | {page_path(new)}))
    after = {
        (new if file == old else file): rewritten(text.encode(), file, new if file == old else file, move).decode()
        for file, text in wiki.items()
    }
    moved = {page_path(old): page_path(new)}
    was, now = meanings(wiki), meanings(after)
    for path, targets in was.items():
        here = now[moved.get(path, path)]
        assert len(here) == len(targets)
        for target, later in zip(targets, here, strict=True):
            # A link that meant nothing may come to mean the page that now bears the name it names.
            assert target is None or later == moved.get(target, target)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=300) | WIKIS.map(lambda wiki: "\n".join(wiki.values())))
def test_a_rename_that_concerns_no_link_leaves_every_byte(text: str) -> None:
    move = Move("never", "nowhere", Names(["never", "page"]), Names(["nowhere", "page"]))
    data = text.encode("utf-8", "surrogatepass")
    if "never" not in text and "nowhere" not in text:
        assert rewritten(data, "page.md", "page.md", move) == data


@settings(max_examples=300, deadline=None)
@given(paths=st.sets(FILES.map(page_path), min_size=1, max_size=8), data=st.data())
def test_a_page_is_always_meant_by_its_own_path(paths: set[str], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(paths)))
    names = Names(paths)
    assert names.page((path,), True) == names.page((path,), False) == path
    for wiki in (True, False):
        meant = names.page((path.upper(),), wiki)
        assert meant is None or meant in paths


@pytest.fixture
def scratch() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wiki=WIKIS.filter(lambda wiki: len({file.casefold() for file in wiki}) == len(wiki)), data=st.data())
def test_the_graph_of_a_real_wiki_is_the_same_after_a_rename(
    scratch: Path, wiki: dict[str, str], data: st.DataObject
) -> None:
    """Through git and the index: a page of a new name, one that no link can have meant before."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    notes = Notebook(place, dict(wiki))
    old = data.draw(st.sampled_from(sorted(wiki)))
    before = notes.graph()
    done = notes.contents.rename(page_path(old), "fresh/Brand new", ADA)
    moved = {page_path(old): done.path}
    after = notes.graph()
    kept = {(moved.get(one, one), moved.get(other, other)) for one, other in before.edges}
    assert kept <= set(after.edges)
    # What is new was ambiguous between the page that moved and another.
    assert all(other != done.path for _, other in set(after.edges) - kept)
    notes.close()
