"""What an index file stores: rounded vectors, compressed texts, and rows that damage does not hide in."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wikiholt.domain.index import FloatArray, IndexChange, IndexedPageMove, Recipe, round_vectors
from wikiholt.errors import IndexCorrupt
from wikiholt.index import rows
from wikiholt.index.rows import decode_content, encode_content
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.schema import create_index_file, open_connection
from wikiholt.testing.fakes import FakeEmbedder, make_entry

EMBEDDER = FakeEmbedder()
LONG_TEXT = "The boiler needs water. " * 20
FLOATS = st.floats(-1, 1, width=32, allow_subnormal=False)
MATRICES = arrays.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 9)), elements=FLOATS)


@given(MATRICES)
def test_a_rounded_vector_stays_as_it_is(vectors: FloatArray) -> None:
    rounded = round_vectors(vectors)
    np.testing.assert_array_equal(round_vectors(rounded), rounded)
    encoded = rows.encode_vectors(rounded)
    np.testing.assert_array_equal(rows.decode_vectors(encoded, vectors.shape[1]), rounded)
    assert {len(vector) for vector in encoded} <= {rows.get_vector_bytes(vectors.shape[1])}
    largest = np.abs(vectors).max(axis=1, initial=0)
    np.testing.assert_array_less(np.abs(rounded - vectors).max(axis=1, initial=0), largest * 2**-14 + 2.0**-100)


def test_vectors_of_another_size_are_damage() -> None:
    encoded = rows.encode_vectors(EMBEDDER.embed_passages(["one", "two"]))
    with pytest.raises(IndexCorrupt):
        rows.decode_vectors([encoded[0], encoded[1][:-2]], EMBEDDER.dimensions)
    with pytest.raises(IndexCorrupt):
        rows.decode_vectors(encoded, EMBEDDER.dimensions + 1)


HEADINGS = ["[]", '["A\\nB", "C"]']


@pytest.mark.parametrize("text", ["", "short", LONG_TEXT, "日本語" * 40, "\0" * 60, "\n", "line\r\n" * 30 + "\x85end"])
@pytest.mark.parametrize("headings", HEADINGS)
@pytest.mark.parametrize("anchor", ["", "a-b", 'a\n"b'])
def test_a_chunk_is_the_same_after_it_was_stored(text: str, headings: str, anchor: str) -> None:
    encoded = encode_content(text, headings, anchor)
    assert decode_content(encoded) == (text, headings, anchor)
    assert isinstance(encoded, bytes) or len(encoded) < 50


def test_a_chunk_that_cannot_be_compressed_stays_a_text() -> None:
    text = "".join(map(chr, np.random.default_rng(1).permutation(90) + 33))
    assert encode_content(text, "[]", "") == f'[]\n""\n{text}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An index of two pages."""
    path = tmp_path / "g000001.sqlite"
    create_index_file(path, tmp_path.name, 1, Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test"))
    with closing(SqliteIndex(path)) as index:
        index.apply(
            IndexChange((make_entry("a.md", [LONG_TEXT, "b"], EMBEDDER), make_entry("c.md", [LONG_TEXT], EMBEDDER)))
        )
        assert index.check() == []
    return path


def alter(file: Path, statement: str) -> None:
    with closing(open_connection(file)) as db:
        db.execute(statement)


DAMAGE = {
    "most of a text": "chunks SET content = CAST(substr(content, 1, 9) || x'ff' AS BLOB) WHERE id = 1",
    "the end of a text": "chunks SET content = substr(content, 1, length(content) - 3) WHERE id = 1",
    "a text that is not compressed": "chunks SET content = CAST('plain' AS BLOB) WHERE id = 1",
    "bytes after a text": "chunks SET content = CAST(content || x'00' AS BLOB) WHERE id = 1",
    "a text without headings": "chunks SET content = 'plain' WHERE id = 1",
    "a hash": "chunks SET hash = CAST(x'00' || substr(hash, 2) AS BLOB) WHERE id = 1",
    "the words of a page": "page_words SET words = (SELECT words FROM page_words WHERE page_id = 2)",
    "the page of words": "page_words SET page_id = 9 WHERE page_id = 1",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_the_page_is_not_moved(what: str, file: Path) -> None:
    alter(file, f"UPDATE {DAMAGE[what]}")
    with closing(SqliteIndex(file)) as index:
        assert index.check()
        with pytest.raises(IndexCorrupt):
            index.apply(IndexChange(moved=(move("c.md"), move("a.md"))))
        assert sorted(index.get_page_blobs()) == ["a.md", "c.md"]
        index.apply(IndexChange(moved=(move("c.md"),)))
        assert sorted(index.get_page_blobs()) == ["a.md", "new/c.md"]


def move(file: str) -> IndexedPageMove:
    path = f"new/{file.removesuffix('.md')}"
    return IndexedPageMove(file, f"new/{file}", path, path, (), None, path, None)


def test_a_damaged_text_is_reported_when_it_is_read(file: Path) -> None:
    alter(file, f"UPDATE {DAMAGE['the end of a text']}")
    with closing(SqliteIndex(file)) as index, pytest.raises(IndexCorrupt):
        index.get_chunks([1])


def test_lost_words_are_reported_by_whatever_needs_them(file: Path) -> None:
    alter(file, "DELETE FROM page_words WHERE page_id = 1")
    with closing(SqliteIndex(file)) as index:
        with index.open_keywords() as keywords:
            for page_ids in (None, [1]):
                with pytest.raises(IndexCorrupt):
                    list(keywords.iter_terms(page_ids))
        for change in (IndexChange(deleted=("a.md",)), IndexChange((make_entry("a.md", ["new"], EMBEDDER),))):
            with pytest.raises(IndexCorrupt):
                index.apply(change)
        assert index.get_chunks([1])


def test_hashes_that_start_with_the_same_bytes_are_different(file: Path) -> None:
    hashes = (b"same" + b"1" * 12, b"same" + b"2" * 12)
    entry = replace(make_entry("d.md", ["one", "two"], EMBEDDER), hashes=hashes)
    with closing(SqliteIndex(file)) as index:
        index.apply(IndexChange((entry,)))
        found = index.find_vectors_by_hash([hashes[1], b"same" + b"3" * 12])
        assert list(found) == [hashes[1]]
        np.testing.assert_array_equal(found[hashes[1]], entry.vectors[1])


def test_ids_of_chunks_are_never_used_again(file: Path) -> None:
    with closing(SqliteIndex(file)) as index:
        index.apply(IndexChange(deleted=("a.md", "c.md")))
        index.apply(IndexChange((make_entry("d.md", ["one"], EMBEDDER),)))
        assert list(index.get_chunks(range(1, 9))) == [4]


@given(st.lists(st.text(st.sampled_from('ab",\\ \n[]é'))))
def test_strings_are_the_same_after_they_were_stored(strings: list[str]) -> None:
    assert rows.decode_strings(rows.encode_strings(strings)) == tuple(strings)
