"""The page list before the first sync has ended: complete, from git."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.search import PageFilter
from wikiholt.errors import IndexMissing
from wikiholt.index.sync import SyncProgress

PAGES: PageFiles = {
    "home.md": "---\ntags: [Start]\ncategory: Guide\n---\n# Home\n\nTwo words.\n",
    "tools/rake.md": "# Rake\n",
    "tools/spade.md": "---\ncategory: guide\n---\n# Spade\n",
}


def test_the_page_list_is_complete_before_anything_is_indexed(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, PAGES)
    listed = wiki.pages.list()
    assert [page.path for page in listed.pages] == ["home", "tools/rake", "tools/spade"]
    assert listed.indexed_revision is None
    assert wiki.pages.list(limit=1, offset=1).pages[0].name == "Rake"
    filters = {
        "tools/": PageFilter(path_prefix="tools/"),
        "tool": PageFilter(path_prefix="tool"),
        "guide": PageFilter(categories=("GUIDE",)),
        "start": PageFilter(tags=("start",)),
        "later": PageFilter(updated_since=datetime(2999, 1, 1, tzinfo=UTC)),
    }
    found = {name: [page.path for page in wiki.pages.list(where).pages] for name, where in filters.items()}
    assert found == {
        "tools/": ["tools/rake", "tools/spade"],
        "tool": [],
        "guide": ["home", "tools/spade"],
        "start": ["home"],
        "later": [],
    }
    before = {page.path: (page.name, page.category, page.tags, page.words) for page in listed.pages}
    with pytest.raises(IndexMissing):
        wiki.pages.list(PageFilter(titles=("rake",)))
    with pytest.raises(IndexMissing):
        wiki.pages.get_links("home")
    wiki.sync()
    after = {page.path: (page.name, page.category, page.tags, page.words) for page in wiki.pages.list().pages}
    assert before == after
    wiki.close()


def test_the_page_list_is_complete_while_pages_are_indexed_for_the_first_time(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, {f"page-{number:03}.md": "See [[page-000]].\n" for number in range(120)})
    seen: list[tuple[int, int]] = []

    def look(progress: SyncProgress) -> None:
        seen.append((progress.pages_done, wiki.pages.list().total))
        if progress.pages_done < 120:
            with pytest.raises(IndexMissing):
                wiki.pages.get_links("page-000")

    wiki.handle.sync(look)
    assert {total for _, total in seen} == {120}
    assert any(0 < done < 120 for done, _ in seen), "some pages were indexed, and others were not"
    assert len(wiki.pages.get_links("page-000").linked_from) == 119
    wiki.close()
