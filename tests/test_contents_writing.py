"""Pages of a wiki: writing them, each write a commit, and nothing lost to others who write."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from wiki_contents import ADA, COMPOST, HOME, SPADE, Notebook, Pages, unchanged

from wikiholt.contents import Contents
from wikiholt.errors import (
    Busy,
    InvalidPage,
    PageExists,
    PageNotFound,
    RevisionMismatch,
    TooLarge,
    WikiholtError,
)
from wikiholt.model import Author, FileEdit
from wikiholt.pages import Pipeline
from wikiholt.sources.git import GitSource


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notebook]:
    made = Notebook(tmp_path, {"home.md": HOME, "compost.md": COMPOST, "tools/spade.md": SPADE})
    yield made.sync()
    made.close()


def test_a_page_is_created_changed_and_deleted_by_commits(notes: Notebook) -> None:
    made = notes.contents.put("guides/mulch", "# Mulch\n", ADA, "Say how")
    assert (made.name, made.path, made.file, made.created, made.changed) == (
        "Mulch",
        "guides/mulch",
        "guides/mulch.md",
        True,
        True,
    )
    assert made.revision == notes.repository.head()
    assert notes.repository.git("log", "-1", "--format=%an %ae %s") == b"Ada ada@example.org Say how"
    again = notes.contents.put("Guides/Mulch.md", "# Mulch\n\nStraw.\n", ADA)
    assert (again.file, again.created) == ("guides/mulch.md", False)
    assert notes.file("guides/mulch.md") == "# Mulch\n\nStraw."
    assert notes.repository.git("log", "-1", "--format=%s") == b"Update guides/mulch"
    gone = notes.contents.delete("guides/mulch", ADA, expected=again.revision[:8])
    assert gone.revision == notes.repository.head()
    assert "guides/mulch.md" not in notes.files()


def test_the_first_page_of_an_empty_repository(tmp_path: Path) -> None:
    notes = Notebook(tmp_path)
    with pytest.raises(PageNotFound):
        notes.contents.read("home")
    with pytest.raises(PageNotFound):
        notes.contents.history("home")
    assert notes.contents.changelog() == []
    assert notes.contents.put("home", "# Home\n", ADA).created
    assert notes.contents.read("home").content == "# Home\n"


def test_content_that_is_there_already_makes_no_commit(notes: Notebook) -> None:
    head = notes.repository.head()
    same = notes.contents.put("home", HOME, ADA)
    assert (same.changed, same.created, same.revision) == (False, False, head)
    unchanged(notes, head)


def test_a_new_page_must_be_new(notes: Notebook) -> None:
    head = notes.repository.head()
    for path in ("home", "HOME", "home.md"):
        with pytest.raises(PageExists):
            notes.contents.put(path, "x", ADA, create_only=True)
    unchanged(notes, head)


def test_a_writer_who_read_something_else_is_told_the_current_revision(notes: Notebook) -> None:
    stale = notes.repository.head()
    newer = notes.contents.put("compost", "# Newer\n", ADA).revision
    writes = [
        lambda: notes.contents.put("compost", "mine", ADA, expected=stale),
        lambda: notes.contents.patch("compost", "Newer", "mine", ADA, expected=stale),
        lambda: notes.contents.append("compost", "mine", ADA, expected=stale),
        lambda: notes.contents.delete("compost", ADA, expected=stale),
        lambda: notes.contents.rename("compost", "heap", ADA, expected=stale),
    ]
    for write in writes:
        with pytest.raises(RevisionMismatch) as caught:
            write()
        assert caught.value.current == newer
    with pytest.raises(RevisionMismatch) as missing:
        notes.contents.put("nowhere", "x", ADA, expected=stale)
    assert missing.value.current is None
    for odd in ("abc", "HEAD", "z" * 40, ""):
        with pytest.raises(InvalidPage):
            notes.contents.put("compost", "x", ADA, expected=odd)
    unchanged(notes, newer)
    assert notes.contents.put("compost", "# Mine\n", ADA, expected=newer[:7].upper()).changed


def test_an_edit_elsewhere_does_not_stand_in_the_way(notes: Notebook) -> None:
    seen = notes.contents.read("compost").revision
    notes.contents.put("home", "# Another home\n", ADA)
    assert notes.contents.put("compost", "# Mine\n", ADA, expected=seen).changed


def test_patch_replaces_one_place(notes: Notebook) -> None:
    notes.contents.patch("compost", "Back to", "Go to", ADA)
    assert notes.contents.read("compost").content == COMPOST.replace("Back", "Go")
    head = notes.repository.head()
    for old in ("o", "not there", ""):
        with pytest.raises(InvalidPage) as caught:
            notes.contents.patch("compost", old, "x", ADA)
        assert caught.value.hint
    with pytest.raises(PageNotFound):
        notes.contents.patch("nowhere", "a", "b", ADA)
    unchanged(notes, head)


def test_patch_and_append_keep_the_ends_of_lines(tmp_path: Path) -> None:
    notes = Notebook(tmp_path, {"dos.md": b"One\r\nTwo\r\nThree"})
    notes.contents.patch("dos", "One\nTwo", "1\n2", ADA)
    notes.contents.append("dos", "Four", ADA)
    assert notes.contents.read("dos").content == "1\r\n2\r\nThree\r\nFour\r\n"


def test_append_adds_a_line(notes: Notebook) -> None:
    notes.contents.append("compost", "- turned", ADA)
    notes.contents.append("compost", "- turned again\n", ADA)
    assert notes.contents.read("compost").content == COMPOST + "- turned\n- turned again\n"
    with pytest.raises(InvalidPage):
        notes.contents.append("compost", "", ADA)
    with pytest.raises(PageNotFound):
        notes.contents.append("nowhere", "x", ADA)


@pytest.mark.parametrize(("content", "error"), [("a\0b", InvalidPage), ("\ud800", InvalidPage), ("é" * 600, TooLarge)])
def test_content_that_is_no_page_is_refused_before_anything_is_written(
    tmp_path: Path, content: str, error: type[WikiholtError]
) -> None:
    notes = Notebook(tmp_path, {"home.md": "# Home\n"}, pipeline=Pipeline(max_bytes=1024))
    head = notes.repository.head()
    objects = notes.repository.git("count-objects")
    with pytest.raises(error):
        notes.contents.put("home", content, ADA)
    with pytest.raises(error):
        notes.contents.put("new", content, ADA)
    with pytest.raises(error):
        notes.contents.patch("home", "Home", content, ADA)
    with pytest.raises(error):
        notes.contents.append("home", content, ADA)
    unchanged(notes, head)
    assert notes.repository.git("count-objects") == objects


@pytest.mark.parametrize("path", ["../out", "a/../../out", ".git/hooks/x", "a//b", "x/./y", "p" * 300])
def test_a_page_cannot_be_written_where_none_may_be(notes: Notebook, path: str) -> None:
    head = notes.repository.head()
    with pytest.raises(InvalidPage):
        notes.contents.put(path, "x", ADA)
    with pytest.raises(InvalidPage):
        notes.contents.rename("home", path, ADA)
    unchanged(notes, head)


def test_broken_frontmatter_is_the_authors_and_comes_back_as_a_warning(notes: Notebook) -> None:
    written = notes.contents.put("odd", "---\ntitle: [unclosed\nkey: value\n---\nText.\n", ADA)
    assert written.created
    assert "frontmatter" in written.warnings[0]
    assert notes.contents.read("odd").warnings == written.warnings


def test_writers_at_once_lose_nothing(notes: Notebook) -> None:
    notes.contents.put("log", "start\n", ADA)

    def add(number: int) -> None:
        notes.contents.append("log", f"line {number}", ADA)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(8)))
    lines = notes.contents.read("log").content.splitlines()
    assert sorted(lines[1:]) == [f"line {number}" for number in range(8)]


class Meddled(GitSource):
    """A repository in which somebody else commits just before the next write."""

    def __init__(self, notes: Notebook, files: Pages) -> None:
        super().__init__(notes.repository.path)
        self._repository = notes.repository
        self._files: Pages | None = files

    def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        files, self._files = self._files, None
        if files:
            self._repository.commit(files)
        return super().write(edits, author, message)


def meddled(notes: Notebook, files: Pages) -> Contents:
    return Contents(Meddled(notes, files), Pipeline(), notes.handle._index)


def test_an_edit_is_made_again_on_what_somebody_else_wrote_meanwhile(notes: Notebook) -> None:
    meddled(notes, {"compost.md": COMPOST + "Theirs.\n"}).append("compost", "Mine.", ADA)
    assert notes.contents.read("compost").content == COMPOST + "Theirs.\nMine.\n"
    with pytest.raises(InvalidPage):
        meddled(notes, {"compost.md": "# Gone\n"}).patch("compost", "Theirs", "Ours", ADA)
    assert notes.contents.read("compost").content == "# Gone\n"
    with pytest.raises(PageExists):
        meddled(notes, {"new.md": "theirs\n"}).put("new", "mine", ADA, create_only=True)
    assert notes.contents.read("new").content == "theirs\n"
    with pytest.raises(PageNotFound):
        meddled(notes, {"new.md": None}).delete("new", ADA)


def test_a_writer_who_named_a_revision_is_told_of_one_that_came_meanwhile(notes: Notebook) -> None:
    seen = notes.contents.read("compost").revision
    with pytest.raises(RevisionMismatch) as caught:
        meddled(notes, {"compost.md": "# Theirs\n"}).put("compost", "# Mine\n", ADA, expected=seen)
    assert caught.value.current == notes.repository.head()
    assert notes.contents.read("compost").content == "# Theirs\n"


def test_a_rename_follows_links_that_came_meanwhile(notes: Notebook) -> None:
    files: Pages = {"home.md": "Now [[compost]] twice: [[compost]].\n", "late.md": "[c](compost.md)\n"}
    done = meddled(notes, files).rename("compost", "heap", ADA)
    assert done.updated == ("home", "late")
    assert notes.contents.read("home").content == "Now [[heap]] twice: [[heap]].\n"
    assert notes.contents.read("late").content == "[c](heap.md)\n"


def test_others_who_never_stop_are_not_waited_for_for_ever(notes: Notebook) -> None:
    class Restless(GitSource):
        turns = 0

        def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
            self.turns += 1
            notes.repository.commit({"compost.md": f"# Turn {self.turns}\n"})
            return super().write(edits, author, message)

    busy = Contents(Restless(notes.repository.path), Pipeline(), notes.handle._index)
    with pytest.raises(Busy):
        busy.append("compost", "Mine.", ADA)
    assert "Mine." not in notes.contents.read("compost").content
