"""Syncing: whatever happened to the repository, the index becomes its tree at HEAD."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from git_repository import Repository

from wikiholt.errors import Busy, ModelUnproven, NoCommits, NoPages, SourceMissing, SyncFailed
from wikiholt.model import Filter, Floats, SyncReport, WordQuery
from wikiholt.pages import Pipeline
from wikiholt.planning import plan
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.sync import Progress, Syncer
from wikiholt.testing import FakeEmbedder

ID = "dddddddddddddddddddd"
LONG = "\n\n".join(f"Paragraph {i} speaks of subject{i} at some length, and then of matter{i} too." for i in range(60))


class Bench:
    """A wiki, its store, and a way to sync it."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.pipeline = Pipeline()
        self.source = GitSource(self.repository.path)
        self.parts: tuple[FakeEmbedder, Pipeline] | None = None
        self.syncer: Syncer | None = None

    def sync(self) -> SyncReport:
        self.embedder.embedded.clear()
        # Two syncers take turns: one that remembers what it has seen, and one that compares whole trees.
        parts = (self.embedder, self.pipeline)
        if self.syncer is None or self.parts != parts:
            self.parts, self.syncer = parts, Syncer(ID, self.store, self.source, *parts, 0.05)
        report = self.syncer.sync()
        self.converged()
        again = Syncer(ID, self.store, self.source, *parts, 0.05).sync()
        assert (again.added, again.changed, again.deleted, again.chunks_embedded) == (0, 0, 0, 0)
        return report

    def converged(self) -> None:
        """The index is whole and equal to HEAD: every page with its blob, every other one a listed problem."""
        index = self.store.open(ID)
        tree = {file: entry.blob for file, entry in self.source.tree(self.repository.head()).items()}
        problems = {problem.file: problem.blob for problem in index.problems()}
        assert dict(index.pages()) | problems == tree
        assert index.state().revision == self.repository.head()
        assert index.check() == []
        index.close()

    def found(self, word: str) -> set[str]:
        index = self.store.open(ID)
        hits = index.words(WordQuery(terms=(word,)), 100, Filter())
        names = {page.path for page in index.stored_pages([hit.page_id for hit in hits]).values()}
        index.close()
        return names


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_first_sync_indexes_every_page(bench: Bench) -> None:
    bench.repository.commit({"home.md": "# Home\n\nWelcome", "a/b.markdown": "zebra", "picture.png": b"\x89PNG"})
    report = bench.sync()
    assert (report.added, report.changed, report.deleted, report.moved) == (2, 0, 0, 0)
    assert report.chunks_embedded == 2
    assert bench.found("zebra") == {"a/b.markdown"}


def test_a_sync_with_nothing_changed_does_nothing(bench: Bench) -> None:
    bench.repository.commit({"home.md": "# Home\n\nWelcome"})
    bench.sync()
    index = bench.store.open(ID)
    before = index.version()
    report = bench.sync()
    assert (report.added, report.unchanged, report.chunks_embedded) == (0, 1, 0)
    assert index.version() == before
    index.close()


def test_an_edit_embeds_only_what_changed(bench: Bench) -> None:
    sections = "\n\n".join(f"## Part {i}\n\n" + LONG.replace("subject", f"s{i}x") for i in range(4))
    bench.repository.commit({"big.md": sections})
    whole = bench.sync().chunks_embedded
    assert whole > 20
    bench.repository.commit({"big.md": sections.replace("s3x59 at", "s3x59 changed at")})
    report = bench.sync()
    assert (report.changed, report.added) == (1, 0)
    assert 1 <= report.chunks_embedded <= 2
    assert report.chunks_reused >= whole - 2


def test_a_renamed_directory_embeds_nothing(bench: Bench) -> None:
    bench.repository.commit({f"old/{i}.md": f"# Page {i}\n\nunique{i}" for i in range(8)} | {"keep.md": "kept"})
    bench.sync()
    bench.repository.git("mv", "old", "new")
    bench.repository.commit({})
    report = bench.sync()
    assert (report.moved, report.added, report.deleted, report.chunks_embedded) == (8, 0, 0, 0)
    assert report.chunks_reused == 8
    assert bench.found("unique3") == {"new/3"}


def test_a_renamed_page_whose_name_is_only_in_its_file_embeds_nothing(bench: Bench) -> None:
    bench.repository.commit({"old name.md": "no heading here, just text", "b.md": "other"})
    bench.sync()
    bench.repository.git("mv", "old name.md", "new name.md")
    bench.repository.commit({})
    report = bench.sync()
    assert (report.moved, report.chunks_embedded) == (1, 0)
    assert bench.found("new") == {"new name"}
    assert bench.found("old") == set()


def test_two_pages_with_the_same_text_share_vectors_and_swap_names(bench: Bench) -> None:
    bench.repository.commit({"a.md": "same text", "b.md": "same text"})
    assert bench.sync().chunks_embedded == 1
    bench.repository.commit({"a.md": None, "b.md": "different", "c.md": "same text"})
    report = bench.sync()
    assert (report.moved, report.changed, report.chunks_embedded) == (1, 1, 1)


def test_deleted_pages_and_directories_are_gone(bench: Bench) -> None:
    bench.repository.commit({"dir/a.md": "alpha", "dir/sub/b.md": "beta", "c.md": "gamma"})
    bench.sync()
    bench.repository.git("rm", "-rq", "dir")
    bench.repository.commit({})
    report = bench.sync()
    assert report.deleted == 2
    assert bench.found("alpha") == bench.found("beta") == set()


def test_rewritten_history_heals_like_any_other_change(bench: Bench) -> None:
    first = bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    bench.repository.commit({"a.md": "other", "c.md": "gamma"})
    bench.sync()
    bench.repository.git("reset", "--hard", "-q", first)
    bench.repository.commit({"d.md": "delta"})
    bench.repository.git("reflog", "expire", "--expire=now", "--all")
    bench.repository.git("gc", "-q", "--prune=now")
    report = bench.sync()
    assert (report.added, report.changed, report.deleted) == (1, 1, 1)
    assert bench.found("alpha") == {"a"}


def test_another_branch_checked_out_is_another_tree(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.repository.git("switch", "-qc", "other")
    bench.repository.commit({"a.md": "omega", "b.md": "beta"})
    bench.sync()
    bench.repository.git("switch", "-q", "main")
    report = bench.sync()
    assert (report.changed, report.deleted) == (1, 1)


@pytest.mark.parametrize(
    "bad", [b"\x00\x01\x02\xff" * 100, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"]
)
def test_one_bad_page_harms_no_other(bench: Bench, bad: bytes) -> None:
    odd: dict[str, str | bytes | None] = {
        "bad.md": bad,
        "number.md": "---\ntitle: 2024\ntags: [1, 2.5, null]\n---\nnumbers",
        "broken.md": "---\ntitle: [unclosed\n: : :\n---\nbroken yaml",
        "latin.md": "caf\xe9 society".encode("latin-1"),
        "nul.md": b"before\x00after text",
        "empty.md": "",
        "headings.md": "# Only\n## Headings\n### Here",
        "good.md": "perfectly fine",
    }
    bench.repository.commit(odd)
    report = bench.sync()
    assert [problem.file for problem in report.problems] == ["bad.md"]
    assert report.problems[0].detail
    assert bench.found("fine") == {"good"}
    assert bench.found("2024") == {"number"}
    assert bench.found("yaml") == {"broken"}
    assert bench.found("head") == {"headings"}


def test_a_page_over_the_limit_is_listed_with_its_size_and_taken_up_when_it_shrinks(bench: Bench) -> None:
    bench.pipeline = replace(bench.pipeline, max_bytes=1000)
    bench.repository.commit({"huge.md": "x " * 5000, "good.md": "fine"})
    report = bench.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("huge.md", "too-large")]
    assert "10,000 bytes" in report.problems[0].detail
    bench.repository.commit({"huge.md": "small now"})
    assert bench.sync().problems == ()
    assert bench.found("small") == {"huge"}


def test_symlinks_are_listed_not_followed(bench: Bench) -> None:
    (bench.repository.path / "link.md").symlink_to("/etc/hostname")
    bench.repository.commit({"good.md": "fine"})
    report = bench.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("link.md", "symlink")]


def test_a_problem_that_moves_or_is_deleted_is_forgotten(bench: Bench) -> None:
    bench.repository.commit({"bad.md": b"\x00\x01\x02\xff" * 100, "good.md": "fine"})
    bench.sync()
    bench.repository.git("mv", "bad.md", "worse.md")
    bench.repository.commit({})
    assert [p.file for p in bench.sync().problems] == ["worse.md"]
    bench.repository.commit({"worse.md": None})
    assert bench.sync().problems == ()


def test_hidden_pages_are_known_but_not_found(bench: Bench) -> None:
    bench.repository.commit({"secret.md": "---\nsearch: false\n---\nclassified", "good.md": "fine"})
    report = bench.sync()
    assert report.added == 2
    assert bench.found("classified") == set()


def test_a_pattern_hides_pages_and_takes_them_back_without_embedding_anew(bench: Bench) -> None:
    bench.repository.commit({"drafts/plan.md": "classified", "drafts/open.md": "published", "good.md": "fine"})
    bench.sync()
    assert bench.found("classified") == {"drafts/plan"}
    bench.pipeline = Pipeline(hide=("/drafts", "!open.md"))
    report = bench.sync()
    assert (bench.found("classified"), bench.found("published")) == (set(), {"drafts/open"})
    assert report.chunks_embedded == 0
    bench.pipeline = Pipeline()
    bench.sync()
    assert bench.found("classified") == {"drafts/plan"}


def test_an_empty_repository_is_an_error_that_says_so(bench: Bench) -> None:
    with pytest.raises(NoCommits) as caught:
        bench.sync()
    assert caught.value.hint
    bench.repository.commit({"a.md": "alpha"})
    assert bench.sync().added == 1


def test_a_repository_without_pages_is_an_error(bench: Bench) -> None:
    bench.repository.commit({"readme.txt": "no pages here"})
    with pytest.raises(NoPages) as caught:
        bench.sync()
    assert caught.value.hint


def test_when_every_page_is_deleted_the_index_empties_and_says_so(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    bench.repository.commit({"a.md": None, "x.txt": "x"})
    with pytest.raises(NoPages):
        bench.sync()
    bench.converged()
    assert bench.found("alpha") == set()


def test_pages_that_all_fail_are_an_error_not_complete(bench: Bench) -> None:
    bench.repository.commit({"a.md": b"\x00\x01\x02\xff" * 100, "b.md": b"\x00\x01\x02\xfe" * 100})
    with pytest.raises(NoPages, match="none of the 2 pages"):
        bench.sync()


def test_a_repository_that_disappears_and_comes_back(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    away = bench.repository.path.with_name("away")
    bench.repository.path.rename(away)
    with pytest.raises(SourceMissing):
        bench.sync()
    assert bench.found("alpha") == {"a"}, "what was indexed goes on answering"
    away.rename(bench.repository.path)
    bench.repository.commit({"b.md": "beta"})
    assert bench.sync().added == 1


def test_another_repository_in_its_place_is_taken_up(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    shutil.rmtree(bench.repository.path)
    bench.repository = Repository(bench.repository.path)
    bench.repository.commit({"z.md": "omega"})
    report = bench.sync()
    assert (report.added, report.deleted) == (1, 1)


def test_another_model_builds_a_new_generation_and_mixes_nothing(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    bench.sync()
    bench.embedder = FakeEmbedder(48, "other")
    report = bench.sync()
    assert report.rebuilt
    assert report.chunks_embedded == 2
    index = bench.store.open(ID)
    assert index.state().recipe.dimensions == 48
    assert index.state().generation == 2
    index.close()


def test_other_chunking_builds_a_new_generation_and_reuses_unchanged_vectors(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha", "b.md": LONG})
    bench.sync()
    bench.pipeline = replace(bench.pipeline, target_tokens=100)
    report = bench.sync()
    assert report.rebuilt
    assert report.chunks_reused >= 1


def test_a_broken_index_is_set_aside_and_built_anew(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    file = bench.store.directory(ID) / "g000001.sqlite"
    file.write_bytes(b"not a database, by any means" * 100)
    report = bench.sync()
    assert report.added == 1
    assert len(list(bench.store.directory(ID).glob("broken-*"))) == 1


def test_an_index_nobody_touched_is_not_read_through_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt.stores.sqlite.index import SqliteIndex

    bench.repository.commit({"a.md": "alpha"})
    reader = None
    for turn in range(3):
        Syncer(ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync()
        reader = reader or bench.store.open(ID)
        assert reader.pages()
        bench.repository.commit({"a.md": f"alpha {turn}"})
    reader.close()
    monkeypatch.setattr(SqliteIndex, "check", lambda self: pytest.fail("read through"))
    assert Syncer(ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync().changed == 1


def test_two_syncs_at_once_are_refused(bench: Bench) -> None:
    bench.repository.commit({"a.md": "alpha"})
    with bench.store.writing(ID, 0), pytest.raises(Busy):
        bench.sync()


def test_a_model_that_cannot_prove_itself_indexes_nothing(bench: Bench) -> None:
    class Unproven(FakeEmbedder):
        def prove(self) -> None:
            raise ModelUnproven("not the vectors it should give")

    bench.embedder = Unproven()
    bench.repository.commit({"a.md": "alpha"})
    with pytest.raises(ModelUnproven):
        bench.sync()
    assert bench.store.published(ID) is None


def test_zero_or_broken_vectors_are_never_stored(bench: Bench) -> None:
    class Spoiled(FakeEmbedder):
        def passages(self, texts: list[str]) -> Floats:  # type: ignore[override]
            vectors = super().passages(texts)
            for row, text in enumerate(texts):
                if "poison" in text:
                    vectors[row] = np.nan if "nan" in text else 0
            return vectors

    bench.embedder = Spoiled()
    bench.repository.commit({"a.md": "poison", "b.md": "poison nan", "c.md": "fine"})
    report = bench.sync()
    assert {p.file: p.reason for p in report.problems} == {"a.md": "failed", "b.md": "failed"}
    assert bench.found("fine") == {"c"}
    bench.embedder = FakeEmbedder()
    assert bench.sync().problems == (), "a fault that goes away is healed by the next sync, though HEAD is the same"


def test_a_text_whose_vector_is_none_harms_no_other_page(bench: Bench) -> None:
    class Picky(FakeEmbedder):
        def passages(self, texts: list[str]) -> Floats:  # type: ignore[override]
            if any("cursed" in text for text in texts):
                raise ModelUnproven("a vector that is none")
            return super().passages(texts)

    bench.embedder = Picky()
    bench.repository.commit({"a.md": "cursed", "b.md": "fine"})
    assert [p.file for p in bench.sync().problems] == ["a.md"]


def test_problems_that_stay_cost_nothing_and_do_not_stop_the_difference(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.repository.path / "link.md").symlink_to("/etc/hostname")
    bench.repository.commit({"bad.md": b"\x00\x01\x02\xff" * 64, "good.md": "fine"})
    bench.sync()
    asked: list[str] = []
    real = GitSource.last_changed

    def watched(self: GitSource, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        asked.extend(files)
        return real(self, files, revision, since)

    monkeypatch.setattr(GitSource, "last_changed", watched)
    bench.repository.commit({"new.md": "brand new"})
    assert bench.sync().added == 1
    assert asked == ["new.md"]


def test_counts_that_do_not_add_up_leave_the_revision_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt import converging

    first = bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    bench.repository.commit({"b.md": "beta"})
    monkeypatch.setattr(converging, "_equal", lambda *_: False)
    with pytest.raises(SyncFailed):
        Syncer(ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync()
    index = bench.store.open(ID)
    assert index.state().revision == first
    index.close()


def test_one_text_the_model_refuses_harms_no_other_page(bench: Bench) -> None:
    class Picky(FakeEmbedder):
        def passages(self, texts: list[str]) -> Floats:  # type: ignore[override]
            if any("cursed" in text for text in texts):
                raise RuntimeError("cannot")
            return super().passages(texts)

    bench.embedder = Picky()
    bench.repository.commit({"a.md": "cursed", "b.md": "fine"})
    assert [p.file for p in bench.sync().problems] == ["a.md"]


def test_a_model_that_embeds_nothing_at_all_fails_the_sync(bench: Bench) -> None:
    class Dead(FakeEmbedder):
        def passages(self, texts: list[str]) -> Floats:  # type: ignore[override]
            return np.zeros((len(texts), self.dimensions), np.float32)

    bench.embedder = Dead()
    bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    with pytest.raises(ModelUnproven):
        bench.sync()


def test_progress_goes_from_nothing_to_everything(bench: Bench) -> None:
    bench.repository.commit({f"{i}.md": f"page {i}" for i in range(120)})
    seen: list[Progress] = []
    Syncer(ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync(seen.append)
    assert seen[0].pages_done == 0
    assert seen[-1].pages_done == seen[-1].pages_total == 120
    assert [p.pages_done for p in seen] == sorted(p.pages_done for p in seen)


def test_an_interrupted_sync_keeps_what_it_had_and_goes_on(bench: Bench) -> None:
    bench.repository.commit({f"{i:03}.md": f"page number {i}" for i in range(150)})

    def stop(progress: Progress) -> None:
        if progress.pages_done >= 48:
            raise KeyboardInterrupt

    syncer = Syncer(ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0)
    with pytest.raises(KeyboardInterrupt):
        syncer.sync(stop)
    index = bench.store.open(ID)
    done = index.state().pages
    assert 48 <= done < 150
    assert index.state().revision is None
    index.close()
    report = bench.sync()
    assert report.added == 150 - done


def test_counts_that_do_not_add_up_fail_the_sync(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt.stores.sqlite.index import SqliteIndex

    bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    real = SqliteIndex.pages
    monkeypatch.setattr(SqliteIndex, "pages", lambda self: {k: v for k, v in real(self).items() if k != "b.md"})
    with pytest.raises(SyncFailed, match="do not add up"):
        bench.sync()


def test_the_plan_pairs_moves_by_content() -> None:
    from wikiholt.model import TreeEntry

    tree = {"b": TreeEntry("1"), "c": TreeEntry("1"), "d": TreeEntry("2"), "e": TreeEntry("9")}
    todo = plan(tree, {"a": "1", "d": "3", "e": "9", "x": "8"}, [])
    assert todo.put == ("b", "c", "d")
    assert todo.moved == {"b": "a"}
    assert todo.deleted == ("x",)
    assert (todo.added, todo.changed) == ({"c"}, {"d"})
