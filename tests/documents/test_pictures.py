"""The text of pictures and of scanned PDF: found, read from the index, limited in size, and off by default."""

from collections.abc import Iterator

import pytest

from tests.support.documents import make_pdf, make_picture
from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.documents import picture_reader
from wikiholt.documents.conversion import UnreadableDocument, convert_document
from wikiholt.domain.search import SearchMode
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.page_names import PAGE_EXTENSIONS, PICTURE_EXTENSIONS
from wikiholt.wikis.pages import page_reader

SIZE = (420, 90)
FILES: PageFiles = {
    "home.md": "# Home\n\n![The plan](plan.png)\n",
    "plan.png": make_picture("Grease the bearing weekly", size=SIZE),
    "empty.jpg": make_picture("", "JPEG"),
    "torn.png": make_picture("Torn")[:60],
    "scan.pdf": make_picture("Invoice of the turbine", "PDF", SIZE),
    "text.pdf": make_pdf(["Plain words", ""], "A title"),
}


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedWiki]:
    extensions = (*PAGE_EXTENSIONS, ".pdf", *PICTURE_EXTENSIONS)
    pipeline = TextPipeline(reads_pictures=True)
    made = IndexedWiki(tmp_path_factory.mktemp("pictures"), FILES, pipeline=pipeline, extensions=extensions).sync()
    yield made
    made.close()


@pytest.mark.slow
def test_the_text_of_a_picture_is_found_at_the_picture(wiki: IndexedWiki) -> None:
    for query, place in (("grease bearing", ("plan.png", "")), ("invoice turbine", ("scan.pdf", "page=1"))):
        (hit,) = wiki.handle.search(SearchRequest(query, mode=SearchMode.KEYWORD)).hits
        assert (hit.path, hit.anchor) == place
    assert [link.path for link in wiki.pages.read("plan.png").linked_from] == ["home"]
    assert wiki.pages.read_file("plan.png").data == FILES["plan.png"]


@pytest.mark.slow
def test_a_picture_without_text_is_no_problem_and_a_damaged_one_is(wiki: IndexedWiki) -> None:
    assert {problem.file: problem.reason for problem in wiki.handle.get_status().problems} == {"torn.png": "damaged"}
    assert {page.path for page in wiki.pages.list().pages} == FILES.keys() - {"torn.png", "home.md"} | {"home"}


@pytest.mark.slow
def test_a_page_is_shown_without_recognizing_its_text_again(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_reader, "convert_document", lambda *_, **__: pytest.fail("it is read again"))
    scan, text = wiki.pages.read("scan.pdf"), wiki.pages.read("text.pdf")
    assert "Invoice of the turbine" in scan.content
    assert [heading.anchor for heading in scan.headings] == ["page=1"]
    assert (text.name, text.content.endswith("## Page 1\n\nPlain words\n")) == ("A title", True)


def test_long_recognized_text_is_shown_once() -> None:
    words = " ".join(f"word{number}" for number in range(600))
    text = f"## Page 1\n\n{words}.\n\n## Page 2\n\nEnd."
    pipeline = TextPipeline()
    page = pipeline.parse("a.pdf", "", text.encode(), None)
    prepared = pipeline._prepare_page(page, "", FakeEmbedder(), words_only=True)  # type: ignore[arg-type]
    assert len(prepared.chunks) > 3
    assert " ".join(page_reader._join_chunks(prepared.chunks).split()) == " ".join(text.split())  # type: ignore[arg-type]


def test_pictures_are_not_read_if_the_setting_does_not_name_them() -> None:
    with pytest.raises(UnreadableDocument, match="names pictures") as raised:
        convert_document("scan.pdf", make_picture("Invoice", "PDF"))
    assert raised.value.reason == "scanned"
    recipe = TextPipeline(reads_pictures=True).build_recipe(FakeEmbedder())
    assert TextPipeline.from_recipe(recipe) == TextPipeline(reads_pictures=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_picture("x", size=(8_000, 7_000)), "too-large"),
        (b"", "damaged"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "damaged"),
        (b"GIF89a" + b"\xff" * 60, "damaged"),
    ],
    ids=["large", "empty", "no header", "noise"],
)
def test_pictures_that_cannot_be_read_are_problems(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableDocument) as raised:
        convert_document("a.png", data, reads_pictures=True)
    assert raised.value.reason == reason


def test_a_long_scan_ends_at_the_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_reader, "_MAX_CPU_S", 0.0)
    assert list(picture_reader.read_scans(None, [0, 1])) == []
