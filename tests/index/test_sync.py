"""Syncs: after any change to the repository, the index matches the tree at HEAD."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.index.sync_fixtures import LONG_TEXT, WIKI_ID, SyncFixture
from tests.support.git_repository import Repository
from wikiholt.errors import Busy, NoCommits, NoPages, SourceMissing, SyncFailed
from wikiholt.git.process import GitRunner
from wikiholt.index.batch import Pause, SyncPaused
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.reconciler import SyncProgress, build_plan
from wikiholt.index.sync import Syncer
from wikiholt.testing import FakeEmbedder


@pytest.fixture
def wiki(tmp_path: Path) -> SyncFixture:
    return SyncFixture(tmp_path)


def test_first_sync_indexes_every_page(wiki: SyncFixture) -> None:
    wiki.repository.commit({"home.md": "# Home\n\nWelcome", "a/b.markdown": "zebra", "picture.png": b"\x89PNG"})
    report = wiki.sync()
    assert (report.added, report.changed, report.deleted, report.moved) == (2, 0, 0, 0)
    assert report.chunks_embedded == 2
    assert wiki.find_paths("zebra") == {"a/b.markdown"}


@pytest.mark.parametrize("first", [True, False])
def test_a_sync_lists_the_tree_of_a_commit_once(
    wiki: SyncFixture, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    wiki.repository.commit({"home.md": "# Home\n\nWelcome", "picture.png": b"\x89PNG"})
    wiki.pipeline = TextPipeline(detects_dialect=True)
    if not first:
        wiki.sync()
        wiki.pipeline = replace(wiki.pipeline, target_tokens=100, overlap_tokens=10)  # builds another generation
    commands: list[str] = []
    spawn = GitRunner._spawn
    monkeypatch.setattr(GitRunner, "_spawn", lambda git, *a: (commands.append(a[0][0]), spawn(git, *a))[1])
    Syncer(WIKI_ID, wiki.store, wiki.source, wiki.embedder, wiki.pipeline, 0.05).sync()
    assert commands.count("ls-tree") == 1
    assert len(commands) <= 5
    wiki.assert_converged()


def test_a_detected_dialect_stays_while_its_generation_is_not_complete(wiki: SyncFixture) -> None:
    wiki.repository.commit({"home.md": "# Home\n\nWelcome"})
    wiki.pipeline = TextPipeline(detects_dialect=True)
    syncer = Syncer(WIKI_ID, wiki.store, wiki.source, wiki.embedder, wiki.pipeline, 0.05)
    syncer.sync()
    wiki.repository.commit({".obsidian/app.json": "{}"})
    with pytest.raises(SyncPaused):
        syncer.sync(pause=lambda: Pause.NOW)
    wiki.repository.commit({"home.md": "# Home\n\nEdited"})
    syncer.sync()
    with closing(wiki.store.open(WIKI_ID)) as index:
        assert '"dialect": "obsidian"' in index.recipe.pipeline


def test_a_sync_with_nothing_changed_does_nothing(wiki: SyncFixture) -> None:
    wiki.repository.commit({"home.md": "# Home\n\nWelcome"})
    wiki.sync()
    index = wiki.store.open(WIKI_ID)
    before = index.get_version()
    report = wiki.sync()
    assert (report.added, report.unchanged, report.chunks_embedded) == (0, 1, 0)
    assert index.get_version() == before
    index.close()


def test_an_edit_embeds_only_what_changed(wiki: SyncFixture) -> None:
    sections = "\n\n".join(f"## Part {i}\n\n" + LONG_TEXT.replace("subject", f"s{i}x") for i in range(4))
    wiki.repository.commit({"big.md": sections})
    first_count = wiki.sync().chunks_embedded
    assert first_count > 20
    wiki.repository.commit({"big.md": sections.replace("s3x59 at", "s3x59 changed at")})
    report = wiki.sync()
    assert (report.changed, report.added) == (1, 0)
    assert 1 <= report.chunks_embedded <= 2
    assert report.chunks_reused >= first_count - 2


def test_former_names_are_aliases_and_stay_after_edits(wiki: SyncFixture) -> None:
    text = "# Ferries\n\nThey leave at seven in the morning, and return at night.\n"
    wiki.repository.commit({"old/Crossings.md": text, "keep.md": "kept"})
    wiki.sync()
    (wiki.repository.path / "new").mkdir()
    wiki.repository.run_git("mv", "old/Crossings.md", "new/Boats.md")
    wiki.repository.commit({})
    assert (wiki.sync().moved, wiki.find_paths("crossings")) == (1, {"new/Boats"})
    wiki.repository.commit({"new/Boats.md": text + "There is a cafe.\n"})
    wiki.sync()
    assert wiki.get_aliases() == {"new/Boats": ("Crossings", "old/Crossings")}
    wiki.repository.commit({"new/Boats.md": text.replace("Ferries", "Crossings")})
    wiki.sync()
    assert wiki.get_aliases() == {"new/Boats": ("Crossings", "old/Crossings")}, "links are not resolved by titles"
    wiki.repository.commit({"old/Crossings.md": "A new page has the name.", "new/Boats.md": text})
    wiki.sync()
    assert wiki.get_aliases() == {}


def test_a_renamed_directory_embeds_nothing(wiki: SyncFixture) -> None:
    wiki.repository.commit({f"old/{i}.md": f"# Page {i}\n\nunique{i}" for i in range(8)} | {"keep.md": "kept"})
    wiki.sync()
    wiki.repository.run_git("mv", "old", "new")
    wiki.repository.commit({})
    report = wiki.sync()
    assert (report.moved, report.added, report.deleted, report.chunks_embedded) == (8, 0, 0, 0)
    assert report.chunks_reused == 8
    assert wiki.find_paths("unique3") == {"new/3"}


def test_a_renamed_page_whose_name_is_only_in_its_file_embeds_nothing(wiki: SyncFixture) -> None:
    wiki.repository.commit({"old name.md": "no heading here, just text", "b.md": "other"})
    wiki.sync()
    wiki.repository.run_git("mv", "old name.md", "new name.md")
    wiki.repository.commit({})
    report = wiki.sync()
    assert (report.moved, report.chunks_embedded) == (1, 0)
    assert wiki.find_paths("new") == {"new name"}
    assert wiki.find_paths("old") == {"new name"}  # a former name is an alias


def test_two_pages_with_the_same_text_share_vectors_and_swap_names(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "same text", "b.md": "same text"})
    assert wiki.sync().chunks_embedded == 1
    wiki.repository.commit({"a.md": None, "b.md": "different", "c.md": "same text"})
    report = wiki.sync()
    assert (report.moved, report.changed, report.chunks_embedded) == (1, 1, 1)


def test_deleted_pages_and_directories_are_gone(wiki: SyncFixture) -> None:
    wiki.repository.commit({"dir/a.md": "alpha", "dir/sub/b.md": "beta", "c.md": "gamma"})
    wiki.sync()
    wiki.repository.run_git("rm", "-rq", "dir")
    wiki.repository.commit({})
    report = wiki.sync()
    assert report.deleted == 2
    assert wiki.find_paths("alpha") == wiki.find_paths("beta") == set()


def test_rewritten_history_is_synced_like_any_other_change(wiki: SyncFixture) -> None:
    first = wiki.repository.commit({"a.md": "alpha", "b.md": "beta"})
    wiki.repository.commit({"a.md": "other", "c.md": "gamma"})
    wiki.sync()
    wiki.repository.run_git("reset", "--hard", "-q", first)
    wiki.repository.commit({"d.md": "delta"})
    wiki.repository.run_git("reflog", "expire", "--expire=now", "--all")
    wiki.repository.run_git("gc", "-q", "--prune=now")
    report = wiki.sync()
    assert (report.added, report.changed, report.deleted) == (1, 1, 1)
    assert wiki.find_paths("alpha") == {"a"}


def test_another_branch_checked_out_is_another_tree(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "alpha"})
    wiki.repository.run_git("switch", "-qc", "other")
    wiki.repository.commit({"a.md": "omega", "b.md": "beta"})
    wiki.sync()
    wiki.repository.run_git("switch", "-q", "main")
    report = wiki.sync()
    assert (report.changed, report.deleted) == (1, 1)


def test_an_empty_repository_is_an_error_with_a_hint(wiki: SyncFixture) -> None:
    with pytest.raises(NoCommits) as caught:
        wiki.sync()
    assert caught.value.hint
    wiki.repository.commit({"a.md": "alpha"})
    assert wiki.sync().added == 1


def test_a_repository_without_pages_is_an_error(wiki: SyncFixture) -> None:
    wiki.repository.commit(
        {"readme.docx": "no pages here", "a/b.PNG": "x", "c.png": "x", "LICENSE": "x", ".a/b.js": ""}
    )
    with pytest.raises(NoPages, match=r"\(4 files skipped: 2 \.png, 1 without extension, 1 \.docx\)") as caught:
        wiki.sync()
    assert caught.value.hint


def test_a_wiki_whose_pages_are_all_deleted_is_an_error_and_has_an_empty_index(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "alpha"})
    wiki.sync()
    wiki.repository.commit({"a.md": None, "x.docx": "x"})
    with pytest.raises(NoPages):
        wiki.sync()
    wiki.assert_converged()
    assert wiki.find_paths("alpha") == set()


def test_a_sync_in_which_every_page_fails_is_an_error(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": b"\x00\x01\x02\xff" * 100, "b.md": b"\x00\x01\x02\xfe" * 100})
    with pytest.raises(NoPages, match="none of the 2 pages"):
        wiki.sync()


def test_a_repository_that_disappears_and_comes_back(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "alpha"})
    wiki.sync()
    away = wiki.repository.path.with_name("away")
    wiki.repository.path.rename(away)
    with pytest.raises(SourceMissing):
        wiki.sync()
    assert wiki.find_paths("alpha") == {"a"}, "indexed pages are still found"
    away.rename(wiki.repository.path)
    wiki.repository.commit({"b.md": "beta"})
    assert wiki.sync().added == 1


def test_another_repository_at_the_same_path_replaces_the_pages(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "alpha"})
    wiki.sync()
    shutil.rmtree(wiki.repository.path)
    wiki.repository = Repository(wiki.repository.path)
    wiki.repository.commit({"z.md": "omega"})
    report = wiki.sync()
    assert (report.added, report.deleted) == (1, 1)


def test_another_model_builds_a_new_generation_without_old_vectors(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "alpha", "b.md": "beta"})
    wiki.sync()
    wiki.embedder = FakeEmbedder(48, "other")
    report = wiki.sync()
    assert report.rebuilt
    assert report.chunks_embedded == 2
    index = wiki.store.open(WIKI_ID)
    assert index.get_state().recipe.dimensions == 48
    assert index.get_state().generation == 2
    index.close()


def test_a_second_sync_at_the_same_time_is_refused(wiki: SyncFixture) -> None:
    wiki.repository.commit({"a.md": "alpha"})
    with wiki.store.write_lock(WIKI_ID, 0), pytest.raises(Busy):
        wiki.sync()


def test_progress_goes_from_zero_to_all_pages(wiki: SyncFixture) -> None:
    wiki.repository.commit({f"{i}.md": f"page {i}" for i in range(120)})
    progress: list[SyncProgress] = []
    Syncer(WIKI_ID, wiki.store, wiki.source, wiki.embedder, wiki.pipeline, 0).sync(progress.append)
    assert progress[0].pages_done == 0
    assert progress[-1].pages_done == progress[-1].pages_total == 120
    assert [p.pages_done for p in progress] == sorted(p.pages_done for p in progress)
    assert {each.chunks_expected for each in progress} == {0, 120}, "each page is as large as those that were read"


def test_an_interrupted_sync_keeps_its_pages_and_continues(wiki: SyncFixture) -> None:
    wiki.repository.commit({f"{i:03}.md": f"page number {i}" for i in range(150)})

    def interrupt(progress: SyncProgress) -> None:
        if progress.pages_done >= 48:
            raise KeyboardInterrupt

    syncer = Syncer(WIKI_ID, wiki.store, wiki.source, wiki.embedder, wiki.pipeline, 0)
    with pytest.raises(KeyboardInterrupt):
        syncer.sync(interrupt)
    index = wiki.store.open(WIKI_ID)
    done = index.get_state().pages
    assert 48 <= done < 150
    assert index.get_state().revision is None
    index.close()
    report = wiki.sync()
    assert report.added == 150 - done


def test_counts_that_do_not_add_up_fail_the_sync(wiki: SyncFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt.index.sqlite.index import SqliteIndex

    wiki.repository.commit({"a.md": "alpha", "b.md": "beta"})
    real = SqliteIndex.get_page_blobs
    monkeypatch.setattr(
        SqliteIndex, "get_page_blobs", lambda self: {k: v for k, v in real(self).items() if k != "b.md"}
    )
    with pytest.raises(SyncFailed, match="do not add up"):
        wiki.sync()


def test_the_plan_pairs_moves_by_content() -> None:
    from wikiholt.domain.git import TreeEntry

    tree = {"b": TreeEntry("1"), "c": TreeEntry("1"), "d": TreeEntry("2"), "e": TreeEntry("9")}
    plan = build_plan(tree, {"a": "1", "d": "3", "e": "9", "x": "8"}, [])
    assert plan.to_index == ("b", "c", "d")
    assert plan.moved == {"b": "a"}
    assert plan.deleted == ("x",)
    assert (plan.added, plan.changed) == ({"c"}, {"d"})
