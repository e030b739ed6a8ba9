"""Taking backups: while others read and write, verified, kept as long as they should be, and no longer."""

import fcntl
import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest
from backup_ground import Ground, age, bytes_below, flip

from wikiholt.backups import Shelf
from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, StorageRefused, WikiNotFound
from wikiholt.model import Occasion
from wikiholt.testing import FakeEmbedder


def test_a_backup_is_one_file_whose_name_says_what_it_holds(ground: Ground) -> None:
    repository = ground.add("one")
    taken = ground.wiki().backups.take()
    (file,) = ground.shelf().directory.iterdir()
    assert taken.state == ground.wiki().status().state
    assert taken.state is not None
    assert taken.state.revision == repository.head()
    assert taken.name == f"{taken.taken_at:%Y%m%dT%H%M%S%fZ}-g1-v{taken.state.version}-asked"
    assert file.name == f"{taken.name}-{hashlib.sha256(file.read_bytes()).hexdigest()}.sqlite"
    assert taken.bytes == file.stat().st_size
    assert ground.wiki().backups.list() == ground.wiki().backups.verified() == [taken]
    assert ground.wiki().backups.newest_good() == taken
    assert file.stat().st_mode & 0o077 == 0
    assert ground.shelf().directory.stat().st_mode & 0o077 == 0


def test_a_backup_of_one_wiki_holds_nothing_of_another(ground: Ground) -> None:
    ground.add("one", {"Home.md": "only onecanary here"})
    ground.add("two", {"Home.md": "only twocanary here"})
    for slug in ("one", "two"):
        ground.wiki(slug).backups.take()
    for slug, own, other in (("one", b"onecanary", b"twocanary"), ("two", b"twocanary", b"onecanary")):
        (content,) = bytes_below(ground.shelf(slug).directory).values()
        assert own in content
        assert other not in content


def test_backups_are_taken_while_pages_are_written_and_searched(ground: Ground) -> None:
    repository = ground.add("one")
    done = Event()
    faults: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(25):
                repository.commit({f"New{number}.md": f"# New {number}\n\nheron number {number}"})
                ground.wiki().sync()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            faults.append(error)
        finally:
            done.set()

    writer = Thread(target=write)
    writer.start()
    taken = []
    while not done.is_set():
        taken.append(ground.wiki().backups.take())
        assert ground.found("heron")
    writer.join()
    assert not faults
    assert len({backup.state.version for backup in taken if backup.state}) > 1
    store = ground.service.workshop.store
    for kept in ground.shelf().all():
        copy = store.copy_at(kept.file)
        assert copy.check() == []
        copy.close()


def test_many_may_take_backups_at_once(ground: Ground) -> None:
    ground.add("one")
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda _: ground.wiki().backups.take(), range(12)))
    assert len(taken) == 12
    assert not any(backup.fault for backup in ground.wiki().backups.verified())
    assert [file for file in ground.shelf().directory.iterdir() if file.name.startswith(".")] == []


def test_a_draft_swept_away_before_it_was_held_is_begun_anew(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.add("one")
    really, swept = fcntl.flock, []

    def sweeping_first(held: int, how: int) -> None:
        if not swept and (drafts := list(ground.shelf().directory.glob(".making-*"))):
            swept.extend(drafts)
            drafts[0].unlink()
        really(held, how)

    monkeypatch.setattr(fcntl, "flock", sweeping_first)
    ground.wiki().backups.take()
    assert swept
    assert [backup.fault for backup in ground.wiki().backups.verified()] == [""]


def test_a_backup_that_is_stopped_leaves_nothing(ground: Ground) -> None:
    ground.add("one")
    with pytest.raises(Busy):
        ground.wiki().backups.take(stop=lambda: True)
    assert list(ground.shelf().directory.iterdir()) == []


def test_a_wiki_that_was_never_synced_has_nothing_to_back_up(ground: Ground) -> None:
    repository = ground.add("one")
    ground.service.add("empty", str(repository.path), {})
    with pytest.raises(IndexMissing):
        ground.wiki("empty").backups.take()
    assert ground.wiki("empty").backups.list() == []
    assert ground.wiki("empty").backups.newest_good() is None


def test_a_damaged_index_never_becomes_a_backup(ground: Ground) -> None:
    ground.add("one", {f"p{number}.md": f"# Page {number}\n\n{'words and more words ' * 40}" for number in range(60)})
    good = ground.wiki().backups.take()
    ground.service.close()
    file = ground.index_file()
    ground.service.close()
    data = bytearray(file.read_bytes())
    at = data.rindex(b"words and more words")
    data[at : at + 5] = b"wards"
    file.write_bytes(data)
    with pytest.raises(IndexCorrupt):
        ground.wiki().backups.take()
    assert ground.wiki().backups.verified() == [good]


def test_an_unchanged_index_is_not_kept_twice(ground: Ground) -> None:
    repository = ground.add("one")
    backups = ground.wiki().backups
    first = backups.keep(Occasion.SCHEDULED)
    assert backups.keep(Occasion.SCHEDULED) == first
    repository.commit({"New.md": "# New"})
    ground.wiki().sync()
    assert backups.keep(Occasion.SCHEDULED) != first


def test_a_newest_backup_that_has_been_damaged_is_replaced(ground: Ground) -> None:
    ground.add("one")
    backups = ground.wiki().backups
    backups.keep(Occasion.SCHEDULED)
    (kept,) = ground.shelf().all()
    flip(kept.file, 0.9)
    again = backups.keep(Occasion.ASKED)
    assert again.occasion == Occasion.ASKED
    assert backups.newest_good() == again


# ── how long they are kept ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (1, ["16T12"]),
        (2, ["16T12", "16T11", "15T09"]),
        (3, ["16T12", "16T11", "16T10", "15T09", "11T08"]),
        (9, ["16T12", "16T11", "16T10", "15T09", "11T08", "11T07", "02T06"]),
    ],
)
def test_the_latest_are_kept_and_the_newest_of_each_day(tmp_path: Path, keep: int, left: list[str]) -> None:
    for hour in ("02T06", "11T07", "11T08", "15T09", "16T10", "16T11", "16T12"):
        (tmp_path / f"202611{hour}0000000000Z-g1-v1-scheduled-{'0' * 64}.sqlite").touch()
    Shelf(tmp_path).prune(keep)
    assert [f"{kept.taken_at:%dT%H}" for kept in Shelf(tmp_path).all()] == left


def test_a_clock_that_is_set_back_does_not_cost_the_backup_just_made(tmp_path: Path) -> None:
    ground = Ground(tmp_path, keep=1)
    repository = ground.add("one")
    ground.wiki().backups.take()
    age(ground.shelf().all()[0], -30)
    repository.commit({"New.md": "# New"})
    ground.wiki().sync()
    taken = ground.wiki().backups.take()
    assert taken in ground.wiki().backups.list()
    assert len(ground.wiki().backups.list()) == 2
    ground.service.close()


def test_a_draft_whose_maker_is_gone_is_removed_and_one_that_is_held_is_not(ground: Ground) -> None:
    ground.add("one")
    shelf = ground.shelf()
    with shelf.making() as held:
        left = shelf.directory / ".making-0123456789abcdef.sqlite"
        left.write_bytes(b"half a copy")
        ground.wiki().backups.take()
        assert held.file.exists()
        assert not left.exists()
    assert not held.file.exists()


def test_files_that_bear_another_name_do_not_count_and_are_left_alone(ground: Ground) -> None:
    ground.add("one")
    taken = ground.wiki().backups.take()
    odd = [
        "notes.txt",
        "20269999T000000000000Z-g1-v1-asked-" + "0" * 64 + ".sqlite",
        "20261116T000000Z-g1-v1-asked.sqlite",
    ]
    for name in odd:
        (ground.shelf().directory / name).write_text("x")
    assert ground.wiki().backups.list() == [taken]
    assert all((ground.shelf().directory / name).exists() for name in odd)


# ── before risky steps ───────────────────────────────────────────────────────────────────────────


def test_before_a_reindex_takes_over_the_old_index_is_backed_up(ground: Ground) -> None:
    ground.add("one")
    before = ground.wiki().status().state
    ground.wiki().reindex()
    (backup,) = ground.wiki().backups.list()
    assert (backup.occasion, backup.state) == (Occasion.BEFORE_PUBLISHING, before)


def test_before_another_model_takes_over_the_old_index_is_backed_up(ground: Ground) -> None:
    ground.add("one")
    ground.embedder = FakeEmbedder(16, "other")
    ground.service.close()
    ground.service = ground.opened()
    assert ground.wiki().sync().rebuilt
    (backup,) = ground.wiki().backups.list()
    assert backup.state is not None
    assert backup.state.recipe.fingerprint == "fake/32"


def test_a_reindex_goes_on_where_no_backup_can_be_made(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    ground.add("one")
    ground.place.mkdir(parents=True, exist_ok=True)
    ground.shelf().directory.write_text("a file where the directory should be")
    assert ground.wiki().reindex().rebuilt
    assert ground.found("heron") == ["Home"]
    assert "no backup was made" in caplog.text


# ── when it cannot be done ───────────────────────────────────────────────────────────────────────


def test_a_place_that_cannot_be_written_is_an_error_that_says_so(ground: Ground) -> None:
    ground.add("one")
    ground.place.mkdir(parents=True, exist_ok=True)
    ground.shelf().directory.write_text("a file where the directory should be")
    with pytest.raises(StorageRefused) as refused:
        ground.wiki().backups.take()
    assert "backup.place" in refused.value.hint
    assert str(ground.directory) not in refused.value.message
    assert ground.found("heron") == ["Home"]


def test_a_disk_that_is_full_leaves_the_index_and_earlier_backups_as_they_were(ground: Ground) -> None:
    ground.add("one", {f"p{number}.md": f"# Page {number}\n\nheron {number}" for number in range(200)})
    taken = ground.wiki().backups.take()
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from backup_ground import Ground\n"
        "import resource\n"
        "from wikiholt.errors import StorageRefused\n"
        "ground = Ground(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "try:\n    ground.wiki().backups.take()\nexcept StorageRefused as error:\n    print('refused')\n"
    )
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "sources")]
    done = subprocess.run(
        [sys.executable, "-c", code, str(ground.directory), *here], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr
    assert ground.wiki().backups.verified() == [taken]
    assert len(list(ground.shelf().directory.iterdir())) == 1
    assert ground.wiki().check() == []


# ── removing a wiki ──────────────────────────────────────────────────────────────────────────────


def test_removing_a_wiki_removes_and_lists_its_backups(ground: Ground) -> None:
    ground.add("one", {"Secret.md": "onecanary"})
    ground.add("two")
    ground.wiki("two").backups.take()
    ground.wiki().backups.take()
    ground.service.registry.backups.take()
    others = bytes_below(ground.shelf("two").directory)
    (name,) = (file.name for file in ground.shelf().directory.iterdir())
    place, wiki_id = ground.shelf().directory, ground.wiki().wiki.id
    removed = ground.service.remove("one")
    assert f"backups/{name}" in removed.files
    assert not place.exists()
    ground.service.close()
    for content in bytes_below(ground.data).values():
        assert b"onecanary" not in content
        assert wiki_id.encode() not in content
    assert bytes_below(ground.shelf("two").directory) == others


def test_a_backup_of_a_wiki_that_is_removed_meanwhile_leaves_nothing(ground: Ground) -> None:
    ground.add("one")
    handle = ground.wiki()
    directory = ground.shelf().directory
    gone = False

    def remove_now() -> bool:
        nonlocal gone
        if not gone:
            gone = True
            ground.service.remove("one")
        return False

    with pytest.raises(WikiNotFound):
        handle.backups.take(stop=remove_now)
    assert gone
    assert not directory.exists()
    assert list(ground.place.glob(".dropped-*")) == []
