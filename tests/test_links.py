"""Links: what they mean, who links to whom, and that they mean the same after a page was renamed."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wiki_contents import ADA, Notebook, Pages

from wikiholt.errors import InvalidPage, PageExists, PageNotFound
from wikiholt.model import Page
from wikiholt.text.links import Names, paths_of
from wikiholt.text.page import page_path, parse_page
from wikiholt.text.rewriting import Move, rewritten

# ── what a link means ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("spade.md", "tools/spade"),
        ("spade", "tools/spade"),
        ("./spade.md#care", "tools/spade"),
        ("../home.md?x=1", "home"),
        ("../../out.md", ""),
        ("/home", "home"),
        ("/a%20b/c.md", "a b/c"),
        ("a%23b.md", "tools/a#b"),
        ("sub/page.markdown", "tools/sub/page.markdown"),
        ("#care", ""),
        ("?q", ""),
        ("", ""),
        ("/", ""),
        ("https://example.org/home", ""),
        ("//example.org/home", ""),
        ("mailto:ada@example.org", ""),
        ("a%00b", ""),
    ],
)
def test_a_markdown_link_is_relative_to_its_page_or_from_the_top(target: str, path: str) -> None:
    assert paths_of((target,), False, "tools/rake.md") == ((path,) if path else ())


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("home", "home"),
        ("/tools/spade#care", "tools/spade"),
        ("tools/Spade.md", "tools/Spade"),
        ("../home", "home"),
        ("./spade", "tools/spade"),
        ("Note: a thing", "Note: a thing"),
        ("100%20", "100%20"),
        ("spade^block", "spade"),
        ("spade#^block", "spade"),
        ("https://example.org", ""),
        ("dendron://vault/a.b", ""),
        ("#care", ""),
    ],
)
def test_a_wiki_link_is_from_the_top(target: str, path: str) -> None:
    assert paths_of((target,), True, "tools/rake.md") == ((path,) if path else ())


@pytest.mark.parametrize(
    ("written", "wiki", "page"),
    [
        ("home", False, "home"),
        ("HOME", False, "home"),
        ("tools/garden_spade", False, "tools/Garden Spade"),
        ("tools/garden-spade", True, "tools/Garden Spade"),
        ("garden spade", True, "tools/Garden Spade"),
        ("garden spade", False, None),
        ("rake", True, "rake"),
        ("Rake", False, "Rake"),
        ("rake", False, "rake"),
        ("RAKE", False, None),
        ("x/rake", True, "x/rake"),
        ("log", True, "log.markdown"),
        ("nothing", True, None),
    ],
)
def test_a_page_is_meant_exactly_or_as_the_only_one_alike(written: str, wiki: bool, page: str | None) -> None:
    names = Names(["home", "tools/Garden Spade", "rake", "Rake", "x/rake", "log.markdown"])
    assert names.page((written,), wiki) == page


def test_a_wiki_link_may_have_its_text_on_either_side(tmp_path: Path) -> None:
    pages: Pages = {
        "home.md": "[[The heap|compost]] [[compost|the heap]] [[/compost|home]]\n\n| a |\n|---|\n| [[compost\\|x]] |\n",
        "compost.md": "# Compost\n",
    }
    notes = Notebook(tmp_path, pages).sync()
    found = notes.contents.links("home")
    assert [link.path for link in found.links_to] == ["compost"] * 4
    assert found.missing == ()
    notes.close()


def test_the_text_of_a_link_that_leads_elsewhere_is_no_page(tmp_path: Path) -> None:
    pages: Pages = {
        "home.md": "[[compost|https://x.example]] [[compost|dendron://vault/x]] [[compost|#top]] [[Compost|heap^b]]\n",
        "compost.md": "# Compost\n",
        "heap.md": "# Heap\n",
    }
    notes = Notebook(tmp_path, pages).sync()
    assert [link.path for link in notes.contents.links("home").links_to] == ["heap"]
    assert notes.contents.rename("compost", "mulch", ADA).updated == ()
    notes.close()


def test_links_in_code_count_for_nothing(tmp_path: Path) -> None:
    text = "`[[a]]`\n\n```\n[[a]] [x](a.md)\n```\n\n    [[a]]\n\n<!-- -->\n\nReal: [[b]]\n"
    notes = Notebook(tmp_path, {"home.md": text, "a.md": "# A\n", "b.md": "# B\n"}).sync()
    assert [link.path for link in notes.contents.links("home").links_to] == ["b"]
    assert [page.path for page in notes.contents.orphans()] == ["a", "home"]
    notes.close()


def test_links_both_ways_and_what_is_missing(tmp_path: Path) -> None:
    pages: Pages = {
        "home.md": "[[spade]] [[spade]] [r](tools/rake.md) [[wanted]] ![p](x.png) [me](home.md) [w](https://w.example)\n",
        "tools/spade.md": "[up](../home) [next](rake.md#top \"title\") [ref]\n\n[ref]: <../home.md> 'x'\n",
        "tools/rake.md": "# Rake\n",
    }
    notes = Notebook(tmp_path, pages)
    graph = notes.graph()
    assert [ref.path for ref in graph.pages] == ["home", "tools/rake", "tools/spade"]
    assert graph.edges == (
        ("home", "tools/rake"),
        ("home", "tools/spade"),
        ("tools/spade", "home"),
        ("tools/spade", "tools/rake"),
    )
    assert graph.missing == (("home", "wanted"),)
    rake = notes.contents.links("Tools/Rake.md")
    assert [(link.path, link.text, link.anchor, link.line) for link in rake.linked_from] == [
        ("home", "r", "", 1),
        ("tools/spade", "next", "top", 1),
    ]
    home = notes.contents.links("home")
    assert [link.path for link in home.links_to] == ["tools/spade", "tools/spade", "tools/rake"]
    assert home.missing == ("wanted",)
    assert [link.path for link in home.linked_from] == ["tools/spade", "tools/spade"]
    with pytest.raises(PageNotFound):
        notes.contents.links("wanted")
    notes.close()


def test_a_link_comes_to_life_with_its_page_and_ends_with_it(tmp_path: Path) -> None:
    notes = Notebook(tmp_path, {"home.md": "[[wanted]]\n", "x.md": "x\n"})
    assert notes.graph().edges == ()
    notes.contents.put("deep/Wanted", "# Here\n", ADA)
    assert notes.graph().edges == (("home", "deep/Wanted"),)
    notes.contents.put("other/wanted", "# There\n", ADA)
    assert notes.graph().edges == (), "two pages are called so now"
    notes.contents.delete("deep/Wanted", ADA)
    assert notes.graph().edges == (("home", "other/wanted"),)
    assert notes.contents.links("other/wanted").linked_from[0].path == "home"
    notes.close()


# ── renaming ─────────────────────────────────────────────────────────────────────────────────────

FORMS = """\
[a](spade.md) [b](./spade.md#care "A title") [c](/tools/spade) [d](../tools/spade.md?x=1#y) ![e](spade.md)
[f](<spade.md>) [[tools/spade]] [[/tools/spade#care]] [[spade]] [[text|spade]] [[spade|text]] [[ Spade ]]
[g][ref] [ref] [![h](spade.png)](spade) `[i](spade.md)` [j](https://x.example/tools/spade.md) \\[k](spade.md)

    [code](spade.md)

```
[[spade]]
```

> [quoted](spade.md)
> - [[tools/spade.md]]

| [[x\\|tools/spade]] |
|---|

[ref]: spade.md 'x'
"""


def renamed(tmp_path: Path, new: str, page: str = FORMS) -> str:
    notes = Notebook(tmp_path, {"tools/rake.md": page, "tools/spade.md": "# Spade\n"}).sync()
    done = notes.contents.rename("tools/spade", new, ADA)
    assert done.updated == ("tools/rake",)
    assert done.old_path == "tools/spade"
    assert done.revision == notes.repository.head()
    assert len(notes.contents.changelog()) == 2, "one commit"
    text = notes.contents.read("tools/rake").content
    notes.close()
    return text


def test_links_keep_the_form_they_were_written_in(tmp_path: Path) -> None:
    assert renamed(tmp_path, "shed/big-spade") == (
        '[a](../shed/big-spade.md) [b](../shed/big-spade.md#care "A title") [c](/shed/big-spade) '
        "[d](../shed/big-spade.md?x=1#y) ![e](../shed/big-spade.md)\n"
        "[f](<../shed/big-spade.md>) [[shed/big-spade]] [[/shed/big-spade#care]] [[big-spade]] [[text|big-spade]] "
        "[[big-spade|text]] [[ big-spade ]]\n"
        "[g][ref] [ref] [![h](spade.png)](../shed/big-spade) `[i](spade.md)` [j](https://x.example/tools/spade.md) "
        "\\[k](spade.md)\n\n    [code](spade.md)\n\n```\n[[spade]]\n```\n\n> [quoted](../shed/big-spade.md)\n"
        "> - [[shed/big-spade.md]]\n\n| [[x\\|shed/big-spade]] |\n|---|\n\n[ref]: ../shed/big-spade.md 'x'\n"
    )


@pytest.mark.parametrize(
    ("written", "new", "becomes"),
    [
        ("[a](spade.md)", "tools/a b", "[a](a%20b.md)"),
        ("[a](<spade.md>)", "tools/a b", "[a](<a b.md>)"),
        ("[a](/tools%2Fspade)", "tools/größe (1)", "[a](/tools/größe%20%281%29)"),
        ("[a](/%74ools/sp%61de)", "tools/x#y?z%", "[a](/tools/x%23y%3Fz%25)"),
        ("[a](./spade)", "tools/b", "[a](./b)"),
        ("[a](spade)", "tools/note: b", "[a](./note:%20b)"),
        ("[[spade]]", "tools/a [b]", "[spade](/tools/a%20%5Bb%5D)"),
        ("[[text|spade#care]]", "tools/c#", "[text](/tools/c%23#care)"),
        ("[[tools/spade]]", "spade-2", "[[spade-2]]"),
        ("[[Spade|spade^b]] ![[spade#0:#1]]", "shovel", "[[Spade|shovel^b]] ![[shovel#0:#1]]"),
        ("[[spade^b]]", "a^b", "[spade^b](/a^b)"),
        ("[a](spade.md)\r\n[[spade]]\r\n", "s", "[a](../s.md)\r\n[[s]]\r\n"),
    ],
)
def test_names_are_written_as_a_link_must_have_them(tmp_path: Path, written: str, new: str, becomes: str) -> None:
    assert renamed(tmp_path, new, written) == becomes


def test_a_moved_page_takes_its_links_along(tmp_path: Path) -> None:
    text = "[up](../home.md) [beside](rake) [[rake]] ![p](img/p.png) [self](spade.md) [gone](not-there.md) [x](#here)\n"
    notes = Notebook(tmp_path, {"tools/spade.md": text, "tools/rake.md": "# R\n", "home.md": "# H\n"}).sync()
    done = notes.contents.rename("tools/spade", "a/b/spade", ADA, "Tidy")
    assert done.updated == ()
    assert notes.contents.read("a/b/spade").content == (
        "[up](../../home.md) [beside](../../tools/rake) [[rake]] ![p](../../tools/img/p.png) [self](spade.md) "
        "[gone](../../tools/not-there.md) [x](#here)\n"
    )
    assert notes.repository.git("log", "-1", "--format=%s") == b"Tidy"
    assert "tools/spade.md" not in notes.files()
    notes.close()


def test_links_to_another_page_of_the_new_name_are_made_clear(tmp_path: Path) -> None:
    pages: Pages = {"home.md": "[[rake]] and [[spade]]\n", "a/rake.md": "# R\n", "b/spade.md": "# S\n"}
    notes = Notebook(tmp_path, pages).sync()
    assert notes.contents.rename("b/spade", "b/rake", ADA).updated == ("home",)
    assert notes.contents.read("home").content == "[[a/rake]] and [[b/rake]]\n"
    notes.close()


@pytest.mark.parametrize("stale", ["missing", "behind", "fresh"])
def test_links_follow_however_old_the_index_is(tmp_path: Path, stale: str) -> None:
    notes = Notebook(tmp_path, {"home.md": "[[spade]]\n", "spade.md": "# S\n", "x.md": "x\n"})
    if stale != "missing":
        notes.sync()
    if stale == "behind":
        notes.repository.commit({"late.md": "[s](spade.md)\n", "home.md": "now [[spade]]\n"})
    done = notes.contents.rename("spade", "tools/shovel", ADA)
    assert done.updated == (("home", "late") if stale == "behind" else ("home",))
    assert notes.contents.read("home").content.endswith("[[shovel]]\n")
    notes.close()


def test_a_page_may_change_the_case_of_its_name_alone(tmp_path: Path) -> None:
    notes = Notebook(tmp_path, {"home.md": "[h](Spade.md) [[spade]]\n", "Spade.md": "# S\n"}).sync()
    done = notes.contents.rename("spade", "spade", ADA)
    assert (done.file, done.updated) == ("spade.md", ())
    assert notes.files() == ["home.md", "spade.md"]
    notes.close()


def test_without_links_only_the_file_moves(tmp_path: Path) -> None:
    notes = Notebook(tmp_path, {"home.md": "[[spade]]\n", "spade.md": "[h](home.md)\n"}).sync()
    assert notes.contents.rename("spade", "a/b", ADA, update_links=False).updated == ()
    assert notes.contents.read("home").content == "[[spade]]\n"
    assert notes.contents.read("a/b").content == "[h](home.md)\n"
    notes.close()


def test_a_rename_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    notes = Notebook(tmp_path, {"home.md": "[[spade]]\n", "spade.md": "# S\n"}).sync()
    head = notes.repository.head()
    for taken in ("home", "HOME", "home.md"):
        with pytest.raises(PageExists):
            notes.contents.rename("spade", taken, ADA)
    for odd in ("spade", "spade.md", "", "../x", "a\0"):
        with pytest.raises(InvalidPage):
            notes.contents.rename("spade", odd, ADA)
    with pytest.raises(PageNotFound):
        notes.contents.rename("nowhere", "x", ADA)
    assert notes.repository.head() == head
    notes.close()


def test_bytes_that_are_no_text_stay_as_they_are(tmp_path: Path) -> None:
    old = "caf\xe9 [[spade]]\n".encode("latin-1")
    notes = Notebook(tmp_path, {"home.md": old, "spade.md": "# S\n"}).sync()
    notes.contents.rename("spade", "shovel", ADA)
    assert notes.repository.git("cat-file", "blob", "HEAD:home.md") == b"caf\xe9 [[shovel]]"
    notes.close()


def test_a_page_of_links_alone_is_kept_within_bounds(tmp_path: Path) -> None:
    notes = Notebook(tmp_path, {"home.md": "[[spade]]\n" * 12_000, "spade.md": "# S\n"}).sync()
    found = notes.contents.links("spade")
    assert len(found.linked_from) == 10_000
    assert "more than 10,000 links" in notes.contents.read("home").warnings[-1]
    began = time.monotonic()
    notes.contents.rename("spade", "shovel", ADA)
    assert notes.contents.read("home").content == "[[shovel]]\n" * 12_000
    assert time.monotonic() - began < 30
    notes.close()


# ── properties ───────────────────────────────────────────────────────────────────────────────────

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
