"""PDF, HTML and Office files as pages: their text, their anchors, their problems, and what does not change them."""

import zipfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from random import Random

import pytest

from tests.support import documents
from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles
from wikiholt.documents import conversion, worker
from wikiholt.documents.conversion import UnreadableDocument, convert_document
from wikiholt.domain.search import SearchMode
from wikiholt.errors import InvalidPage
from wikiholt.index.reconciler import TRANSIENT_REASONS
from wikiholt.search.request import SearchRequest
from wikiholt.text.page_names import DOCUMENT_EXTENSIONS, PAGE_EXTENSIONS, get_file_extensions

REPORT = documents.make_pdf(
    ["The turbine is checked\nin spring and au-\ntumn.", "Grease the bearing."], "Annual report"
)
FILES: PageFiles = {
    "home.md": "# Home\n\nSee [the report](docs/report.pdf#page=2) and ![plan](docs/plan.docx).\n",
    "docs/report.pdf": REPORT,
    "docs/plan.docx": documents.make_docx(
        [("berschrift1", "Budget"), ("", "Forty crowns.")], [["Item", "Cost"], ["Nail", "2"]]
    ),
    "docs/locked.pdf": documents.make_pdf(["hidden words"], encrypted=True),
    "docs/scan.pdf": documents.make_pdf(["", ""]),
    "docs/torn.pdf": b"%PDF\0",
    "docs/empty.docx": documents.make_docx([]),
    "docs/old.xlsx": b"\xd0\xcf\x11\xe0" + b"\0" * 100,
}
PROBLEMS = {
    "docs/locked.pdf": "encrypted",
    "docs/scan.pdf": "scanned",
    "docs/torn.pdf": "damaged",
    "docs/empty.docx": "no-text",
    "docs/old.xlsx": "encrypted",
}


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path, FILES, extensions=(*PAGE_EXTENSIONS, *DOCUMENT_EXTENSIONS)).sync()
    yield made
    made.close()


def test_documents_are_pages_and_unreadable_ones_are_problems_with_a_reason(wiki: IndexedWiki) -> None:
    assert {page.path: page.name for page in wiki.pages.list().pages} == {
        "home": "Home",
        "docs/report.pdf": "Annual report",
        "docs/plan.docx": "Budget",
    }
    status = wiki.handle.get_status()
    assert {problem.file: problem.reason for problem in status.problems} == PROBLEMS
    assert all(problem.detail for problem in status.problems)
    assert status.documents == {".pdf": 4, ".docx": 2, ".xlsx": 1}
    assert status.skipped == {}


def test_a_page_of_a_pdf_is_its_anchor(wiki: IndexedWiki) -> None:
    page = wiki.pages.read("docs/report.pdf")
    assert page.content.endswith("checked\nin spring and autumn.\n\n## Page 2\n\nGrease the bearing.\n")
    assert [heading.anchor for heading in page.headings] == ["page=1", "page=2"]
    assert [(link.path, link.anchor) for link in page.linked_from] == [("home", "page=2")]
    assert wiki.pages.build_graph().missing == ()
    assert wiki.pages.read_file("docs/report.pdf").data == REPORT
    assert wiki.pages.read_file("docs/plan.docx").data == FILES["docs/plan.docx"]


def test_documents_are_never_written_as_text(wiki: IndexedWiki) -> None:
    for write in (
        lambda: wiki.pages.write("docs/report.pdf", "text", ADA),
        lambda: wiki.pages.append("docs/report.pdf", "text", ADA),
        lambda: wiki.pages.replace_text("docs/report.pdf", "Grease", "Oil", ADA),
    ):
        with pytest.raises(InvalidPage, match="document"):
            write()
    with pytest.raises(InvalidPage, match="keeps"):
        wiki.pages.rename("docs/report.pdf", "archive/report", ADA)
    wiki.pages.rename("docs/report.pdf", "archive/report.pdf", ADA)
    wiki.pages.rename("home", "start/home", ADA)
    assert wiki.pages.read_file("archive/report.pdf").data == REPORT
    assert "(../archive/report.pdf#page=2)" in wiki.pages.read("start/home").content
    with pytest.raises(InvalidPage, match="password"):
        wiki.pages.read("docs/locked.pdf")


def test_a_converter_that_dies_affects_only_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = "import os, sys\nif sys.argv[1] == '.pdf': os.kill(os.getpid(), 9)\n"
    monkeypatch.setattr(conversion, "_START", f"{kill}exec({conversion._START!r})")
    wiki = IndexedWiki(tmp_path, FILES, extensions=(*PAGE_EXTENSIONS, *DOCUMENT_EXTENSIONS)).sync()
    assert [page.path for page in wiki.pages.list().pages] == ["docs/plan.docx", "home"]
    reasons = {problem.file: problem.reason for problem in wiki.handle.get_status().problems}
    assert reasons["docs/report.pdf"] == "too-costly"
    monkeypatch.undo()
    wiki.close()


@pytest.mark.parametrize(
    ("file", "data", "expected"),
    [
        ("a.pptx", documents.make_pptx([("Plan", "Do it"), ("", "Rest")]),
         "## Slide 1: Plan\n\nDo it\n\n## Slide 2\n\nRest\n"),
        ("a.docx", documents.make_docx([("Titel", "Leave"), ("berschrift1", "Holidays"), ("", "Thirty days")]),
         '---\ntitle: "Leave"\n---\n\n# Holidays\n\nThirty days\n'),
        ("a.docx", documents.make_docx([("Titel", "Leave"), ("", "Thirty days")], title="Rules"),
         '---\ntitle: "Rules"\n---\n\n# Leave\n\nThirty days\n'),
        ("a.xlsx", documents.make_xlsx("Costs", [["Item", "Price"], ["Nail", "2|3"]]),
         "## Costs\n\n| Item | Price |\n| --- | --- |\n| Nail | 2\\|3 |\n"),
        ("a.odt", documents.make_odt("Soil", "Dark"), "## Soil\n\nDark end\n"),
        ("A.EPUB", documents.make_epub("Bees", ["<h1>One</h1><p>Hum &amp; fly", "<p>Two</p>"]),
         '---\ntitle: "Bees"\n---\n\n# One\n\nHum & fly\n\nTwo\n'),
        ("a.htm", b"<meta charset=latin1><title>T\xe9</title><nav>x</nav><h2>A</h2>b <b>c</b><ul><li>d<li>e</ul>"
         b"<table><tr><th>1<td>2<tr><td>3</table><pre> x\n y</pre><script>no</script>",
         '---\ntitle: "T\xe9"\n---\n\n## A\n\nb c\n\n- d\n\n- e\n\n| 1 | 2 |\n| --- | --- |\n| 3 |  |\n\n'
         "``````\n x\n y\n``````\n"),
        ("a.html", b"# no heading <p>1 &lt;i> `x` [[y]]\n---\n", "\\# no heading\n\n1 \\<i> \\`x\\` \\[[y]] ---\n"),
    ],
    ids=["pptx", "docx", "docx with a title", "xlsx", "odt", "epub", "htm", "html"],
)  # fmt: skip
def test_the_text_of_each_format(file: str, data: bytes, expected: str) -> None:
    assert convert_document(file, data).text == expected


def test_missing_pages_of_a_pdf_are_warnings() -> None:
    found = convert_document("a.pdf", documents.make_pdf(["One", "", "Three"]))
    assert found.warnings == ("1 of 3 pages have no text: they are empty or pictures, such as scans",)
    assert "## Page 3\n\nThree" in found.text


def test_bombs_and_broken_archives_end_at_a_limit() -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><document>&b;</document>'
    huge = BytesIO()
    with zipfile.ZipFile(huge, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as member:
        for _ in range(80):
            member.write(b" " * 1024**2)
    deep = "<a>" * 200_000
    cases = {
        "damaged": documents.make_archive({"word/document.xml": bomb}),
        "too-costly": huge.getvalue(),
    }
    for reason, data in cases.items():
        with pytest.raises(UnreadableDocument) as raised:
            convert_document("a.docx", data)
        assert raised.value.reason == reason
    for data in (
        documents.make_archive({"word/document.xml": deep}),
        documents.make_archive({"x": "y"}),
        b"",
        b"PK\x03\x04",
    ):
        with pytest.raises(UnreadableDocument):
            convert_document("a.docx", data)


def test_the_worker_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    start = conversion._START.replace("worker.convert", "worker._MAX_MEMORY_BYTES = 300 * 1024**2; worker.convert")
    monkeypatch.setattr(conversion, "_START", start)
    with pytest.raises(UnreadableDocument) as raised:
        convert_document("a.html", b"<p>" + b"word " * 30_000_000)
    assert raised.value.reason == "too-costly"
    assert worker._MAX_MEMORY_BYTES > 1024**3


def test_a_process_whose_service_was_killed_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = "worker._MAX_S = 1; worker.read_document = lambda *_, **__: __import__('time').sleep(600); worker.convert"
    monkeypatch.setattr(conversion, "_START", conversion._START.replace("worker.convert", wait))
    with pytest.raises(UnreadableDocument, match="code -14"):
        convert_document("a.pdf", REPORT)


def test_a_process_that_cannot_start_now_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_START", "raise MemoryError")
    with pytest.raises(UnreadableDocument) as raised:
        convert_document("a.pdf", REPORT)
    assert raised.value.reason in TRANSIENT_REASONS


def test_the_setting_names_kinds_of_documents() -> None:
    assert get_file_extensions(["none"]) == ()
    assert get_file_extensions(["docs"]) == DOCUMENT_EXTENSIONS
    assert get_file_extensions(["PDF", ".html"]) == (".pdf", ".html", ".htm")


def test_a_search_finds_the_page_of_a_pdf(wiki: IndexedWiki) -> None:
    (hit,) = wiki.handle.search(SearchRequest("bearing", mode=SearchMode.KEYWORD)).hits
    assert (hit.path, hit.anchor, hit.url) == ("docs/report.pdf", "page=2", "/docs/report.pdf#page=2")


def test_the_process_gets_nothing_but_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIKIHOLT_SECRET", "canary")
    shown = "{'text': str(sorted(os.environ)) + str(os.listdir('/proc/self/fd')), 'warnings': []}"
    monkeypatch.setattr(conversion, "_START", f"import json, os; print(json.dumps({shown}))")
    variables, _, descriptors = convert_document("a.pdf", REPORT).text.partition("][")
    assert variables in ("[", "['LC_CTYPE'")
    assert len(descriptors.split(",")) == 4, "the three standard ones and that of the listing"


def test_damaged_documents_raise_nothing_else() -> None:
    random = Random(3)
    for file in ("a.pdf", "a.docx", "a.html"):
        data = REPORT if file == "a.pdf" else FILES["docs/plan.docx"]
        assert isinstance(data, bytes)
        for _ in range(6):
            at, length = random.randrange(len(data)), random.randrange(200)
            with suppress(UnreadableDocument):
                convert_document(file, data[:at] + random.randbytes(length) + data[at + length :])
