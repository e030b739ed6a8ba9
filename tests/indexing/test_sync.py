"""Syncing: whatever happened to the repository, the index becomes its tree at HEAD."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.indexing.sync_fixtures import LONG_TEXT, WIKI_ID, SyncFixture
from tests.support.git_repository import Repository
from wikiholt.errors import Busy, NoCommits, NoPages, SourceMissing, SyncFailed
from wikiholt.indexing.plan import build_plan
from wikiholt.indexing.reconciler import SyncProgress
from wikiholt.indexing.sync import Syncer
from wikiholt.testing import FakeEmbedder


@pytest.fixture
def bench(tmp_path: Path) -> SyncFixture:
    return SyncFixture(tmp_path)


def test_first_sync_indexes_every_page(bench: SyncFixture) -> None:
    bench.repository.commit({"home.md": "# Home\n\nWelcome", "a/b.markdown": "zebra", "picture.png": b"\x89PNG"})
    report = bench.sync()
    assert (report.added, report.changed, report.deleted, report.moved) == (2, 0, 0, 0)
    assert report.chunks_embedded == 2
    assert bench.find_paths("zebra") == {"a/b.markdown"}


def test_a_sync_with_nothing_changed_does_nothing(bench: SyncFixture) -> None:
    bench.repository.commit({"home.md": "# Home\n\nWelcome"})
    bench.sync()
    index = bench.store.open(WIKI_ID)
    before = index.get_version()
    report = bench.sync()
    assert (report.added, report.unchanged, report.chunks_embedded) == (0, 1, 0)
    assert index.get_version() == before
    index.close()


def test_an_edit_embeds_only_what_changed(bench: SyncFixture) -> None:
    sections = "\n\n".join(f"## Part {i}\n\n" + LONG_TEXT.replace("subject", f"s{i}x") for i in range(4))
    bench.repository.commit({"big.md": sections})
    whole = bench.sync().chunks_embedded
    assert whole > 20
    bench.repository.commit({"big.md": sections.replace("s3x59 at", "s3x59 changed at")})
    report = bench.sync()
    assert (report.changed, report.added) == (1, 0)
    assert 1 <= report.chunks_embedded <= 2
    assert report.chunks_reused >= whole - 2


def test_a_renamed_directory_embeds_nothing(bench: SyncFixture) -> None:
    bench.repository.commit({f"old/{i}.md": f"# Page {i}\n\nunique{i}" for i in range(8)} | {"keep.md": "kept"})
    bench.sync()
    bench.repository.run_git("mv", "old", "new")
    bench.repository.commit({})
    report = bench.sync()
    assert (report.moved, report.added, report.deleted, report.chunks_embedded) == (8, 0, 0, 0)
    assert report.chunks_reused == 8
    assert bench.find_paths("unique3") == {"new/3"}


def test_a_renamed_page_whose_name_is_only_in_its_file_embeds_nothing(bench: SyncFixture) -> None:
    bench.repository.commit({"old name.md": "no heading here, just text", "b.md": "other"})
    bench.sync()
    bench.repository.run_git("mv", "old name.md", "new name.md")
    bench.repository.commit({})
    report = bench.sync()
    assert (report.moved, report.chunks_embedded) == (1, 0)
    assert bench.find_paths("new") == {"new name"}
    assert bench.find_paths("old") == set()


def test_two_pages_with_the_same_text_share_vectors_and_swap_names(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "same text", "b.md": "same text"})
    assert bench.sync().chunks_embedded == 1
    bench.repository.commit({"a.md": None, "b.md": "different", "c.md": "same text"})
    report = bench.sync()
    assert (report.moved, report.changed, report.chunks_embedded) == (1, 1, 1)


def test_deleted_pages_and_directories_are_gone(bench: SyncFixture) -> None:
    bench.repository.commit({"dir/a.md": "alpha", "dir/sub/b.md": "beta", "c.md": "gamma"})
    bench.sync()
    bench.repository.run_git("rm", "-rq", "dir")
    bench.repository.commit({})
    report = bench.sync()
    assert report.deleted == 2
    assert bench.find_paths("alpha") == bench.find_paths("beta") == set()


def test_rewritten_history_heals_like_any_other_change(bench: SyncFixture) -> None:
    first = bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    bench.repository.commit({"a.md": "other", "c.md": "gamma"})
    bench.sync()
    bench.repository.run_git("reset", "--hard", "-q", first)
    bench.repository.commit({"d.md": "delta"})
    bench.repository.run_git("reflog", "expire", "--expire=now", "--all")
    bench.repository.run_git("gc", "-q", "--prune=now")
    report = bench.sync()
    assert (report.added, report.changed, report.deleted) == (1, 1, 1)
    assert bench.find_paths("alpha") == {"a"}


def test_another_branch_checked_out_is_another_tree(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.repository.run_git("switch", "-qc", "other")
    bench.repository.commit({"a.md": "omega", "b.md": "beta"})
    bench.sync()
    bench.repository.run_git("switch", "-q", "main")
    report = bench.sync()
    assert (report.changed, report.deleted) == (1, 1)


def test_an_empty_repository_is_an_error_that_says_so(bench: SyncFixture) -> None:
    with pytest.raises(NoCommits) as caught:
        bench.sync()
    assert caught.value.hint
    bench.repository.commit({"a.md": "alpha"})
    assert bench.sync().added == 1


def test_a_repository_without_pages_is_an_error(bench: SyncFixture) -> None:
    bench.repository.commit({"readme.txt": "no pages here"})
    with pytest.raises(NoPages) as caught:
        bench.sync()
    assert caught.value.hint


def test_when_every_page_is_deleted_the_index_empties_and_says_so(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    bench.repository.commit({"a.md": None, "x.txt": "x"})
    with pytest.raises(NoPages):
        bench.sync()
    bench.assert_converged()
    assert bench.find_paths("alpha") == set()


def test_pages_that_all_fail_are_an_error_not_complete(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": b"\x00\x01\x02\xff" * 100, "b.md": b"\x00\x01\x02\xfe" * 100})
    with pytest.raises(NoPages, match="none of the 2 pages"):
        bench.sync()


def test_a_repository_that_disappears_and_comes_back(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    away = bench.repository.path.with_name("away")
    bench.repository.path.rename(away)
    with pytest.raises(SourceMissing):
        bench.sync()
    assert bench.find_paths("alpha") == {"a"}, "what was indexed goes on answering"
    away.rename(bench.repository.path)
    bench.repository.commit({"b.md": "beta"})
    assert bench.sync().added == 1


def test_another_repository_in_its_place_is_taken_up(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    shutil.rmtree(bench.repository.path)
    bench.repository = Repository(bench.repository.path)
    bench.repository.commit({"z.md": "omega"})
    report = bench.sync()
    assert (report.added, report.deleted) == (1, 1)


def test_another_model_builds_a_new_generation_and_mixes_nothing(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    bench.sync()
    bench.embedder = FakeEmbedder(48, "other")
    report = bench.sync()
    assert report.rebuilt
    assert report.chunks_embedded == 2
    index = bench.store.open(WIKI_ID)
    assert index.get_state().recipe.dimensions == 48
    assert index.get_state().generation == 2
    index.close()


def test_other_chunking_builds_a_new_generation_and_reuses_unchanged_vectors(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha", "b.md": LONG_TEXT})
    bench.sync()
    bench.pipeline = replace(bench.pipeline, target_tokens=100)
    report = bench.sync()
    assert report.rebuilt
    assert report.chunks_reused >= 1


def test_a_broken_index_is_set_aside_and_built_anew(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    file = bench.store.get_directory(WIKI_ID) / "g000001.sqlite"
    file.write_bytes(b"not a database, by any means" * 100)
    report = bench.sync()
    assert report.added == 1
    assert len(list(bench.store.get_directory(WIKI_ID).glob("broken-*"))) == 1


def test_an_index_nobody_touched_is_not_read_through_again(bench: SyncFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt.storage.sqlite.index import SqliteIndex

    bench.repository.commit({"a.md": "alpha"})
    reader = None
    for turn in range(3):
        Syncer(WIKI_ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync()
        reader = reader or bench.store.open(WIKI_ID)
        assert reader.get_page_blobs()
        bench.repository.commit({"a.md": f"alpha {turn}"})
    reader.close()
    monkeypatch.setattr(SqliteIndex, "check", lambda self: pytest.fail("read through"))
    assert Syncer(WIKI_ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync().changed == 1


def test_two_syncs_at_once_are_refused(bench: SyncFixture) -> None:
    bench.repository.commit({"a.md": "alpha"})
    with bench.store.write_lock(WIKI_ID, 0), pytest.raises(Busy):
        bench.sync()


def test_progress_goes_from_nothing_to_everything(bench: SyncFixture) -> None:
    bench.repository.commit({f"{i}.md": f"page {i}" for i in range(120)})
    seen: list[SyncProgress] = []
    Syncer(WIKI_ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync(seen.append)
    assert seen[0].pages_done == 0
    assert seen[-1].pages_done == seen[-1].pages_total == 120
    assert [p.pages_done for p in seen] == sorted(p.pages_done for p in seen)


def test_an_interrupted_sync_keeps_what_it_had_and_goes_on(bench: SyncFixture) -> None:
    bench.repository.commit({f"{i:03}.md": f"page number {i}" for i in range(150)})

    def stop(progress: SyncProgress) -> None:
        if progress.pages_done >= 48:
            raise KeyboardInterrupt

    syncer = Syncer(WIKI_ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0)
    with pytest.raises(KeyboardInterrupt):
        syncer.sync(stop)
    index = bench.store.open(WIKI_ID)
    done = index.get_state().pages
    assert 48 <= done < 150
    assert index.get_state().revision is None
    index.close()
    report = bench.sync()
    assert report.added == 150 - done


def test_counts_that_do_not_add_up_fail_the_sync(bench: SyncFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt.storage.sqlite.index import SqliteIndex

    bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    real = SqliteIndex.get_page_blobs
    monkeypatch.setattr(
        SqliteIndex, "get_page_blobs", lambda self: {k: v for k, v in real(self).items() if k != "b.md"}
    )
    with pytest.raises(SyncFailed, match="do not add up"):
        bench.sync()


def test_the_plan_pairs_moves_by_content() -> None:
    from wikiholt.domain.git import TreeEntry

    tree = {"b": TreeEntry("1"), "c": TreeEntry("1"), "d": TreeEntry("2"), "e": TreeEntry("9")}
    todo = build_plan(tree, {"a": "1", "d": "3", "e": "9", "x": "8"}, [])
    assert todo.to_index == ("b", "c", "d")
    assert todo.moved == {"b": "a"}
    assert todo.deleted == ("x",)
    assert (todo.added, todo.changed) == ({"c"}, {"d"})
