"""Syncs with bad pages or bad models: the good pages are indexed, the others are listed as problems."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.index.sync_fixtures import WIKI_ID, SyncFixture
from wikiholt.domain.git import FileHistories
from wikiholt.domain.index import FloatArray
from wikiholt.errors import ModelSelfTestFailed, ModelUnavailable
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sync import Syncer
from wikiholt.testing import FakeEmbedder


@pytest.fixture
def wiki(tmp_path: Path) -> SyncFixture:
    return SyncFixture(tmp_path)


@pytest.mark.parametrize(
    "bad", [b"\x00\x01\x02\xff" * 100, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"]
)
def test_one_bad_page_does_not_affect_the_others(wiki: SyncFixture, bad: bytes) -> None:
    pages: dict[str, str | bytes | None] = {
        "bad.md": bad,
        "number.md": "---\ntitle: 2024\ntags: [1, 2.5, null]\n---\nnumbers",
        "broken.md": "---\ntitle: [unclosed\n: : :\n---\nbroken yaml",
        "latin.md": "caf\xe9 society".encode("latin-1"),
        "nul.md": b"before\x00after text",
        "empty.md": "",
        "headings.md": "# Only\n## Headings\n### Here",
        "good.md": "perfectly fine",
    }
    wiki.repository.commit(pages)
    report = wiki.sync()
    assert [problem.file for problem in report.problems] == ["bad.md"]
    assert report.problems[0].detail
    assert wiki.find_paths("fine") == {"good"}
    assert wiki.find_paths("2024") == {"number"}
    assert wiki.find_paths("yaml") == {"broken"}
    assert wiki.find_paths("head") == {"headings"}


def test_a_page_over_the_limit_is_listed_with_its_size_and_indexed_when_it_shrinks(wiki: SyncFixture) -> None:
    wiki.pipeline = replace(wiki.pipeline, max_bytes=1000)
    wiki.repository.commit({"huge.md": "x " * 5000, "good.md": "fine"})
    report = wiki.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("huge.md", "too-large")]
    assert "10,000 bytes" in report.problems[0].detail
    wiki.repository.commit({"huge.md": "small now"})
    assert wiki.sync().problems == ()
    assert wiki.find_paths("small") == {"huge"}


def test_symlinks_are_listed_not_followed(wiki: SyncFixture) -> None:
    (wiki.repository.path / "link.md").symlink_to("/etc/hostname")
    wiki.repository.commit({"good.md": "fine"})
    report = wiki.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("link.md", "symlink")]


def test_the_problem_of_a_moved_or_deleted_file_is_removed(wiki: SyncFixture) -> None:
    wiki.repository.commit({"bad.md": b"\x00\x01\x02\xff" * 100, "good.md": "fine"})
    wiki.sync()
    wiki.repository.run_git("mv", "bad.md", "worse.md")
    wiki.repository.commit({})
    assert [p.file for p in wiki.sync().problems] == ["worse.md"]
    wiki.repository.commit({"worse.md": None})
    assert wiki.sync().problems == ()


def test_hidden_pages_are_indexed_but_not_found(wiki: SyncFixture) -> None:
    wiki.repository.commit({"secret.md": "---\nsearch: false\n---\nclassified", "good.md": "fine"})
    report = wiki.sync()
    assert report.added == 2
    assert wiki.find_paths("classified") == set()


def test_a_pattern_hides_and_shows_pages_without_embedding_them_again(wiki: SyncFixture) -> None:
    wiki.repository.commit({"drafts/plan.md": "classified", "drafts/open.md": "published", "good.md": "fine"})
    wiki.sync()
    assert wiki.find_paths("classified") == {"drafts/plan"}
    wiki.pipeline = TextPipeline(hide=("/drafts", "!open.md"))
    report = wiki.sync()
    assert (wiki.find_paths("classified"), wiki.find_paths("published")) == (set(), {"drafts/open"})
    assert report.chunks_embedded == 0
    wiki.pipeline = TextPipeline()
    wiki.sync()
    assert wiki.find_paths("classified") == {"drafts/plan"}


def test_a_model_that_fails_its_self_test_indexes_nothing(wiki: SyncFixture) -> None:
    class FailingSelfTest(FakeEmbedder):
        def run_self_test(self) -> None:
            raise ModelSelfTestFailed("unexpected vectors")

    wiki.embedder = FailingSelfTest()
    wiki.repository.commit({"a.md": "alpha"})
    with pytest.raises(ModelSelfTestFailed):
        wiki.sync()
    assert wiki.store.get_published(WIKI_ID) is None


def test_zero_or_nan_vectors_are_never_stored(wiki: SyncFixture) -> None:
    class BadVectors(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            vectors = super().embed_passages(texts)
            for row, text in enumerate(texts):
                if "poison" in text:
                    vectors[row] = np.nan if "nan" in text else 0
            return vectors

    wiki.embedder = BadVectors()
    wiki.repository.commit({"a.md": "poison", "b.md": "poison nan", "c.md": "fine"})
    report = wiki.sync()
    assert {p.file: p.reason for p in report.problems} == {"a.md": "failed", "b.md": "failed"}
    assert wiki.find_paths("fine") == {"c"}
    wiki.embedder = FakeEmbedder()
    assert wiki.sync().problems == (), "the next sync retries failed pages even if HEAD is the same"


def test_a_text_with_an_invalid_vector_does_not_affect_other_pages(wiki: SyncFixture) -> None:
    class RejectingModel(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            if any("cursed" in text for text in texts):
                raise ModelSelfTestFailed("an invalid vector")
            return super().embed_passages(texts)

    wiki.embedder = RejectingModel()
    wiki.repository.commit({"a.md": "cursed", "b.md": "fine"})
    assert [p.file for p in wiki.sync().problems] == ["a.md"]


def test_unchanged_problem_files_cost_nothing_in_an_incremental_sync(
    wiki: SyncFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wiki.repository.path / "link.md").symlink_to("/etc/hostname")
    wiki.repository.commit({"bad.md": b"\x00\x01\x02\xff" * 64, "good.md": "fine"})
    wiki.sync()
    requested: list[str] = []
    real = GitSource.read_file_histories

    def record(self: GitSource, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        requested.extend(files)
        return real(self, files, revision, since)

    monkeypatch.setattr(GitSource, "read_file_histories", record)
    wiki.repository.commit({"new.md": "brand new"})
    assert wiki.sync().added == 1
    assert requested == ["new.md"]


def test_a_text_that_the_model_rejects_does_not_affect_other_pages(wiki: SyncFixture) -> None:
    class RejectingModel(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            if any("cursed" in text for text in texts):
                raise RuntimeError("cannot")
            return super().embed_passages(texts)

    wiki.embedder = RejectingModel()
    wiki.repository.commit({"a.md": "cursed", "b.md": "fine"})
    assert [p.file for p in wiki.sync().problems] == ["a.md"]


def test_a_sync_that_is_lost_in_its_first_long_pages_keeps_what_it_has_embedded(wiki: SyncFixture) -> None:
    class LostModel(FakeEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> FloatArray:
            if len(self.embedded) > 350:
                raise ModelUnavailable("the process is gone", hint="")
            return super().embed_passages(texts)

    words = " ".join(f"word{number}" for number in range(150))
    part = f"## Part {{}} of {{}}\n\n{words}\n\n"
    pages = {f"page-{page:02}.md": "".join(part.format(number, page) for number in range(15)) for page in range(40)}
    wiki.repository.commit({**pages})
    with pytest.raises(ModelUnavailable):
        Syncer(WIKI_ID, wiki.store, wiki.source, LostModel(), wiki.pipeline, 1).sync()
    report = wiki.sync()
    assert report.pages == 40
    assert report.unchanged > 15
    wiki.assert_converged()


def test_a_model_that_returns_only_zero_vectors_fails_the_sync(wiki: SyncFixture) -> None:
    class ZeroVectors(FakeEmbedder):
        def embed_passages(self, texts: list[str]) -> FloatArray:  # type: ignore[override]
            return np.zeros((len(texts), self.dimensions), np.float32)

    wiki.embedder = ZeroVectors()
    wiki.repository.commit({"a.md": "alpha", "b.md": "beta"})
    with pytest.raises(ModelSelfTestFailed):
        wiki.sync()


@pytest.mark.slow
def test_a_page_that_needs_too_many_steps_is_listed_with_a_hint_and_the_others_are_indexed(wiki: SyncFixture) -> None:
    wiki.pipeline = replace(wiki.pipeline, max_bytes=400_000)
    wiki.repository.commit({"costly.md": "x\n" * 150_000, "good.md": "fine", "long.md": "fine words\n" * 20_000})
    report = wiki.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("costly.md", "too-costly")]
    assert "1,200,000 steps" in report.problems[0].detail
    assert "split it into several pages, or raise page.max_bytes" in report.problems[0].detail
    assert wiki.find_paths("fine") == {"good", "long"}
    wiki.repository.commit({"costly.md": "x\n" * 100})
    assert wiki.sync().problems == ()
    assert wiki.find_paths("x") == {"costly"}


def test_a_small_page_is_never_too_costly(wiki: SyncFixture) -> None:
    wiki.pipeline = replace(wiki.pipeline, max_bytes=20_000)
    wiki.repository.commit({"short-lines.md": "x\n" * 9_000, "one-word.md": "x" * 19_000})
    assert wiki.sync().problems == ()
    assert wiki.find_paths("x") == {"short-lines"}
