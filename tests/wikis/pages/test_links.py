"""Targets of links, backlinks and broken links."""

from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles
from wikiholt.errors import PageNotFound
from wikiholt.text.links import PageNameIndex, resolve_link_paths


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
    assert resolve_link_paths((target,), False, "tools/rake.md") == ((path,) if path else ())


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
    assert resolve_link_paths((target,), True, "tools/rake.md") == ((path,) if path else ())


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
def test_a_link_matches_a_page_exactly_or_the_only_similar_one(written: str, wiki: bool, page: str | None) -> None:
    names = PageNameIndex(["home", "tools/Garden Spade", "rake", "Rake", "x/rake", "log.markdown"])
    assert names.find_page((written,), wiki) == page


def test_a_wiki_link_may_have_its_text_on_either_side(tmp_path: Path) -> None:
    pages: PageFiles = {
        "home.md": "[[The heap|compost]] [[compost|the heap]] [[/compost|home]]\n\n| a |\n|---|\n| [[compost\\|x]] |\n",
        "compost.md": "# Compost\n",
    }
    notes = IndexedWiki(tmp_path, pages).sync()
    found = notes.pages.get_links("home")
    assert [link.path for link in found.links_to] == ["compost"] * 4
    assert found.missing == ()
    notes.close()


def test_the_text_of_an_external_link_is_not_a_page(tmp_path: Path) -> None:
    pages: PageFiles = {
        "home.md": "[[compost|https://x.example]] [[compost|dendron://vault/x]] [[compost|#top]] [[Compost|heap^b]]\n",
        "compost.md": "# Compost\n",
        "heap.md": "# Heap\n",
    }
    notes = IndexedWiki(tmp_path, pages).sync()
    assert [link.path for link in notes.pages.get_links("home").links_to] == ["heap"]
    assert notes.pages.rename("compost", "mulch", ADA).updated == ()
    notes.close()


def test_links_in_code_are_ignored(tmp_path: Path) -> None:
    text = "`[[a]]`\n\n```\n[[a]] [x](a.md)\n```\n\n    [[a]]\n\n<!-- -->\n\nReal: [[b]]\n"
    notes = IndexedWiki(tmp_path, {"home.md": text, "a.md": "# A\n", "b.md": "# B\n"}).sync()
    assert [link.path for link in notes.pages.get_links("home").links_to] == ["b"]
    assert [page.path for page in notes.pages.find_orphans()] == ["a", "home"]
    notes.close()


def test_links_backlinks_and_broken_links(tmp_path: Path) -> None:
    pages: PageFiles = {
        "home.md": "[[spade]] [[spade]] [r](tools/rake.md) [[wanted]] ![p](x.png) [me](home.md) [w](https://w.example)\n",
        "tools/spade.md": "[up](../home) [next](rake.md#top \"title\") [ref]\n\n[ref]: <../home.md> 'x'\n",
        "tools/rake.md": "# Rake\n",
    }
    notes = IndexedWiki(tmp_path, pages)
    graph = notes.build_graph()
    assert [ref.path for ref in graph.pages] == ["home", "tools/rake", "tools/spade"]
    assert graph.edges == (
        ("home", "tools/rake"),
        ("home", "tools/spade"),
        ("tools/spade", "home"),
        ("tools/spade", "tools/rake"),
    )
    assert graph.missing == (("home", "wanted"),)
    rake = notes.pages.get_links("Tools/Rake.md")
    assert [(link.path, link.text, link.anchor, link.line) for link in rake.linked_from] == [
        ("home", "r", "", 1),
        ("tools/spade", "next", "top", 1),
    ]
    home = notes.pages.get_links("home")
    assert [link.path for link in home.links_to] == ["tools/spade", "tools/spade", "tools/rake"]
    assert home.missing == ("wanted",)
    assert [link.path for link in home.linked_from] == ["tools/spade", "tools/spade"]
    assert [link.path for link in notes.pages.get_links("wanted").linked_from] == ["home"]
    with pytest.raises(PageNotFound):
        notes.pages.get_links("nobody wants this")
    notes.close()


def test_a_link_is_broken_until_its_page_exists_and_after_it_is_removed(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "[[wanted]]\n", "x.md": "x\n"})
    assert notes.build_graph().edges == ()
    notes.pages.write("deep/Wanted", "# Here\n", ADA)
    assert notes.build_graph().edges == (("home", "deep/Wanted"),)
    notes.pages.write("other/wanted", "# There\n", ADA)
    assert notes.build_graph().edges == (), "two pages now have this name"
    notes.pages.delete("deep/Wanted", ADA)
    assert notes.build_graph().edges == (("home", "other/wanted"),)
    assert notes.pages.get_links("other/wanted").linked_from[0].path == "home"
    notes.close()
