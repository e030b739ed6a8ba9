"""Documents that are converted when somebody reads them: seldom, and few at once."""

import threading
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki
from tests.support.wait import wait_until
from wikiholt.documents.conversion import ConvertedDocument
from wikiholt.errors import TooManyRequests
from wikiholt.index import pipeline
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.page_names import PAGE_EXTENSIONS
from wikiholt.wikis.pages import page_reader


@pytest.fixture
def wiki(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexedWiki:
    monkeypatch.setattr(pipeline, "convert_document", lambda *_, **__: ConvertedDocument(""))
    extensions = (*PAGE_EXTENSIONS, ".png", ".pdf")
    made = IndexedWiki(tmp_path, None, pipeline=TextPipeline(reads_pictures=True), extensions=extensions)
    made.repository.commit({"Home.md": "# Home\n", "photo.png": b"png", "old.pdf": b"pdf"})
    made.repository.commit({"old.pdf": b"another"})
    return made.sync()


def test_a_picture_without_text_is_not_recognized_again_whenever_it_is_read(
    wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_reader, "convert_document", lambda *_, **__: pytest.fail("it is in the index"))
    assert "photo" in wiki.pages.read("photo.png").content


def test_few_documents_are_converted_at_once(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, running = threading.Event(), list[str]()

    def convert(file: str, *_: object, **__: object) -> ConvertedDocument:
        running.append(file)
        may_end.wait(30)
        return ConvertedDocument("The text.")

    monkeypatch.setattr(page_reader, "convert_document", convert)
    monkeypatch.setattr(page_reader, "_MAX_WAIT_S", 0.1)
    first = wiki.repository.run_git("rev-parse", "HEAD~1").decode().strip()
    threads = [threading.Thread(target=wiki.pages.read, args=("old.pdf", first)) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(running) == 4)
    with pytest.raises(TooManyRequests):
        wiki.pages.read("old.pdf", first)
    may_end.set()
    for thread in threads:
        thread.join()
    assert "The text." in wiki.pages.read("old.pdf", first).content
