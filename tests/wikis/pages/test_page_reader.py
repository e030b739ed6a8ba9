"""Pages of a wiki: reading and listing them."""

import unicodedata
from pathlib import Path
from typing import Literal

import pytest

from tests.support.indexed_wiki import ADA, COMPOST, HOME, SPADE, IndexedWiki, assert_unchanged
from wikiholt.domain.search import PageFilter
from wikiholt.errors import (
    InputTooLarge,
    InvalidPage,
    InvalidQuery,
    PageNotFound,
    WikiholtError,
)
from wikiholt.index.pipeline import TextPipeline

# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def test_a_page_is_read_and_edited_although_its_history_is_damaged(notes: IndexedWiki) -> None:
    lost = notes.repository.get_head()
    notes.repository.commit({"compost.md": COMPOST + "More.\n"})
    notes.repository.get_loose_object_file(lost).unlink()
    page = notes.pages.read("home")
    assert (page.content, page.last_commit, page.revision) == (HOME, None, notes.repository.get_head())
    notes.pages.write("home", HOME + "Edited.\n", ADA, expected=page.revision)
    assert notes.pages.read("home").content == HOME + "Edited.\n"


def test_a_page_is_read_with_its_revision_frontmatter_and_links(notes: IndexedWiki) -> None:
    first = notes.repository.get_head()
    notes.repository.commit({"compost.md": COMPOST + "More.\n"})
    page = notes.pages.read("home")
    assert (page.name, page.path, page.file, page.content) == ("Home", "home", "home.md", HOME)
    assert page.revision == first
    assert page.read_at == notes.repository.get_head()
    assert page.last_commit is not None
    assert page.last_commit.author == "Ada"
    assert page.metadata.tags == ("start", "Garden")
    assert page.frontmatter == {"title": "Home", "tags": ["start", "Garden"], "category": "Guide"}
    assert (page.words, page.length) == (5, len(HOME))
    assert [(link.path, link.name, link.text, link.anchor, link.line) for link in page.links_to] == [
        ("compost", "Compost", "compost", "", 6),
        ("tools/spade", "Spade", "tools", "care", 6),
    ]
    assert [(link.path, link.name) for link in page.linked_from] == [("compost", "Compost")]
    assert page.notes == ()


def test_a_page_is_read_at_an_old_revision(notes: IndexedWiki) -> None:
    old = notes.repository.get_head()
    notes.repository.commit({"compost.md": "# Heap\n"})
    assert notes.pages.read("compost").content == "# Heap\n"
    assert notes.pages.read("compost", old[:10]).content == COMPOST
    with pytest.raises(WikiholtError):
        notes.pages.read("compost", "0123456789")


def test_reading_needs_no_index_and_names_unknown_fields(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": HOME, "compost.md": COMPOST})
    page = notes.pages.read("HOME")
    assert page.content == HOME
    assert (page.links_to, page.linked_from) == ((), ())
    assert "links are unavailable" in page.notes[0]
    assert [page.path for page in notes.pages.list().pages] == ["compost", "home"]


@pytest.mark.parametrize("path", ["tools/spade", "tools/spade.md", "/tools/spade/", "Tools/SPADE", "TOOLS/spade.MD"])
def test_a_path_is_exact_or_differs_in_case_alone(notes: IndexedWiki, path: str) -> None:
    assert notes.pages.read(path).path == "tools/spade"


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(("form", "other"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_path_matches_in_any_unicode_normalization(
    tmp_path: Path, form: Literal["NFC", "NFD"], other: Literal["NFC", "NFD"], indexed: bool
) -> None:
    path = unicodedata.normalize(form, "Küche/Crème")
    notes = IndexedWiki(tmp_path, {f"{path}.md": "# Crème\n"})
    if indexed:
        notes.sync()
    for typed in (path, unicodedata.normalize(other, path), unicodedata.normalize(other, path.upper())):
        assert notes.pages.read(typed).path == path


@pytest.mark.parametrize("indexed", [True, False])
def test_the_exact_page_wins_and_an_ambiguous_name_is_not_found(notes: IndexedWiki, indexed: bool) -> None:
    notes.repository.commit({"Home.md": "# Other\n"})
    if indexed:
        notes.sync()
    assert notes.pages.read("home").name == "Home"
    assert notes.pages.read("Home").name == "Other"
    with pytest.raises(PageNotFound):
        notes.pages.read("HOME")


@pytest.mark.parametrize("path", ["nowhere", "tools", "home.md/x", "../home", "tools/../home", ".git/config", "spade"])
def test_a_file_that_is_not_a_page_is_not_found(notes: IndexedWiki, path: str) -> None:
    with pytest.raises(PageNotFound) as caught:
        notes.pages.read(path)
    assert caught.value.hint


def test_a_name_with_a_line_end_may_be_read_and_not_written(notes: IndexedWiki) -> None:
    with pytest.raises(PageNotFound):
        notes.pages.read("a\nb")
    with pytest.raises(InvalidPage):
        notes.pages.write("a\nb", "text", ADA)
    notes.repository.commit({"a\nb.md": "found"})
    assert notes.pages.read("a\nb").content == "found"


@pytest.mark.parametrize("path", ["", "/", "a\0b", "x" * 2000, "\ud800"])
def test_an_invalid_path_is_refused(notes: IndexedWiki, path: str) -> None:
    head = notes.repository.get_head()
    with pytest.raises(InvalidPage):
        notes.pages.read(path)
    with pytest.raises(InvalidPage):
        notes.pages.write(path, "text", ADA)
    assert_unchanged(notes, head)


def test_unreadable_pages_give_the_reason(tmp_path: Path) -> None:
    notes = IndexedWiki(
        tmp_path,
        {"big.md": "x" * 2000, "old.md": "caf\xe9".encode("latin-1"), "b.md": bytes(range(256)) * 4},
        pipeline=TextPipeline(max_bytes=1024),
    )
    with pytest.raises(InputTooLarge):
        notes.pages.read("big")
    with pytest.raises(InvalidPage):
        notes.pages.read("b")
    page = notes.pages.read("old")
    assert page.content == "café"
    assert page.warnings


def test_line_endings_and_byte_order_marks_are_returned_as_in_git(tmp_path: Path) -> None:
    text = "\ufeff---\r\ntitle: Dos\r\n---\r\nOne\r\nTwo"
    notes = IndexedWiki(tmp_path, {"dos.md": text.encode()})
    page = notes.pages.read("dos")
    assert page.content == text
    assert page.frontmatter == {"title": "Dos"}
    assert not notes.pages.write("dos", page.content, ADA).changed


# ── lists ────────────────────────────────────────────────────────────────────────────────────────


def test_pages_are_listed_by_path_filtered_and_in_parts(notes: IndexedWiki) -> None:
    whole = notes.pages.list()
    assert [page.path for page in whole.pages] == ["compost", "home", "tools/spade"]
    assert whole.indexed_revision == notes.repository.get_head()
    spade = whole.pages[2]
    assert (spade.name, spade.file, spade.category, spade.tags) == ("Spade", "tools/spade.md", "guide", ("garden",))
    assert spade.words == 9
    assert spade.length == len(SPADE)
    part = notes.pages.list(PageFilter(tags=("GARDEN",)), limit=1, offset=1)
    assert (part.total, [page.path for page in part.pages]) == (2, ["tools/spade"])
    assert notes.pages.list(PageFilter(path_prefix="tools")).total == 1
    with pytest.raises(InvalidQuery):
        notes.pages.list(limit=-1)
    with pytest.raises(InvalidQuery):
        notes.pages.list(PageFilter(tags=("t",) * 51))


def test_facets_count_what_there_is_to_filter_by(notes: IndexedWiki) -> None:
    facets = notes.pages.get_facets()
    assert facets.pages == 3
    assert [(facet.value, facet.count) for facet in facets.categories] == [("Guide", 2)]
    assert [(facet.value, facet.count) for facet in facets.tags] == [("Garden", 2), ("start", 1)]
    assert [(facet.value, facet.count) for facet in facets.folders] == [("tools", 1)]
    below = notes.pages.get_facets(PageFilter(path_prefix="tools"))
    assert (below.pages, [facet.value for facet in below.tags]) == (1, ["garden"])


def test_history_and_changelog(notes: IndexedWiki) -> None:
    notes.pages.write("compost", "# Heap\n", ADA, "Shorter")
    notes.pages.delete("tools/spade", ADA)
    assert [commit.message for commit in notes.pages.read_history("COMPOST")] == ["Shorter", "Write"]
    assert [commit.message for commit in notes.pages.read_history("tools/spade")] == ["Delete tools/spade", "Write"]
    log = notes.pages.read_changelog(2)
    assert [(entry.commit.message, entry.files) for entry in log] == [
        ("Delete tools/spade", ("tools/spade.md",)),
        ("Shorter", ("compost.md",)),
    ]
    assert notes.pages.read_changelog(10, skip=2)[0].commit.message == "Write"
    with pytest.raises(PageNotFound):
        notes.pages.read_history("never")
