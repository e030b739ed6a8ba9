"""A page that moved is prepared from the index as it would be from its blob."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.indexing.sync_fixtures import LONG_TEXT, WIKI_ID, SyncFixture
from tests.text.markdown_samples import MALFORMED_TEXTS, markdown_texts
from wikiholt.domain.git import Blob
from wikiholt.domain.index import PageContents, PageEntry
from wikiholt.indexing.moved_pages import prepare_moved
from wikiholt.indexing.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.storage.page_table import to_page_columns
from wikiholt.testing import FakeEmbedder
from wikiholt.text.dialect import DIALECTS

EMBEDDER = FakeEmbedder()
DATE = datetime(2024, 5, 6, tzinfo=UTC)
FILES = ("home.md", "a/home.md", "a/b/index.md", "b/Pump_Room.md", "b/pump-room.mdx", "c/notes.txt", "x___y.md")
PARTS = (
    "---\ntitle: The pump\naliases: [Well]\n---\n",
    "---\ndate: 2020-01-02\ntags: [water]\n---\n",
    "---\nhidden: true\n---\n",
    "# Heading [x](../y.md)\n\n",
    "See [a](other.md#part), [b](/root.md), [c](../up.md?x=1) and <https://example.org>.\n\n",
    "[[Home]] [[Text|Target]] [[./near|../far]] [[/from root|Text]]\n\n",
    "[[a\tb]]\n\n",
    "#tag and key:: value\n\n",
    LONG_TEXT[:900] + "\n\n",
)
PIPELINES = (
    *(TextPipeline(dialect=dialect) for dialect in DIALECTS.values()),
    TextPipeline(hide=("a/*",)),
    TextPipeline(language="english+german"),
)


def make_contents(prepared: PreparedPage) -> PageContents:
    page = prepared.page
    vectors = np.zeros((len(prepared.chunks), EMBEDDER.dimensions), np.float32)
    stored = (page.name, page.warnings, page.words, page.length)
    return PageContents(*stored, prepared.chunks, prepared.hashes, vectors, prepared.terms, page.links)


def to_rows(prepared: PreparedPage) -> tuple[object, ...]:
    """What a store writes of a page."""
    vectors = np.zeros((len(prepared.chunks), EMBEDDER.dimensions), np.float32)
    entry = PageEntry(prepared.blob, prepared.page, prepared.chunks, prepared.hashes, vectors, prepared.terms)
    return to_page_columns(entry), prepared.chunks, prepared.hashes, prepared.page.links


def move(text: str, old: str, new: str, pipeline: TextPipeline, former: tuple[str, ...] = ()) -> PreparedPage | None:
    """Prepare the page at its old file, then move it. If it can be moved, compare it with the page at its new file."""
    data = text.encode("utf-8", "surrogatepass")
    blob = Blob("1" * 40, len(data), data)
    task = PageTask(new, blob, DATE, former)
    before = pipeline.prepare(PageTask(old, blob, None), EMBEDDER)
    after = pipeline.prepare(task, EMBEDDER)
    if not isinstance(before, PreparedPage) or before.page.metadata.hidden:
        return None
    moved = prepare_moved(pipeline, task, old, make_contents(before))
    if moved is not None:
        assert isinstance(after, PreparedPage)
        assert to_rows(moved) == to_rows(after)
    return moved


@given(
    st.lists(st.sampled_from(PARTS), max_size=5).map("".join) | markdown_texts,
    st.sampled_from(FILES),
    st.sampled_from(FILES),
    st.sampled_from(PIPELINES),
    st.booleans(),
)
def test_a_moved_page_equals_the_page_prepared_at_its_new_file(
    text: str, old: str, new: str, pipeline: TextPipeline, has_former: bool
) -> None:
    moved = move(text, old, new, pipeline, (old,) if has_former else ())
    assert moved is None or moved.page.file == new


@pytest.mark.parametrize("name", [name for name, text in MALFORMED_TEXTS.items() if len(text) < 20_000])
def test_a_moved_malformed_page_equals_the_page_prepared_at_its_new_file(name: str) -> None:
    moved = move(MALFORMED_TEXTS[name], "a/x.md", "b/c/x.md", TextPipeline(), ("a/x.md",))
    assert moved is None or moved.page.file == "b/c/x.md"


def test_common_moves_need_no_preparation() -> None:
    page = "".join(PARTS[i] for i in (0, 3, 4, 5, 8))
    assert move(page, "a/home.md", "b/other.md", TextPipeline()) is not None
    assert move(PARTS[3] + PARTS[8], "a/home.md", "b/other.md", TextPipeline()) is not None
    assert move(PARTS[8], "a/home.md", "b/home.md", TextPipeline()) is not None
    assert move(PARTS[8], "a/home.md", "b/other.md", TextPipeline()) is None, "its name was that of the file"


def read_rows(file: Path) -> list[object]:
    """The contents of an index without its ids and versions."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        pages = [dict(row) for row in db.execute("SELECT * FROM pages ORDER BY file")]
        tables = ("page_words", "chunks", "vectors", "tags", "links")
        rows: list[object] = []
        for page in pages:
            number = page.pop("id")
            page.pop("version")
            rows.append(page)
            for table in tables:
                found = db.execute(f"SELECT * FROM {table} WHERE page_id = ?", (number,))
                ids = ("id", "page_id", "chunk_id")
                rows.append(sorted(repr([row[key] for key in row.keys() if key not in ids]) for row in found))  # noqa: SIM118
        return rows


def test_an_index_after_a_renamed_directory_equals_one_built_from_nothing(tmp_path: Path) -> None:
    wiki = SyncFixture(tmp_path / "moved")
    pages = {f"old/{number}.md": "".join(PARTS[i] for i in (number % 2, 3, 4, 5, 6, 8)) for number in range(6)}
    wiki.repository.commit(pages | {"old/plain.md": "No name.", "keep.md": "[x](old/1.md)"})
    wiki.sync()
    wiki.repository.run_git("mv", "old", "new")
    wiki.repository.commit({})
    assert wiki.sync().moved == 7
    fresh = SyncFixture(tmp_path / "fresh")
    fresh.repository, fresh.source = wiki.repository, wiki.source
    fresh.sync()
    files = [next((fixture.store.get_directory(WIKI_ID)).glob("g*.sqlite")) for fixture in (wiki, fresh)]
    assert read_rows(files[0]) == read_rows(files[1])


def test_a_damaged_page_is_not_taken_over(tmp_path: Path) -> None:
    wiki = SyncFixture(tmp_path)
    wiki.repository.commit({"a.md": "alpha", "b.md": "beta"})
    wiki.sync()
    file = next(wiki.store.get_directory(WIKI_ID).glob("g*.sqlite"))
    with sqlite3.connect(file) as db:
        db.execute("UPDATE chunks SET content = replace(content, 'alpha', 'alpho') WHERE content LIKE '%alpha'")
    with closing(wiki.store.open(WIKI_ID)) as index:
        assert index.get_page_contents(["a.md", "b.md"]).keys() == {"b.md"}
