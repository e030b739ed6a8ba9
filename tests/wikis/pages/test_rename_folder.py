"""Renaming a page moves its sub-pages and attachments, and keeps every link to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles, assert_unchanged
from wikiholt.domain.page import PageRenameResult
from wikiholt.errors import InputTooLarge, InvalidPage, PageExists, RevisionMismatch
from wikiholt.index.pipeline import TextPipeline
from wikiholt.testing import FakeEmbedder
from wikiholt.text.dialect import MKDOCS, OBSIDIAN, OTTERWIKI
from wikiholt.wikis.pages import page_renamer

PNG = b"\x89PNG\r\n\x1a\n\0\xff"
TOOLS: PageFiles = {
    "home.md": "[t](tools.md) [s](tools/spade.md#care) ![p](tools/p.png) [[tools/spade]] ![[tools/p.png]] [[rake]]\n\n"
    "[ref] `![p](tools/p.png)` [gone](tools/gone.md)\n\n[ref]: /tools/deep/plan.pdf\n",
    "tools.md": "[s](tools/spade.md) ![p](tools/p.png) [home](home.md) [gone](tools/gone.md)\n",
    "tools/spade.md": "[up](../tools.md) [r](rake.md) ![p](p.png) ![d](deep/plan.pdf) [h](../home.md) "
    "[gone](gone.md)\n",
    "tools/rake.md": "# Rake\n",
    "tools/p.png": PNG,
    "tools/deep/plan.pdf": b"%PDF\0",
    "tools/.keep": "",
    "toolshed.md": "[t](tools.md)\n",
}


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[IndexedWiki]:
    notes = IndexedWiki(tmp_path, dict(TOOLS)).sync()
    yield notes
    notes.close()


def list_moves(result: PageRenameResult) -> list[tuple[str, str]]:
    return [(moved.old, moved.new) for moved in result.moved]


@pytest.mark.parametrize("indexed", [True, False])
def test_sub_pages_attachments_and_links_move_in_one_commit(tmp_path: Path, indexed: bool) -> None:
    wiki = IndexedWiki(tmp_path, dict(TOOLS))
    if indexed:
        wiki.sync()
    done = wiki.pages.rename("tools", "shed/gear", ADA)
    assert list_moves(done) == [
        ("tools/deep/plan.pdf", "shed/gear/deep/plan.pdf"),
        ("tools/p.png", "shed/gear/p.png"),
        ("tools/rake.md", "shed/gear/rake.md"),
        ("tools/spade.md", "shed/gear/spade.md"),
    ]
    assert done.updated == ("home", "toolshed")
    assert wiki.repository.run_git("rev-list", "--count", "HEAD") == b"2", "one commit"
    assert wiki.list_files() == [
        "home.md",
        "shed/gear.md",
        "shed/gear/deep/plan.pdf",
        "shed/gear/p.png",
        "shed/gear/rake.md",
        "shed/gear/spade.md",
        "tools/.keep",
        "toolshed.md",
    ]
    assert wiki.read_file("home.md") == (
        "[t](shed/gear.md) [s](shed/gear/spade.md#care) ![p](shed/gear/p.png) [[shed/gear/spade]] "
        "![[shed/gear/p.png]] [[rake]]\n\n[ref] `![p](tools/p.png)` [gone](tools/gone.md)\n\n"
        "[ref]: /shed/gear/deep/plan.pdf"
    )
    assert wiki.read_file("shed/gear.md") == (
        "[s](gear/spade.md) ![p](gear/p.png) [home](../home.md) [gone](gear/gone.md)"
    )
    assert wiki.read_file("shed/gear/spade.md") == (
        "[up](../gear.md) [r](rake.md) ![p](p.png) ![d](deep/plan.pdf) [h](../../home.md) [gone](gone.md)"
    )
    assert [file.filename for file in wiki.pages.list_attachments("shed/gear").files] == ["p.png"]
    assert wiki.pages.read_attachment("shed/gear", "p.png").data == PNG
    assert wiki.repository.run_git("status", "--porcelain") == b"", "the work tree has the new files"
    wiki.close()


def test_only_the_page_moves_on_request(wiki: IndexedWiki) -> None:
    done = wiki.pages.rename("tools", "shed/gear", ADA, move_subpages=False)
    assert done.moved == ()
    assert {"shed/gear.md", "tools/spade.md", "tools/p.png"} <= set(wiki.list_files())
    assert "[s](../tools/spade.md) ![p](../tools/p.png)" in wiki.read_file("shed/gear.md")
    assert "[up](../shed/gear.md)" in wiki.read_file("tools/spade.md")


def test_without_link_updates_the_files_move_unchanged(wiki: IndexedWiki) -> None:
    done = wiki.pages.rename("tools", "gear", ADA, update_links=False)
    assert len(done.moved) == 4
    assert done.updated == ()
    assert wiki.read_file("gear/spade.md") == str(TOOLS["tools/spade.md"]).strip()
    assert wiki.read_file("home.md") == str(TOOLS["home.md"]).strip()


def test_a_conflict_is_an_error_and_changes_nothing(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    wiki.repository.commit({"gear/rake.md": "taken\n", "box/P.PNG": b"x", "bag/p.png": b"x"})
    wiki.repository.run_git("reset", "--hard", "--quiet")
    head = wiki.repository.get_head()
    for new, error in (
        ("gear", PageExists),
        ("bag", PageExists),
        ("box", InvalidPage),
        ("tools/tools", InvalidPage),
        ("Tools", InvalidPage),
        ("toolshed", PageExists),
    ):
        with pytest.raises(error):
            wiki.pages.rename("tools", new, ADA)
    with pytest.raises(RevisionMismatch):
        wiki.pages.rename("tools", "free", ADA, expected="1234567")
    monkeypatch.setattr(page_renamer, "_MAX_MOVED_FILES", 3)
    with pytest.raises(InputTooLarge):
        wiki.pages.rename("tools", "free", ADA)
    assert_unchanged(wiki, head)
    assert wiki.pages.rename("tools", "Tools", ADA, move_subpages=False).file == "Tools.md"


def test_a_file_that_cannot_move_stops_the_rename(wiki: IndexedWiki) -> None:
    (wiki.repository.path / "tools/link.png").symlink_to("p.png")
    wiki.repository.run_git("add", "-A")
    wiki.repository.run_git("commit", "--quiet", "-m", "Link")
    head = wiki.repository.get_head()
    with pytest.raises(InvalidPage, match=r"tools/link\.png cannot move"):
        wiki.pages.rename("tools", "gear", ADA)
    assert_unchanged(wiki, head)


def test_a_page_without_a_folder_may_move_into_its_own_name(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, {"tea.md": "# Tea\n", "home.md": "[t](tea.md)\n"}).sync()
    assert wiki.pages.rename("tea", "tea/green", ADA).moved == ()
    assert wiki.read_file("home.md") == "[t](tea/green.md)"
    wiki.close()


def test_a_file_keeps_its_mode_and_large_attachments_move(tmp_path: Path) -> None:
    pipeline = TextPipeline(max_bytes=1000)
    wiki = IndexedWiki(tmp_path, {"a.md": "# A\n", "a/run.sh": "true\n", "a/big.bin": b"\0" * 5000}, pipeline=pipeline)
    (wiki.repository.path / "a/run.sh").chmod(0o755)
    wiki.repository.run_git("add", "-A")
    wiki.repository.run_git("commit", "--quiet", "-m", "Mode")
    wiki.pages.rename("a", "b", ADA)
    assert wiki.repository.run_git("ls-tree", "HEAD", "b/run.sh").startswith(b"100755 ")
    assert (wiki.repository.path / "b/big.bin").stat().st_size == 5000
    assert not (wiki.repository.path / "a").exists()
    wiki.close()


def test_a_folder_page_moves_its_folder(tmp_path: Path) -> None:
    pages: PageFiles = {
        "home.md": "[g](guides/index.md) [s](guides/setup.md)\n",
        "guides/index.md": "[s](setup.md) ![p](p.png)\n",
        "guides/setup.md": "[i](index.md)\n",
        "guides/p.png": PNG,
    }
    wiki = IndexedWiki(tmp_path, pages, pipeline=TextPipeline(dialect=MKDOCS)).sync()
    done = wiki.pages.rename("guides/index", "docs/index", ADA)
    assert list_moves(done) == [("guides/p.png", "docs/p.png"), ("guides/setup.md", "docs/setup.md")]
    assert wiki.read_file("home.md") == "[g](docs/index.md) [s](docs/setup.md)"
    assert wiki.read_file("docs/index.md") == "[s](setup.md) ![p](p.png)"
    assert wiki.pages.rename("docs/index", "docs/overview", ADA).moved == (), "the page has another kind of name now"
    assert wiki.pages.rename("docs/overview", "docs/README", ADA).moved == ()
    wiki.repository.commit({"news.md": "# News\n", "news/may.md": "[n](../news.md)\n"})
    assert wiki.pages.rename("news", "news/index", ADA).moved == (), "the folder of the page stays the same"
    assert wiki.read_file("news/may.md") == "[n](index.md)"
    wiki.close()


def test_otterwiki_links_to_sub_pages_and_attachments_follow(tmp_path: Path) -> None:
    pages: PageFiles = {
        "home.md": "[[Tools/Spade]] ![p](/Tools/Pic.PNG) [q](/tools/Pic.PNG)\n",
        "tools.md": "![p](/Tools/Pic.PNG)\n",
        "tools/spade.md": "[[Tools]]\n",
        "tools/Pic.PNG": PNG,
        "tools/index.md": "# I\n",
    }
    wiki = IndexedWiki(tmp_path, pages, pipeline=TextPipeline(dialect=OTTERWIKI)).sync()
    wiki.pages.rename("tools", "shed/gear", ADA, to_link_path=str.title)
    assert wiki.read_file("home.md") == ("[[Shed/Gear/Spade]] ![p](/Shed/Gear/Pic.PNG) [q](/Shed/Gear/Pic.PNG)")
    assert wiki.read_file("shed/gear.md") == "![p](/Shed/Gear/Pic.PNG)"
    assert wiki.read_file("shed/gear/spade.md") == "[[Shed/Gear]]"
    assert wiki.pages.rename("shed/gear/index", "other/index", ADA).moved == (), "Otterwiki has no folder pages"
    wiki.close()


def test_obsidian_links_by_name_stay(tmp_path: Path) -> None:
    pages: PageFiles = {
        "home.md": "[[Spade]] ![[p.png]] [[Tools/Spade|x]] ![[Tools/p.png|300]]\n",
        "Tools.md": "[[Spade]]\n",
        "Tools/Spade.md": "![[p.png]]\n",
        "Tools/p.png": PNG,
    }
    wiki = IndexedWiki(tmp_path, pages, pipeline=TextPipeline(dialect=OBSIDIAN)).sync()
    wiki.pages.rename("Tools", "Shed/Gear", ADA)
    assert wiki.read_file("home.md") == ("[[Spade]] ![[p.png]] [[Shed/Gear/Spade|x]] ![[Shed/Gear/p.png|300]]")
    assert wiki.read_file("Shed/Gear/Spade.md") == "![[p.png]]"
    wiki.close()


def test_a_rename_of_a_folder_embeds_nothing(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    wiki = IndexedWiki(tmp_path, dict(TOOLS), embedder=lambda: embedder)
    wiki.repository.commit({"home.md": "[spade](tools/spade.md) ![p](tools/p.png)\n"})
    wiki.sync()
    wiki.pages.rename("tools", "gear", ADA)
    embedded = len(embedder.embedded)
    report = wiki.handle.sync()
    assert len(embedder.embedded) == embedded
    assert (report.moved, report.chunks_embedded) == (1, 0), "two pages have new links, and the same text"
    wiki.close()
