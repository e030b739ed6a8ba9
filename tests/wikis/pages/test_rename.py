"""Renaming a page updates links in their notation."""

import time
from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles
from wikiholt.errors import InvalidPage, PageExists, PageNotFound

LINK_FORMS = """\
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


def rename_page(tmp_path: Path, new: str, page: str = LINK_FORMS) -> str:
    notes = IndexedWiki(tmp_path, {"tools/rake.md": page, "tools/spade.md": "# Spade\n"}).sync()
    done = notes.pages.rename("tools/spade", new, ADA)
    assert done.updated == ("tools/rake",)
    assert done.old_path == "tools/spade"
    assert done.revision == notes.repository.get_head()
    assert len(notes.pages.read_changelog(50)) == 2, "one commit"
    text = notes.pages.read("tools/rake").content
    notes.close()
    return text


def test_links_keep_their_notation(tmp_path: Path) -> None:
    assert rename_page(tmp_path, "shed/big-spade") == (
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
def test_names_are_escaped_as_links_require(tmp_path: Path, written: str, new: str, becomes: str) -> None:
    assert rename_page(tmp_path, new, written) == becomes


def test_links_of_a_moved_page_keep_their_targets(tmp_path: Path) -> None:
    text = "[up](../home.md) [beside](rake) [[rake]] ![p](img/p.png) [self](spade.md) [gone](not-there.md) [x](#here)\n"
    notes = IndexedWiki(tmp_path, {"tools/spade.md": text, "tools/rake.md": "# R\n", "home.md": "# H\n"}).sync()
    done = notes.pages.rename("tools/spade", "a/b/spade", ADA, "Tidy")
    assert done.updated == ()
    assert notes.pages.read("a/b/spade").content == (
        "[up](../../home.md) [beside](../../tools/rake) [[rake]] ![p](../../tools/img/p.png) [self](spade.md) "
        "[gone](../../tools/not-there.md) [x](#here)\n"
    )
    assert notes.repository.run_git("log", "-1", "--format=%s") == b"Tidy"
    assert "tools/spade.md" not in notes.list_files()
    notes.close()


def test_links_that_become_ambiguous_are_made_explicit(tmp_path: Path) -> None:
    pages: PageFiles = {"home.md": "[[rake]] and [[spade]]\n", "a/rake.md": "# R\n", "b/spade.md": "# S\n"}
    notes = IndexedWiki(tmp_path, pages).sync()
    assert notes.pages.rename("b/spade", "b/rake", ADA).updated == ("home",)
    assert notes.pages.read("home").content == "[[a/rake]] and [[b/rake]]\n"
    notes.close()


@pytest.mark.parametrize("stale", ["missing", "behind", "fresh"])
def test_links_are_updated_with_a_stale_index(tmp_path: Path, stale: str) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "[[spade]]\n", "spade.md": "# S\n", "x.md": "x\n"})
    if stale != "missing":
        notes.sync()
    if stale == "behind":
        notes.repository.commit({"late.md": "[s](spade.md)\n", "home.md": "now [[spade]]\n"})
    done = notes.pages.rename("spade", "tools/shovel", ADA)
    assert done.updated == (("home", "late") if stale == "behind" else ("home",))
    assert notes.pages.read("home").content.endswith("[[shovel]]\n")
    notes.close()


def test_a_rename_may_change_only_the_case(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "[h](Spade.md) [[spade]]\n", "Spade.md": "# S\n"}).sync()
    done = notes.pages.rename("spade", "spade", ADA)
    assert (done.file, done.updated) == ("spade.md", ())
    assert notes.list_files() == ["home.md", "spade.md"]
    notes.close()


def test_without_links_only_the_file_moves(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "[[spade]]\n", "spade.md": "[h](home.md)\n"}).sync()
    assert notes.pages.rename("spade", "a/b", ADA, update_links=False).updated == ()
    assert notes.pages.read("home").content == "[[spade]]\n"
    assert notes.pages.read("a/b").content == "[h](home.md)\n"
    notes.close()


def test_an_invalid_rename_changes_nothing(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "[[spade]]\n", "spade.md": "# S\n"}).sync()
    head = notes.repository.get_head()
    for taken in ("home", "HOME", "home.md"):
        with pytest.raises(PageExists):
            notes.pages.rename("spade", taken, ADA)
    for odd in ("spade", "spade.md", "", "../x", "a\0"):
        with pytest.raises(InvalidPage):
            notes.pages.rename("spade", odd, ADA)
    with pytest.raises(PageNotFound):
        notes.pages.rename("nowhere", "x", ADA)
    assert notes.repository.get_head() == head
    notes.close()


def test_bytes_that_are_not_text_are_unchanged(tmp_path: Path) -> None:
    old = "caf\xe9 [[spade]]\n".encode("latin-1")
    notes = IndexedWiki(tmp_path, {"home.md": old, "spade.md": "# S\n"}).sync()
    notes.pages.rename("spade", "shovel", ADA)
    assert notes.repository.run_git("cat-file", "blob", "HEAD:home.md") == b"caf\xe9 [[shovel]]"
    notes.close()


@pytest.mark.slow
def test_a_page_of_only_links_is_renamed_in_bounded_time(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "[[spade]]\n" * 12_000, "spade.md": "# S\n"}).sync()
    found = notes.pages.get_links("spade")
    assert len(found.linked_from) == 10_000
    assert "more than 10,000 links" in notes.pages.read("home").warnings[-1]
    began = time.process_time()
    notes.pages.rename("spade", "shovel", ADA)
    assert notes.pages.read("home").content == "[[shovel]]\n" * 12_000
    assert time.process_time() - began < 30
    notes.close()
