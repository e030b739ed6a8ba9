"""Whatever becomes of the name of the published generation or of a restoring, what is good goes on answering."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ward import Ward, cut, until

from wikiholt.batches import Pause, Paused
from wikiholt.errors import ModelUnproven, NoPages, NothingIndexed
from wikiholt.model import Condition, Mode, Occasion
from wikiholt.ports import Store
from wikiholt.search import Request


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    made = Ward(tmp_path, pages=20)
    yield made
    made.close()


def store(ward: Ward) -> Store:
    return ward.service.workshop.store


def two_generations(ward: Ward) -> Path:
    """Publish generation 2 and leave generation 1 unswept, as a process killed in between does."""
    kept = ward.place / "g000001.sqlite"
    shutil.copy(ward.index_file, kept)
    ward.handle.reindex()
    ward.service.close()
    shutil.move(kept, ward.directory / kept.name)
    ward.service = ward.opened()
    return ward.directory / "g000002.sqlite"


def first_hit(ward: Ward) -> str:
    return ward.handle.search(Request("unique7", mode=Mode.KEYWORD)).hits[0].path


@pytest.mark.parametrize("lost", ["the file that CURRENT names", "CURRENT names another", "CURRENT is damaged"])
def test_where_the_name_of_the_published_generation_leads_nowhere_the_newest_whole_one_answers(
    ward: Ward, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = two_generations(ward)
    answers = 2
    if lost == "the file that CURRENT names":
        file.unlink()
        answers = 1
    else:
        (ward.directory / "CURRENT").write_bytes(b"77\n" if "another" in lost else b"\xff\x00")
    assert first_hit(ward) == "page-7", "before anything is mended"
    assert store(ward).published(ward.handle.wiki.id) == answers
    ward.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        ward.handle.sync()
    assert f"the newest that is whole ({answers}) does" in caplog.text
    assert not ward.handle.status().aside, "nothing good is put aside"
    assert ward.embedder.embedded == []
    assert (ward.directory / "CURRENT").read_text() == f"{answers}\n"
    ward.right()


def test_a_damaged_generation_gives_way_to_a_whole_one_beside_it(ward: Ward, caplog: pytest.LogCaptureFixture) -> None:
    cut(two_generations(ward))
    with caplog.at_level(logging.WARNING):
        ward.handle.sync()
    story = [record.getMessage() for record in caplog.records if record.name == "wikiholt.healing"]
    assert ["set aside" in story[0], "generation 1, which is whole" in story[1], "stands for HEAD" in story[2]] == [
        True,
        True,
        True,
    ]
    (aside,) = ward.handle.status().aside
    assert [file.name for file in (ward.directory / aside).glob("*.sqlite")] == ["g000002.sqlite"]
    ward.right()


def test_an_unfinished_generation_is_never_taken_for_the_one_that_was_lost(ward: Ward) -> None:
    ward.embedder.gate = None
    with pytest.raises(Paused):
        ward.handle.reindex(pause=lambda: Pause.AT_ONCE)
    assert (ward.directory / "g000002.sqlite").exists()
    (ward.directory / "g000001.sqlite").unlink()
    ward.reopen()
    ward.handle.sync()
    (aside,) = ward.handle.status().aside
    assert (ward.directory / aside / "g000002.sqlite").exists()
    ward.right()


class Killed(BaseException):
    """What SIGKILL is to the code: nothing runs after it."""


def killed_restore(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(store(ward)), "publish", die)
        with pytest.raises(Killed):
            ward.handle.restore()
    ward.reopen()


def test_a_restoring_that_was_killed_before_it_was_published_is_cleaned_up_by_the_next_writer(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    killed_restore(ward, monkeypatch)
    assert (ward.directory / "g000002.sqlite").exists()
    ward.handle.sync()
    assert [file.name for file in ward.directory.glob("g*.sqlite*") if "-" not in file.name] == ["g000001.sqlite"]
    ward.right()


def test_a_reindexing_never_goes_on_with_what_a_killed_restoring_left(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    killed_restore(ward, monkeypatch)
    ward.embedder.embedded.clear()
    report = ward.handle.reindex()
    assert report.chunks_embedded == len(ward.embedder.embedded) == 20, "every vector is made anew"
    ward.right()


def test_the_restoring_of_a_lost_index_that_was_killed_is_finished_by_the_next_sync(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    shutil.rmtree(ward.directory)
    ward.reopen()
    killed_restore(ward, monkeypatch)
    ward.embedder.embedded.clear()
    ward.handle.sync()
    assert ward.embedder.embedded == []
    assert not list(ward.directory.glob("*.from"))
    ward.right()


def test_a_reindexing_takes_over_nothing_that_a_sync_before_it_took_over(tmp_path: Path) -> None:
    ward = Ward(tmp_path, pages=100)
    ward.settings = {"chunk.target_tokens": 100, "chunk.overlap_tokens": 10}
    ward.reopen()
    with pytest.raises(Paused):
        ward.handle.sync(pause=lambda: Pause.AFTER_THIS)
    ward.embedder.embedded.clear()
    assert ward.handle.reindex().chunks_embedded == len(ward.embedder.embedded) == 100
    ward.right()
    ward.close()


def test_a_wiki_that_becomes_empty_while_its_index_is_mended_ends_in_an_error_that_says_so(ward: Ward) -> None:
    cut(ward.index_file)
    ward.reopen()

    def fail() -> None:
        raise ModelUnproven("the model fails in the middle of mending")

    ward.embedder.gate = fail
    with pytest.raises(ModelUnproven):
        ward.handle.sync()
    assert ward.handle.health.condition is Condition.HEALING
    ward.embedder.gate = None
    ward.repository.commit({f"page-{n}.md": None for n in range(20)} | {"picture.png": "x"})
    keeper = ward.keeper()
    until(lambda: ward.handle.health.well)
    until(lambda: isinstance(keeper.standing(ward.handle.wiki.id).error, NoPages))
    with pytest.raises(NoPages):
        ward.handle.sync()
    assert ward.handle.health.well, "the index is whole and stands for HEAD, which has no page"
    with pytest.raises(NothingIndexed):
        ward.handle.search(Request("unique7"))
    ward.repository.commit({"page-7.md": "# Page 7\n\nunique7 is back\n"})
    until(lambda: ward.handle.settled_at() == ward.repository.head())
    ward.right()
