"""Syncing pages and models that are bad: what can be indexed is, and the rest is said."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from tests.indexing.sync_fixtures import WIKI_ID, SyncFixture
from wikiholt.domain.index import FloatArray
from wikiholt.errors import ModelSelfTestFailed, SyncFailed
from wikiholt.git.source import GitSource
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.indexing.sync import Syncer
from wikiholt.testing import FakeEmbedder


@pytest.fixture
def bench(tmp_path: Path) -> SyncFixture:
    return SyncFixture(tmp_path)


@pytest.mark.parametrize(
    "bad", [b"\x00\x01\x02\xff" * 100, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"]
)
def test_one_bad_page_harms_no_other(bench: SyncFixture, bad: bytes) -> None:
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
    assert bench.find_paths("fine") == {"good"}
    assert bench.find_paths("2024") == {"number"}
    assert bench.find_paths("yaml") == {"broken"}
    assert bench.find_paths("head") == {"headings"}


def test_a_page_over_the_limit_is_listed_with_its_size_and_taken_up_when_it_shrinks(bench: SyncFixture) -> None:
    bench.pipeline = replace(bench.pipeline, max_bytes=1000)
    bench.repository.commit({"huge.md": "x " * 5000, "good.md": "fine"})
    report = bench.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("huge.md", "too-large")]
    assert "10,000 bytes" in report.problems[0].detail
    bench.repository.commit({"huge.md": "small now"})
    assert bench.sync().problems == ()
    assert bench.find_paths("small") == {"huge"}


def test_symlinks_are_listed_not_followed(bench: SyncFixture) -> None:
    (bench.repository.path / "link.md").symlink_to("/etc/hostname")
    bench.repository.commit({"good.md": "fine"})
    report = bench.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("link.md", "symlink")]


def test_a_problem_that_moves_or_is_deleted_is_forgotten(bench: SyncFixture) -> None:
    bench.repository.commit({"bad.md": b"\x00\x01\x02\xff" * 100, "good.md": "fine"})
    bench.sync()
    bench.repository.run_git("mv", "bad.md", "worse.md")
    bench.repository.commit({})
    assert [p.file for p in bench.sync().problems] == ["worse.md"]
    bench.repository.commit({"worse.md": None})
    assert bench.sync().problems == ()


def test_hidden_pages_are_known_but_not_found(bench: SyncFixture) -> None:
    bench.repository.commit({"secret.md": "---\nsearch: false\n---\nclassified", "good.md": "fine"})
    report = bench.sync()
    assert report.added == 2
    assert bench.find_paths("classified") == set()


def test_a_pattern_hides_pages_and_takes_them_back_without_embedding_anew(bench: SyncFixture) -> None:
    bench.repository.commit({"drafts/plan.md": "classified", "drafts/open.md": "published", "good.md": "fine"})
    bench.sync()
    assert bench.find_paths("classified") == {"drafts/plan"}
    bench.pipeline = TextPipeline(hide=("/drafts", "!open.md"))
    report = bench.sync()
    assert (bench.find_paths("classified"), bench.find_paths("published")) == (set(), {"drafts/open"})
    assert report.chunks_embedded == 0
    bench.pipeline = TextPipeline()
    bench.sync()
    assert bench.find_paths("classified") == {"drafts/plan"}


def test_a_model_that_cannot_prove_itself_indexes_nothing(bench: SyncFixture) -> None:
    class Unproven(FakeEmbedder):
        def run_self_test(self) -> None:
            raise ModelSelfTestFailed("not the vectors it should give")

    bench.embedder = Unproven()
    bench.repository.commit({"a.md": "alpha"})
    with pytest.raises(ModelSelfTestFailed):
        bench.sync()
    assert bench.store.get_published(WIKI_ID) is None


def test_zero_or_broken_vectors_are_never_stored(bench: SyncFixture) -> None:
    class Spoiled(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            vectors = super().embed_passages(texts)
            for row, text in enumerate(texts):
                if "poison" in text:
                    vectors[row] = np.nan if "nan" in text else 0
            return vectors

    bench.embedder = Spoiled()
    bench.repository.commit({"a.md": "poison", "b.md": "poison nan", "c.md": "fine"})
    report = bench.sync()
    assert {p.file: p.reason for p in report.problems} == {"a.md": "failed", "b.md": "failed"}
    assert bench.find_paths("fine") == {"c"}
    bench.embedder = FakeEmbedder()
    assert bench.sync().problems == (), "a fault that goes away is healed by the next sync, though HEAD is the same"


def test_a_text_whose_vector_is_none_harms_no_other_page(bench: SyncFixture) -> None:
    class Picky(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            if any("cursed" in text for text in texts):
                raise ModelSelfTestFailed("a vector that is none")
            return super().embed_passages(texts)

    bench.embedder = Picky()
    bench.repository.commit({"a.md": "cursed", "b.md": "fine"})
    assert [p.file for p in bench.sync().problems] == ["a.md"]


def test_problems_that_stay_cost_nothing_and_do_not_stop_the_difference(
    bench: SyncFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.repository.path / "link.md").symlink_to("/etc/hostname")
    bench.repository.commit({"bad.md": b"\x00\x01\x02\xff" * 64, "good.md": "fine"})
    bench.sync()
    asked: list[str] = []
    real = GitSource.get_change_dates

    def watched(self: GitSource, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        asked.extend(files)
        return real(self, files, revision, since)

    monkeypatch.setattr(GitSource, "get_change_dates", watched)
    bench.repository.commit({"new.md": "brand new"})
    assert bench.sync().added == 1
    assert asked == ["new.md"]


def test_counts_that_do_not_add_up_leave_the_revision_alone(
    bench: SyncFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wikiholt.indexing import reconciler

    first = bench.repository.commit({"a.md": "alpha"})
    bench.sync()
    bench.repository.commit({"b.md": "beta"})
    monkeypatch.setattr(reconciler, "_is_equal_to_tree", lambda *_: False)
    with pytest.raises(SyncFailed):
        Syncer(WIKI_ID, bench.store, bench.source, bench.embedder, bench.pipeline, 0).sync()
    index = bench.store.open(WIKI_ID)
    assert index.get_state().revision == first
    index.close()


def test_one_text_the_model_refuses_harms_no_other_page(bench: SyncFixture) -> None:
    class Picky(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            if any("cursed" in text for text in texts):
                raise RuntimeError("cannot")
            return super().embed_passages(texts)

    bench.embedder = Picky()
    bench.repository.commit({"a.md": "cursed", "b.md": "fine"})
    assert [p.file for p in bench.sync().problems] == ["a.md"]


def test_a_model_that_embeds_nothing_at_all_fails_the_sync(bench: SyncFixture) -> None:
    class Dead(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            return np.zeros((len(texts), self.dimensions), np.float32)

    bench.embedder = Dead()
    bench.repository.commit({"a.md": "alpha", "b.md": "beta"})
    with pytest.raises(ModelSelfTestFailed):
        bench.sync()


@pytest.mark.slow
def test_a_page_that_takes_too_much_work_is_listed_with_a_hint_and_harms_no_other(bench: SyncFixture) -> None:
    bench.pipeline = replace(bench.pipeline, max_bytes=400_000)
    bench.repository.commit({"costly.md": "x\n" * 150_000, "good.md": "fine", "long.md": "fine words\n" * 20_000})
    report = bench.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("costly.md", "too-costly")]
    assert "1,200,000 steps" in report.problems[0].detail
    assert "split it into several pages, or raise page.max_bytes" in report.problems[0].detail
    assert bench.find_paths("fine") == {"good", "long"}
    bench.repository.commit({"costly.md": "x\n" * 100})
    assert bench.sync().problems == ()
    assert bench.find_paths("x") == {"costly"}


def test_a_small_page_is_never_too_costly(bench: SyncFixture) -> None:
    bench.pipeline = replace(bench.pipeline, max_bytes=20_000)
    bench.repository.commit({"short-lines.md": "x\n" * 9_000, "one-word.md": "x" * 19_000})
    assert bench.sync().problems == ()
    assert bench.find_paths("x") == {"short-lines"}
