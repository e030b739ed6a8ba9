"""Pages that worker processes prepare are those that this process would prepare, even if a worker is killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.index.process.worker_tokenizers import DyingTokenizerFactory, make_tokenizer
from tests.index.sync_fixtures import SyncFixture
from wikiholt.domain.git import Blob
from wikiholt.domain.protocols import PageTokenizer
from wikiholt.index import batch
from wikiholt.index.page_workers import PageWorkers
from wikiholt.index.pipeline import PageTask, TextPipeline
from wikiholt.testing.fakes import FakeEmbedder

PIPELINE = TextPipeline()
TASKS = [
    PageTask(f"Page {n}.md", Blob(f"{n:040}", 60, f"# Page {n}\n\nWord{n} and [[Page {n + 1}]].\n".encode()), None)
    for n in range(60)
] + [PageTask("Bad.md", Blob("b" * 40, 3, b"\xff\xfe\x00"), None)]


def test_workers_prepare_the_same_pages_in_order() -> None:
    expected = [PIPELINE.prepare(task, make_tokenizer()) for task in TASKS]
    workers = PageWorkers(PIPELINE, make_tokenizer(), make_tokenizer, 2)
    try:
        assert workers.submit(TASKS)() == expected
    finally:
        workers.close()


def test_if_a_worker_is_killed_no_page_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    factory = DyingTokenizerFactory()
    workers = PageWorkers(PIPELINE, factory(), factory, 2)
    try:
        first = workers.submit(TASKS)()
        second = workers.submit(TASKS[:5])()
    finally:
        workers.close()
    assert first == [PIPELINE.prepare(task, make_tokenizer()) for task in TASKS]
    assert second == first[:5]
    assert caplog.text.count("prepares pages died") == 1


class FastEmbedder(FakeEmbedder):
    """Embeds as fast as a GPU, so that pages are prepared in other processes."""

    uses_gpu = True

    def get_tokenizer_factory(self) -> Callable[[], PageTokenizer]:
        return make_tokenizer


def test_a_sync_with_workers_converges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MIN_PAGES", 10)
    monkeypatch.setattr(batch, "count_page_workers", lambda: 2)
    started: list[PageWorkers] = []

    def start(*given: Any) -> PageWorkers:
        started.append(PageWorkers(*given))
        return started[-1]

    monkeypatch.setattr(batch, "PageWorkers", start)
    fixture = SyncFixture(tmp_path)
    fixture.embedder = FastEmbedder()
    fixture.repository.commit({task.file: task.blob.data for task in TASKS})
    report = fixture.sync()
    assert len(started) == 1
    assert report.added == len(TASKS)
    assert fixture.find_paths("word7") == {"Page 7"}
