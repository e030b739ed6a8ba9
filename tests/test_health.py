"""Whatever happens to an index's files, it is noticed, set aside, mended, and the log tells the story."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from git_repository import Repository
from ward import Ward, cut, overwrite, remove, until

from wikiholt import wiring
from wikiholt.errors import Busy, IndexCorrupt, IndexHealing, IndexMissing, StorageRefused, WikiholtError
from wikiholt.healing import Healing
from wikiholt.model import Condition, Health, Mode, Occasion
from wikiholt.search import Request
from wikiholt.settings import load
from wikiholt.stores.sqlite.store import SqliteStore

HARM = {
    "a header of zeros": lambda file: overwrite(file, 0, bytes(100)),
    "a file cut in half": cut,
    "zeros in the middle": lambda file: overwrite(file, 0.5, bytes(20_000)),
    "an empty file": lambda file: file.write_bytes(b""),
    "no file": remove,
}


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    made = Ward(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("harm", HARM)
def test_an_index_harmed_before_the_start_is_mended_from_its_backup(
    ward: Ward, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    ward.repository.commit({"page-7.md": "# Page 7\n\nunique7 everywhere, after the backup\n"})
    ward.handle.sync()
    ward.service.close()
    HARM[harm](ward.index_file)
    ward.reopen()
    ward.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        ward.keeper(checks=0.2)
        until(lambda: ward.handle.status().aside and ward.handle.health.well and ward.handle.settled_at())
    ward.right()
    assert len(ward.embedder.embedded) == 1, "all but the page that changed since comes from the backup"
    told = [record.getMessage() for record in caplog.records if record.name == "wikiholt.healing"]
    story = [line for line in told if "seems to be broken" not in line]
    assert len(story) == 3, told
    assert "is set aside as broken-" in story[0]
    assert "takes its place" in story[1]
    assert "stands for HEAD" in story[2]
    assert all(line.startswith("notes: ") for line in told)
    aside = ward.handle.status().aside
    assert len(aside) == 1
    assert aside[0] in story[0]


def test_an_index_without_a_backup_is_built_again_from_git(ward: Ward, caplog: pytest.LogCaptureFixture) -> None:
    ward.service.close()
    cut(ward.index_file)
    ward.reopen()
    with caplog.at_level(logging.WARNING):
        report = ward.handle.sync()
    assert report.rebuilt
    assert "built again from git" in caplog.text
    ward.right()


@pytest.mark.parametrize("harm", ["zeros in the middle", "no file"])
def test_an_index_harmed_while_it_serves_is_mended_once_a_search_or_a_check_meets_the_damage(
    ward: Ward, harm: str
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    store, wiki_id = ward.service.workshop.store, ward.handle.wiki.id
    harmed = store.published(wiki_id)
    assert ward.handle.search(Request("unique7")).hits
    with closing(sqlite3.connect(ward.index_file)) as index:  # what is in the log would be written over the damage
        index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    HARM[harm](ward.index_file)
    ward.keeper(checks=0.2)

    statuses = set()

    def mended() -> bool:
        try:
            answer = ward.handle.search(Request("unique7"))
        except WikiholtError as error:
            statuses.add(error.status)
            return False
        assert answer.hits, "never an empty list"
        # What had been open may still have answered while another index was being put in its place.
        another = store.published(wiki_id) not in (None, harmed)
        return another and bool(ward.handle.status().aside) and ward.handle.health.well

    until(mended)
    assert statuses <= {503}
    ward.right()


def test_a_text_that_rotted_without_a_trace_is_found_by_the_daily_check(
    ward: Ward, caplog: pytest.LogCaptureFixture
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    ward.rot()
    assert ward.handle.search(Request("unique7")).hits, "nothing shows"
    with caplog.at_level(logging.WARNING):
        ward.keeper(checks=0.2)
        until(lambda: ward.handle.status().aside and ward.handle.health.well)
    assert "is not as it was written" in caplog.text
    ward.right()
    assert ward.handle.health.checked_at is not None


def test_answers_say_so_while_an_index_is_known_to_be_damaged(ward: Ward) -> None:
    ward.rot()
    health = ward.handle.examine()
    assert health.condition is Condition.BROKEN
    answer = ward.handle.search(Request("unique7"))
    assert answer.hits
    assert answer.degraded
    assert "is being mended" in answer.notes[-1]
    status = ward.handle.status()
    assert status.health.reason
    ward.handle.sync()
    assert ward.handle.status().health.well
    ward.right()


def test_a_search_that_meets_damage_raises_the_alarm_once(ward: Ward) -> None:
    heard: list[str] = []
    ward.service.close()
    overwrite(ward.index_file, 0, bytes(100))
    ward.service = ward.opened()
    ward.service.on_broken = heard.append
    for _ in range(3):
        with pytest.raises(IndexCorrupt):
            ward.handle.search(Request("unique7"))
    assert heard == [ward.handle.wiki.id]


def noted(ward: Ward, health: Health) -> None:
    Healing(ward.handle.wiki.id, ward.handle.wiki.slug, ward.service.workshop.store).keep(health)


def test_while_nothing_can_answer_the_error_says_that_it_is_being_mended(ward: Ward) -> None:
    ward.service.workshop.store.set_aside(ward.handle.wiki.id, "a test")
    noted(ward, Health(Condition.HEALING, "a test"))
    with pytest.raises(IndexHealing) as caught:
        ward.handle.search(Request("unique7", mode=Mode.KEYWORD))
    assert caught.value.status == 503
    ward.handle.sync()
    ward.right()


@pytest.mark.parametrize("kind", ["vectors-*", "words-*"])
@pytest.mark.parametrize("harm", ["a header of zeros", "a file cut in half", "zeros in the middle", "no file"])
def test_a_harmed_cache_is_dropped_and_made_again_from_the_index(ward: Ward, kind: str, harm: str) -> None:
    (file,) = ward.directory.glob(kind)
    HARM[harm](file)
    ward.handle.examine()
    ward.handle.settle(60)
    ward.right()
    ward.reopen()
    ward.right()
    assert not ward.handle.status().aside, "the index itself was never broken"


def test_an_index_whose_directory_is_gone_comes_back_from_its_backup(ward: Ward) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    ward.service.close()
    remove(ward.directory)
    ward.service = ward.opened()
    with pytest.raises(IndexMissing):
        ward.handle.search(Request("unique7"))
    ward.embedder.embedded.clear()
    ward.handle.sync()
    assert ward.embedder.embedded == []
    ward.right()


def test_a_damaged_backup_is_passed_over(ward: Ward) -> None:
    kept = ward.handle.backups.take(Occasion.ASKED)
    overwrite(next((ward.place / "data" / "backups").rglob(f"{kept.name}*")), 0.5, b"x" * 1000)
    ward.service.close()
    cut(ward.index_file)
    ward.reopen()
    assert ward.handle.sync().rebuilt
    ward.right()


def test_a_suspicion_that_proves_wrong_costs_nothing(ward: Ward, caplog: pytest.LogCaptureFixture) -> None:
    noted(ward, Health(Condition.BROKEN, "a rumour"))
    ward.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        ward.handle.sync()
    assert (ward.handle.status().aside, ward.embedder.embedded) == ((), [])
    assert "is whole" in caplog.text
    ward.right()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"condition": "odd"}', '{"condition": "ok"}', "\x00"])
def test_a_file_of_health_that_makes_no_sense_counts_as_none(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    store.keep_note("somewikiid", "health", text, make=True)
    assert Healing("somewikiid", "garden", store).health == Health()


def test_a_state_that_was_tampered_with_is_seen_on_opening(ward: Ward) -> None:
    for change in (
        "state SET revision = 'elsewhere'",
        "state SET version = version + 1",
        "state SET generation = 9",
    ):
        with closing(sqlite3.connect(ward.index_file)) as db:
            db.execute(f"UPDATE {change}")
            db.commit()
        with pytest.raises(IndexCorrupt):
            ward.service.workshop.store.open(ward.handle.wiki.id)
        ward.handle.sync()
        ward.right()


def test_a_reindexing_of_a_broken_index_sets_it_aside_too(ward: Ward) -> None:
    ward.service.close()
    overwrite(ward.index_file, 0.5, bytes(20_000))
    ward.reopen()
    ward.handle.reindex()
    assert len(ward.handle.status().aside) == 1
    assert ward.handle.health.well
    ward.right()


def test_a_backup_that_cannot_be_restored_for_want_of_room_is_tried_again_and_not_given_up(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    ward.service.close()
    cut(ward.index_file)
    ward.reopen()
    store = type(ward.service.workshop.store)
    monkeypatch.setattr(store, "adopt", lambda *_: (_ for _ in ()).throw(StorageRefused("the disk is full")))
    with pytest.raises(StorageRefused):
        ward.handle.sync()
    with pytest.raises(IndexHealing):
        ward.handle.search(Request("unique7"))
    monkeypatch.undo()
    ward.embedder.embedded.clear()
    ward.handle.sync()
    assert ward.embedder.embedded == []
    assert ward.handle.health.well
    ward.right()


def test_words_that_are_not_those_of_the_pages_are_found(ward: Ward) -> None:
    with closing(sqlite3.connect(ward.index_file)) as db:
        db.execute("INSERT INTO words (rowid, name, headings, body) VALUES (1, 'other', 'other', 'other')")
        db.commit()
    assert ward.handle.check()
    assert not ward.handle.examine().well
    ward.handle.sync()
    ward.right()


def test_a_check_that_is_stopped_says_nothing_about_the_index(ward: Ward) -> None:
    with pytest.raises(Busy):
        ward.handle.examine(lambda: True)
    assert ward.handle.health == Health()
    asked: list[int] = []

    def after_a_while() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Busy):
        ward.handle.examine(after_a_while)
    assert ward.handle.health == Health()
    ward.right()


def test_the_real_model_embeds_nothing_when_an_index_heals_from_its_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(
        {"bread.md": "# Bread\n\nLet the dough rise over night.\n", "bike.md": "# Bike\n\nOil the chain.\n"}
    )
    service = wiring.build(load(tmp_path / "data"))
    service.add("notes", str(repository.path), {})
    handle = service.wiki("notes")
    handle.sync()
    handle.backups.take(Occasion.ASKED)
    directory = service.workshop.store.directory(handle.wiki.id)
    service.close()
    overwrite(next(directory.glob("g*.sqlite")), 0, bytes(100))

    service = wiring.build(load(tmp_path / "data"))
    handle = service.wiki("notes")
    with pytest.raises(IndexCorrupt):
        handle.search(Request("baking"))
    monkeypatch.setattr(type(service.workshop.embedder()), "passages", None)
    report = handle.sync()
    assert (report.chunks_embedded, report.rebuilt, report.unchanged) == (0, False, 2)
    assert handle.search(Request("baking", mode=Mode.SEMANTIC)).hits[0].path == "bread"
    assert handle.search(Request("chain", mode=Mode.KEYWORD)).hits[0].path == "bike"
    assert handle.health.well
    service.close()


def test_a_broken_index_whose_repository_is_gone_as_well_is_answered_for_by_its_backup(ward: Ward) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    ward.service.close()
    overwrite(ward.index_file, 0, bytes(100))
    ward.service = ward.opened()
    away = ward.repository.path.rename(ward.place / "away")
    ward.keeper()

    def answers() -> bool:
        try:
            return bool(ward.handle.search(Request("unique7")).hits)
        except WikiholtError:
            return False

    until(answers)
    assert not ward.handle.health.well, "it is not known to stand for HEAD"
    away.rename(ward.repository.path)
    until(lambda: ward.handle.health.well)
    ward.right()
