"""A page that keeps a library busy is ended after a limit of time, and only this page is not indexed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.index.process.slow_pipeline import SLOW_PAGE, SlowPipeline
from tests.index.sync_fixtures import SyncFixture
from wikiholt.domain.git import Blob
from wikiholt.index import page_process
from wikiholt.index.page_process import LARGE_PAGE_BYTES, PageProcess
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.testing import FakeEmbedder

_LARGE_TEXT = ("# Kettle\n\nIt is descaled *every* month, see [[Filter]]. Größe, 漢字.\n\n" * 1_200).encode()
_SCRIPT = """
from tests.index.process.slow_pipeline import SLOW_PAGE, SlowPipeline
from wikiholt.domain.git import Blob
from wikiholt.index import page_process
from wikiholt.index.pipeline import PageTask
from wikiholt.testing import FakeEmbedder
page_process.LIMIT_S = 3.0
pages = page_process.PageProcess(SlowPipeline(), FakeEmbedder())
pages.prepare(PageTask("a.md", Blob("a" * 40, 70_000, b"word " * 14_000), None))
print(pages._running[0].pid, flush=True)
pages.prepare(PageTask("b.md", Blob("b" * 40, len(SLOW_PAGE), SLOW_PAGE), None))
"""


def make_task(data: bytes, file: str = "Kettle.md") -> PageTask:
    return PageTask(file, Blob("c" * 40, len(data), data), None)


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the process is still there"
        time.sleep(0.05)


def test_a_large_page_is_prepared_as_in_this_process() -> None:
    task = make_task(_LARGE_TEXT)
    expected = TextPipeline().prepare(task, FakeEmbedder())
    with PageProcess(TextPipeline(), FakeEmbedder()) as pages:
        assert pages.prepare(task) == expected
        assert pages._running is not None
        pid = pages._running[0].pid
        assert pages.prepare(make_task(b"\xff\x00" * LARGE_PAGE_BYTES)) == TextPipeline().prepare(
            make_task(b"\xff\x00" * LARGE_PAGE_BYTES), FakeEmbedder()
        )
        assert pages._running[0].pid == pid
    assert isinstance(expected, PreparedPage)
    assert not Path(f"/proc/{pid}").exists()


def test_a_page_that_takes_too_long_is_listed_and_the_others_are_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_process, "LIMIT_S", 1.5)
    wiki = SyncFixture(tmp_path)
    wiki.pipeline = SlowPipeline()
    wiki.repository.commit({"a-slow.md": SLOW_PAGE, "long.md": _LARGE_TEXT, "short.md": b"A kettle.\n"})
    report = wiki.sync()
    assert [(p.file, p.reason) for p in report.problems] == [("a-slow.md", "too-costly")]
    assert "more than 2 seconds of CPU time; split it into several pages" in report.problems[0].detail
    assert wiki.find_paths("kettle") == {"long", "short"}


def test_an_error_of_the_tokenizer_affects_only_its_page() -> None:
    class FailingEmbedder(FakeEmbedder):
        def get_token_spans(self, text: str) -> list[tuple[int, int]]:
            raise OSError("no tokens")

    with PageProcess(TextPipeline(), FailingEmbedder()) as pages:
        problem = pages.prepare(make_task(_LARGE_TEXT))
    assert problem == TextPipeline().prepare(make_task(_LARGE_TEXT), FailingEmbedder())


def test_without_a_process_large_pages_are_prepared_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with PageProcess(TextPipeline(), FakeEmbedder()) as pages:
        for _ in range(2):
            assert isinstance(pages.prepare(make_task(_LARGE_TEXT)), PreparedPage)
    assert caplog.text.count("without a limit of time") == 1


@pytest.mark.parametrize("is_busy", [True, False])
def test_no_process_is_left_if_the_service_is_killed(is_busy: bool) -> None:
    script = _SCRIPT if is_busy else _SCRIPT.replace('pages.prepare(PageTask("b.md"', 'input();(("b.md"')
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        service.kill()
    wait_for_end(pid)
