"""Pages that helping processes prepare are those that this process would prepare, even if one of them is killed."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.index.process.test_page_workers import PIPELINE, TASKS, FastEmbedder
from tests.index.process.worker_tokenizers import DyingTokenizerFactory, make_tokenizer
from tests.index.sync_fixtures import SyncFixture
from wikiholt.domain.git import Blob
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import PageTokenizer
from wikiholt.index import batch
from wikiholt.index.page_helpers import PageHelpers, TaskBatch
from wikiholt.index.page_process import LARGE_PAGE_BYTES, PageProcess
from wikiholt.index.pipeline import PageTask

LARGE = PageTask("Large.md", Blob("c" * 40, LARGE_PAGE_BYTES, b"large text\n" * (LARGE_PAGE_BYTES // 10)), None)
MANY = [*TASKS[:30], LARGE, *TASKS[30:]] * 8
PROBLEM = PageProblem("Link.md", "d" * 40, "symlink", "")


def iter_batches() -> Iterator[TaskBatch]:
    for start in range(0, len(MANY), 50):
        yield MANY[start : start + 50], [PROBLEM]


def prepare_all(make: Callable[[], PageTokenizer]) -> list[Any]:
    pages = PageProcess(PIPELINE, make_tokenizer())
    with closing(pages), closing(PageHelpers(pages, PIPELINE, make, 2)) as helpers:
        for helper in helpers._helpers:
            assert helper.connection.poll(60)  # it is ready, so that it gets work
        return list(helpers.iter_prepared(iter_batches()))


def prepare_here() -> list[Any]:
    known = {task.file: PIPELINE.prepare(task, make_tokenizer()) for task in MANY}
    return [[*problems, *(known[task.file] for task in tasks)] for tasks, problems in iter_batches()]


def test_helpers_prepare_the_same_pages_in_order() -> None:
    assert prepare_all(make_tokenizer) == prepare_here()


def test_if_helpers_are_killed_no_page_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    assert prepare_all(DyingTokenizerFactory()) == prepare_here()
    assert "A process that prepares pages ended" in caplog.text


class SlowEmbedder(FastEmbedder):
    uses_gpu = False


def test_a_first_sync_with_a_helper_finds_words_and_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MIN_HELPED_PAGES", 10)
    monkeypatch.setattr(batch, "count_page_helpers", lambda: 1)
    fixture = SyncFixture(tmp_path)
    fixture.embedder = SlowEmbedder()
    fixture.repository.commit({task.file: task.blob.data for task in TASKS})
    report = fixture.sync()
    assert report.added == len(TASKS)
    assert report.chunks_embedded
    assert fixture.find_paths("word7") == {"Page 7"}
