"""Writing pages: every write is a commit, and concurrent writes are not lost."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, COMPOST, HOME, IndexedWiki, PageFiles, assert_unchanged
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import (
    Busy,
    InputTooLarge,
    InvalidPage,
    PageExists,
    PageNotFound,
    RevisionMismatch,
    WikiholtError,
)
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.wikis.pages.wiki_pages import WikiPages


def test_a_page_is_created_changed_and_deleted_by_commits(notes: IndexedWiki) -> None:
    made = notes.pages.write("guides/mulch", "# Mulch\n", ADA, "Say how")
    assert (made.name, made.path, made.file, made.created, made.changed) == (
        "Mulch",
        "guides/mulch",
        "guides/mulch.md",
        True,
        True,
    )
    assert made.revision == notes.repository.get_head()
    assert notes.repository.run_git("log", "-1", "--format=%an %ae %s") == b"Ada ada@example.org Say how"
    again = notes.pages.write("Guides/Mulch.md", "# Mulch\n\nStraw.\n", ADA)
    assert (again.file, again.created) == ("guides/mulch.md", False)
    assert notes.read_file("guides/mulch.md") == "# Mulch\n\nStraw."
    assert notes.repository.run_git("log", "-1", "--format=%s") == b"Update guides/mulch"
    gone = notes.pages.delete("guides/mulch", ADA, expected=again.revision[:8])
    assert gone.revision == notes.repository.get_head()
    assert "guides/mulch.md" not in notes.list_files()


def test_the_first_page_of_an_empty_repository(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path)
    with pytest.raises(PageNotFound):
        notes.pages.read("home")
    with pytest.raises(PageNotFound):
        notes.pages.read_history("home")
    assert notes.pages.read_changelog(50) == []
    assert notes.pages.write("home", "# Home\n", ADA).created
    assert notes.pages.read("home").content == "# Home\n"


def test_unchanged_content_makes_no_commit(notes: IndexedWiki) -> None:
    head = notes.repository.get_head()
    same = notes.pages.write("home", HOME, ADA)
    assert (same.changed, same.created, same.revision) == (False, False, head)
    assert_unchanged(notes, head)


def test_a_new_page_must_be_new(notes: IndexedWiki) -> None:
    head = notes.repository.get_head()
    for path in ("home", "HOME", "home.md"):
        with pytest.raises(PageExists):
            notes.pages.write(path, "x", ADA, create_only=True)
    assert_unchanged(notes, head)


def test_a_write_with_another_revision_is_refused_with_the_current_one(notes: IndexedWiki) -> None:
    stale = notes.repository.get_head()
    newer = notes.pages.write("compost", "# Newer\n", ADA).revision
    writes = [
        lambda: notes.pages.write("compost", "mine", ADA, expected=stale),
        lambda: notes.pages.replace_text("compost", "Newer", "mine", ADA, expected=stale),
        lambda: notes.pages.append("compost", "mine", ADA, expected=stale),
        lambda: notes.pages.delete("compost", ADA, expected=stale),
        lambda: notes.pages.rename("compost", "heap", ADA, expected=stale),
    ]
    for write in writes:
        with pytest.raises(RevisionMismatch) as caught:
            write()
        assert caught.value.current == newer
    with pytest.raises(RevisionMismatch) as missing:
        notes.pages.write("nowhere", "x", ADA, expected=stale)
    assert missing.value.current is None
    for short in ("abc", "HEAD", ""):
        with pytest.raises(InvalidPage):
            notes.pages.write("compost", "x", ADA, expected=short)
    for odd in ("z" * 40, "/" * 7):
        with pytest.raises(RevisionMismatch):
            notes.pages.write("compost", "x", ADA, expected=odd)
    assert_unchanged(notes, newer)
    assert notes.pages.write("compost", "# Mine\n", ADA, expected=newer[:7].upper()).changed


def test_an_edit_of_another_page_is_no_conflict(notes: IndexedWiki) -> None:
    seen = notes.pages.read("compost").revision
    notes.pages.write("home", "# Another home\n", ADA)
    assert notes.pages.write("compost", "# Mine\n", ADA, expected=seen).changed


def test_patch_replaces_one_place(notes: IndexedWiki) -> None:
    notes.pages.replace_text("compost", "Back to", "Go to", ADA)
    assert notes.pages.read("compost").content == COMPOST.replace("Back", "Go")
    head = notes.repository.get_head()
    for old in ("o", "not there", ""):
        with pytest.raises(InvalidPage) as caught:
            notes.pages.replace_text("compost", old, "x", ADA)
        assert caught.value.hint
    with pytest.raises(PageNotFound):
        notes.pages.replace_text("nowhere", "a", "b", ADA)
    assert_unchanged(notes, head)


def test_patch_and_append_keep_the_ends_of_lines(tmp_path: Path) -> None:
    notes = IndexedWiki(tmp_path, {"dos.md": b"One\r\nTwo\r\nThree"})
    notes.pages.replace_text("dos", "One\nTwo", "1\n2", ADA)
    notes.pages.append("dos", "Four", ADA)
    assert notes.pages.read("dos").content == "1\r\n2\r\nThree\r\nFour\r\n"


def test_append_adds_a_line(notes: IndexedWiki) -> None:
    notes.pages.append("compost", "- turned", ADA)
    notes.pages.append("compost", "- turned again\n", ADA)
    assert notes.pages.read("compost").content == COMPOST + "- turned\n- turned again\n"
    with pytest.raises(InvalidPage):
        notes.pages.append("compost", "", ADA)
    with pytest.raises(PageNotFound):
        notes.pages.append("nowhere", "x", ADA)


@pytest.mark.parametrize(
    ("content", "error"), [("a\0b", InvalidPage), ("\ud800", InvalidPage), ("é" * 600, InputTooLarge)]
)
def test_invalid_content_is_refused_before_anything_is_written(
    tmp_path: Path, content: str, error: type[WikiholtError]
) -> None:
    notes = IndexedWiki(tmp_path, {"home.md": "# Home\n"}, pipeline=TextPipeline(max_bytes=1024))
    head = notes.repository.get_head()
    objects = notes.repository.run_git("count-objects")
    with pytest.raises(error):
        notes.pages.write("home", content, ADA)
    with pytest.raises(error):
        notes.pages.write("new", content, ADA)
    with pytest.raises(error):
        notes.pages.replace_text("home", "Home", content, ADA)
    with pytest.raises(error):
        notes.pages.append("home", content, ADA)
    assert_unchanged(notes, head)
    assert notes.repository.run_git("count-objects") == objects


@pytest.mark.parametrize("path", ["../out", "a/../../out", ".git/hooks/x", "a//b", "x/./y", "p" * 300])
def test_a_page_cannot_be_written_at_an_invalid_path(notes: IndexedWiki, path: str) -> None:
    head = notes.repository.get_head()
    with pytest.raises(InvalidPage):
        notes.pages.write(path, "x", ADA)
    with pytest.raises(InvalidPage):
        notes.pages.rename("home", path, ADA)
    assert_unchanged(notes, head)


def test_broken_frontmatter_is_stored_with_a_warning(notes: IndexedWiki) -> None:
    written = notes.pages.write("odd", "---\ntitle: [unclosed\nkey: value\n---\nText.\n", ADA)
    assert written.created
    assert "frontmatter" in written.warnings[0]
    assert notes.pages.read("odd").warnings == written.warnings


def test_concurrent_writers_lose_nothing(notes: IndexedWiki) -> None:
    notes.pages.write("log", "start\n", ADA)

    def add(number: int) -> None:
        notes.pages.append("log", f"line {number}", ADA)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(8)))
    lines = notes.pages.read("log").content.splitlines()
    assert sorted(lines[1:]) == [f"line {number}" for number in range(8)]


class ConcurrentlyEditedSource(GitSource):
    """A repository in which another writer commits just before the next write."""

    def __init__(self, notes: IndexedWiki, files: PageFiles) -> None:
        super().__init__(notes.repository.path)
        self._repository = notes.repository
        self._files: PageFiles | None = files

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        files, self._files = self._files, None
        if files:
            self._repository.commit(files)
        return super().commit(edits, author, message)


def make_edited_pages(notes: IndexedWiki, files: PageFiles) -> WikiPages:
    return WikiPages(ConcurrentlyEditedSource(notes, files), TextPipeline(), notes.handle._open_index)


def test_an_edit_is_repeated_on_the_newer_content_of_another_writer(notes: IndexedWiki) -> None:
    make_edited_pages(notes, {"compost.md": COMPOST + "Theirs.\n"}).append("compost", "Mine.", ADA)
    assert notes.pages.read("compost").content == COMPOST + "Theirs.\nMine.\n"
    with pytest.raises(InvalidPage):
        make_edited_pages(notes, {"compost.md": "# Gone\n"}).replace_text("compost", "Theirs", "Ours", ADA)
    assert notes.pages.read("compost").content == "# Gone\n"
    with pytest.raises(PageExists):
        make_edited_pages(notes, {"new.md": "theirs\n"}).write("new", "mine", ADA, create_only=True)
    assert notes.pages.read("new").content == "theirs\n"
    with pytest.raises(PageNotFound):
        make_edited_pages(notes, {"new.md": None}).delete("new", ADA)


def test_a_write_with_a_revision_is_refused_after_a_concurrent_commit(notes: IndexedWiki) -> None:
    seen = notes.pages.read("compost").revision
    with pytest.raises(RevisionMismatch) as caught:
        make_edited_pages(notes, {"compost.md": "# Theirs\n"}).write("compost", "# Mine\n", ADA, expected=seen)
    assert caught.value.current == notes.repository.get_head()
    assert notes.pages.read("compost").content == "# Theirs\n"


def test_a_rename_updates_links_of_a_concurrent_commit(notes: IndexedWiki) -> None:
    files: PageFiles = {"home.md": "Now [[compost]] twice: [[compost]].\n", "late.md": "[c](compost.md)\n"}
    done = make_edited_pages(notes, files).rename("compost", "heap", ADA)
    assert done.updated == ("home", "late")
    assert notes.pages.read("home").content == "Now [[heap]] twice: [[heap]].\n"
    assert notes.pages.read("late").content == "[c](heap.md)\n"


def test_retries_against_other_writers_are_limited(notes: IndexedWiki) -> None:
    class ConstantlyEditedSource(GitSource):
        turns = 0

        def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
            self.turns += 1
            notes.repository.commit({"compost.md": f"# Turn {self.turns}\n"})
            return super().commit(edits, author, message)

    busy = WikiPages(ConstantlyEditedSource(notes.repository.path), TextPipeline(), notes.handle._open_index)
    with pytest.raises(Busy):
        busy.append("compost", "Mine.", ADA)
    assert "Mine." not in notes.pages.read("compost").content
