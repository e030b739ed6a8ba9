"""A page that moved is in the index as it would be if it were prepared from its blob."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.index.sync_fixtures import LONG_TEXT, WIKI_ID, SyncFixture
from tests.text.markdown_samples import MALFORMED_TEXTS, markdown_texts
from wikiholt.domain.git import Blob
from wikiholt.domain.index import IndexChange, IndexedPageMove, PageContents, PageEntry
from wikiholt.errors import IndexCorrupt
from wikiholt.index.batch import Pause, SyncPaused
from wikiholt.index.moved_pages import plan_move
from wikiholt.index.page_table import (
    CONTENTS_COLUMNS,
    PageRow,
    move_page_row,
    to_page_columns,
    to_page_contents,
)
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.index.sync import Syncer
from wikiholt.testing import FakeEmbedder
from wikiholt.text.dialect import DIALECTS
from wikiholt.text.frontmatter import UPDATED_KEYS

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
    "---\nslug: well\nlang: de\n---\n",
)
PIPELINES = (
    *(TextPipeline(dialect=dialect) for dialect in DIALECTS.values()),
    TextPipeline(hide=("a/*",)),
    TextPipeline(language="english+german"),
)


def make_contents(prepared: PreparedPage) -> PageContents:
    row = to_row(prepared)
    values = [row._asdict()[name] for name in CONTENTS_COLUMNS.split(", ")]
    return to_page_contents(values, prepared.page.links)


def to_row(prepared: PreparedPage) -> PageRow:
    """What a store writes of a page itself."""
    vectors = np.zeros((len(prepared.chunks), EMBEDDER.dimensions), np.float32)
    entry = PageEntry(prepared.blob, prepared.page, prepared.chunks, prepared.hashes, vectors, prepared.terms)
    columns = to_page_columns(entry) | {"id": 1, "version": 1}
    return PageRow._make(columns[name] for name in PageRow._fields)


def move(text: str, old: str, new: str, pipeline: TextPipeline, former: tuple[str, ...] = ()) -> IndexedPageMove | None:
    """Prepare the page at its old file, then move it. If it can be moved, compare it with the page at its new file."""
    data = text.encode("utf-8", "surrogatepass")
    blob = Blob("1" * 40, len(data), data)
    task = PageTask(new, blob, DATE, former)
    before = pipeline.prepare(PageTask(old, blob, None), EMBEDDER)
    after = pipeline.prepare(task, EMBEDDER)
    if not isinstance(before, PreparedPage):
        return None
    moved = plan_move(pipeline, task, old, make_contents(before))
    if moved is not None:
        assert isinstance(after, PreparedPage)
        terms = replace(before.terms, name=moved.name_terms)
        assert move_page_row(to_row(before), moved, terms, 1) == to_row(after)
        assert (before.page.links if moved.links is None else moved.links) == after.page.links
        assert (before.chunks, before.hashes) == (after.chunks, after.hashes)
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
    assert moved is None or moved.file == new


@pytest.mark.parametrize("name", [name for name, text in MALFORMED_TEXTS.items() if len(text) < 20_000])
def test_a_moved_malformed_page_equals_the_page_prepared_at_its_new_file(name: str) -> None:
    moved = move(MALFORMED_TEXTS[name], "a/x.md", "b/c/x.md", TextPipeline(), ("a/x.md",))
    assert moved is None or moved.file == "b/c/x.md"


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
        tables = ("page_words", "chunks", "tags", "links")
        rows: list[object] = []
        for page in pages:
            number = page.pop("id")
            page.pop("version")
            rows.append(page)
            for table in tables:
                found = db.execute(f"SELECT * FROM {table} WHERE page_id = ?", (number,))
                ids = ("id", "page_id", "chunk_id", "checksum")
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


def test_a_page_keeps_its_id_and_its_chunks_when_it_moves(tmp_path: Path) -> None:
    wiki = SyncFixture(tmp_path)
    wiki.repository.commit({"old/a.md": PARTS[3] + PARTS[8], "b.md": "beta"})
    wiki.sync()
    file = next(wiki.store.get_directory(WIKI_ID).glob("g*.sqlite"))
    sql = "SELECT page_id, chunks.id FROM pages JOIN chunks ON page_id = pages.id WHERE file = ?"
    with sqlite3.connect(file) as db:
        before = db.execute(sql, ("old/a.md",)).fetchall()
    wiki.repository.run_git("mv", "old", "new")
    wiki.repository.commit({})
    report = wiki.sync()
    assert (report.moved, report.chunks_reused, report.chunks_embedded) == (1, len(before), 0)
    with sqlite3.connect(file) as db:
        assert db.execute(sql, ("new/a.md",)).fetchall() == before


def test_moves_of_many_pages_can_be_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikiholt.index.batch._MOVED_BATCH_PAGES", 2)
    wiki = SyncFixture(tmp_path)
    wiki.repository.commit({f"old/{number}.md": f"# Page {number}" for number in range(5)})
    wiki.sync()
    wiki.repository.run_git("mv", "old", "new")
    wiki.repository.commit({})
    syncer = Syncer(WIKI_ID, wiki.store, wiki.source, wiki.embedder, wiki.pipeline, 0.05)
    with pytest.raises(SyncPaused):
        syncer.sync(pause=lambda: Pause.AFTER_BATCH)
    with closing(wiki.store.open(WIKI_ID)) as index:
        assert sorted(index.get_page_blobs()) == ["new/0.md", "new/1.md", "old/2.md", "old/3.md", "old/4.md"]
        assert index.check() == []
    assert wiki.sync().moved == 3


def test_a_page_whose_blob_is_needed_and_cannot_be_read_is_not_moved(tmp_path: Path) -> None:
    wiki = SyncFixture(tmp_path)
    blob = Blob("1" * 40, -1, None)
    contents = PageContents("a", False, (), (), (), frozenset(), 1, ())
    assert plan_move(wiki.pipeline, PageTask("b.md", blob, DATE), "a.md", contents) is None
    assert plan_move(wiki.pipeline, PageTask("b/a.md", blob, DATE), "a.md", contents) is not None


def test_a_damaged_page_is_not_moved(tmp_path: Path) -> None:
    wiki = SyncFixture(tmp_path)
    wiki.repository.commit({"a.md": "alpha", "b.md": "beta"})
    wiki.sync()
    file = next(wiki.store.get_directory(WIKI_ID).glob("g*.sqlite"))
    with sqlite3.connect(file) as db:
        db.execute("UPDATE chunks SET content = replace(content, 'alpha', 'alpho') WHERE content LIKE '%alpha'")
    moves = [
        IndexedPageMove(f"{name}.md", f"new/{name}.md", f"new/{name}", name, (), None, name, None) for name in "ba"
    ]
    with closing(wiki.store.open(WIKI_ID)) as index:
        with pytest.raises(IndexCorrupt, match="page 1 is not as it was written"):
            index.apply(IndexChange(moved=tuple(moves)))
        assert sorted(index.get_page_blobs()) == ["a.md", "b.md"]


@pytest.mark.parametrize("key", [*UPDATED_KEYS, "alias", "aliases"])
def test_a_page_keeps_its_own_date_and_aliases(key: str) -> None:
    for spelling in (key, key.upper(), "-".join(key), f'"{key}"', f"? {key}\n", "_" * 600 + key):
        for value in ("2020-01-02", "[2020-01-02]", f"'2020-01-02{' ' * 600}'", "null", "{a: 2020-01-02}"):
            text = f"---\n{spelling}: {value}\n---\n# Title\n"
            assert move(text, "a/home.md", "b/home.md", TextPipeline(), ("a/home.md",)) is not None
