"""For any wiki and any rename, links have the same target after it as before."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.indexed_wiki import ADA, IndexedWiki
from tests.support.tiers import limit_examples
from wikiholt.domain.page import Page
from wikiholt.text.dialect import GFM, GOLLUM, OBSIDIAN, OTTERWIKI, OTTERWIKI_LINK_TITLE_CASE, Dialect
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, get_folder
from wikiholt.text.page_names import get_page_path
from wikiholt.text.page_parser import parse_page

PARTS = st.sampled_from(
    ["a", "A", "b", "a b", "a_b", "c.d", "ü", "(x)", "100%", "a#b", "x&amp;", "e^f", "n: o", "[z]", "é`"]
)


FILES = st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".md")


@st.composite
def link_texts(draw: st.DrawFn) -> str:
    """A link in any notation, to a target that may exist."""
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


WIKIS = st.dictionaries(FILES, st.lists(link_texts(), max_size=5).map("\n\n".join), min_size=1, max_size=6)


def parse_pages(pages: dict[str, str], dialect: Dialect) -> dict[str, Page]:
    found = {file: parse_page(file, "", text.encode(), None, dialect=dialect) for file, text in pages.items()}
    return {file: page for file, page in found.items() if isinstance(page, Page)}


def resolve_links(pages: dict[str, str], dialect: Dialect) -> dict[str, list[str | None]]:
    """For every page, the target pages of its links, in order."""
    names = PageNameIndex(map(get_page_path, pages), resolution=dialect.resolution)
    return {
        page.path: [names.find_page(link.paths, link.wiki, get_folder(page.path)) for link in page.links]
        for page in parse_pages(pages, dialect).values()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "dialect", [GFM, GOLLUM, OBSIDIAN, OTTERWIKI, OTTERWIKI_LINK_TITLE_CASE], ids=lambda dialect: dialect.name
)
@settings(max_examples=limit_examples(300), deadline=None)
@given(wiki=WIKIS, new=FILES, data=st.data())
def test_after_a_rename_every_link_has_the_same_target(
    dialect: Dialect, wiki: dict[str, str], new: str, data: st.DataObject
) -> None:
    old = data.draw(st.sampled_from(sorted(wiki)))
    if dialect is OTTERWIKI:
        new = new.lower()  # it has no other names
    if new in wiki:
        return
    names = {get_page_path(file) for file in wiki}
    move = PageMove(
        get_page_path(old),
        get_page_path(new),
        PageNameIndex(names, resolution=dialect.resolution),
        PageNameIndex(names - {get_page_path(old)} | {get_page_path(new)}, resolution=dialect.resolution),
        dialect,
    )
    after = {
        (new if file == old else file): rewrite_links(text.encode(), file, new if file == old else file, move).decode()
        for file, text in wiki.items()
    }
    moved = {get_page_path(old): get_page_path(new)}
    was, now = resolve_links(wiki, dialect), resolve_links(after, dialect)
    for path, targets in was.items():
        here = now[moved.get(path, path)]
        assert len(here) == len(targets)
        for target, later in zip(targets, here, strict=True):
            # A broken link may now have a target: the page with the new name.
            assert target is None or later == moved.get(target, target)


@settings(max_examples=limit_examples(200), deadline=None)
@given(text=st.text(max_size=300) | WIKIS.map(lambda wiki: "\n".join(wiki.values())))
def test_a_rename_without_affected_links_changes_no_byte(text: str) -> None:
    move = PageMove("never", "nowhere", PageNameIndex(["never", "page"]), PageNameIndex(["nowhere", "page"]))
    data = text.encode("utf-8", "surrogatepass")
    if "never" not in text and "nowhere" not in text:
        assert rewrite_links(data, "page.md", "page.md", move) == data


@settings(max_examples=limit_examples(300), deadline=None)
@given(paths=st.sets(FILES.map(get_page_path), min_size=1, max_size=8), data=st.data())
def test_the_path_of_a_page_always_links_to_it(paths: set[str], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(paths)))
    names = PageNameIndex(paths)
    assert names.find_page((path,), True) == names.find_page((path,), False) == path
    for wiki in (True, False):
        meant = names.find_page((path.upper(),), wiki)
        assert meant is None or meant in paths


@pytest.fixture
def scratch() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wiki=WIKIS.filter(lambda wiki: len({file.casefold() for file in wiki}) == len(wiki)), data=st.data())
def test_the_graph_of_a_real_wiki_is_the_same_after_a_rename(
    scratch: Path, wiki: dict[str, str], data: st.DataObject
) -> None:
    """With git and the index: the new name is one that no link could have as its target before."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    notes = IndexedWiki(place, dict(wiki))
    old = data.draw(st.sampled_from(sorted(wiki)))
    before = notes.build_graph()
    done = notes.pages.rename(get_page_path(old), "fresh/Brand new", ADA)
    moved = {get_page_path(old): done.path}
    after = notes.build_graph()
    kept = {(moved.get(one, one), moved.get(other, other)) for one, other in before.edges}
    assert kept <= set(after.edges)
    # A new link was ambiguous between the moved page and another one.
    assert all(other != done.path for _, other in set(after.edges) - kept)
    notes.close()
