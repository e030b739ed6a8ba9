"""Integrity checks of an index file: nothing torn, missing, left over or changed."""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from wikiholt.domain.page import PageProblem
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.errors import IndexCorrupt
from wikiholt.index import rows
from wikiholt.index.page_table import PageRow, compute_page_checksum, get_answer_values
from wikiholt.index.rows import compute_problem_checksum, compute_row_checksum, describe_error, is_row_intact
from wikiholt.index.sqlite.connections import select_in_batches
from wikiholt.index.sqlite.index_writer import read_page_parts
from wikiholt.index.sqlite.queries import build_any_expression
from wikiholt.index.sqlite.schema import FTS_TABLE, WORD_FIELDS, is_state_corrupt

_ZERO_COUNTS = (
    ("chunks without a page", "SELECT count(*) FROM chunks WHERE page_id NOT IN (SELECT id FROM pages)"),
    ("pages without words", "SELECT count(*) FROM pages WHERE id NOT IN (SELECT page_id FROM page_words)"),
    ("words without a page", "SELECT count(*) FROM page_words WHERE page_id NOT IN (SELECT id FROM pages)"),
    ("pages without terms", "SELECT count(*) FROM pages WHERE id NOT IN (SELECT id FROM words_docsize)"),
    ("terms without a page", "SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT id FROM pages)"),
    ("files both indexed and listed as a problem", "SELECT count(*) FROM problems JOIN pages USING (file)"),
    (
        "pages with missing chunks",
        "SELECT count(*) FROM pages WHERE chunks <> (SELECT count(*) FROM chunks WHERE page_id = pages.id)",
    ),
)
_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_MAX_FAULTS = 5
_CHECKED_HITS = 20
"""A page needs 5 µs. Those after them are hardly ever shown."""


def find_faults(db: sqlite3.Connection) -> list[str]:
    """Read every byte and return descriptions of the faults; empty if there are none."""
    faults: list[str] = []
    try:
        faults += [
            f"SQLite: {' '.join(text.split())}" for (text,) in db.execute("PRAGMA integrity_check(5)") if text != "ok"
        ]
        if not faults:
            faults += _find_count_faults(db)
            faults += islice(_find_checksum_faults(db), _MAX_FAULTS)
        if not faults:
            faults += _find_keyword_faults(db)
    except (sqlite3.DatabaseError, IndexCorrupt, UnicodeDecodeError) as error:
        # A full disk is not damage: the index must not be discarded because of it.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _DAMAGE_CODES:
            raise
        faults.append(f"it cannot be read completely: {describe_error(error)}")
    return faults


def require_words(db: sqlite3.Connection, query: KeywordQuery, hits: Sequence[KeywordHit]) -> None:
    """Raise IndexCorrupt if one of the best pages has no word of the query: FTS5 has no checksums."""
    page_ids = [hit.page_id for hit in hits[:_CHECKED_HITS]]
    sql = "SELECT page_id, words FROM page_words WHERE page_id IN ({0})"
    known = {row[0]: row[1] for row in select_in_batches(db, sql, page_ids)}
    for page_id in page_ids:
        words = known.get(page_id)
        if words is None or not (_contains_word(words, query) or _is_found_by_fts(db, words, query)):
            raise IndexCorrupt(
                "the keyword index does not match the pages", hint="run `wikiholt sync` to build it again"
            )


@lru_cache(maxsize=512)
def _read_words(encoded: bytes) -> str:
    """The words of a page between spaces."""
    return f" {' '.join(rows.decode_terms(encoded).fields)} "


def _contains_word(encoded: bytes, query: KeywordQuery) -> bool:
    words = _read_words(encoded)
    terms = (*query.terms, *(phrase[0] for phrase in query.phrases))
    return any(f" {term} " in words for term in terms) or bool(query.prefix and f" {query.prefix}" in words)


def _is_found_by_fts(db: sqlite3.Connection, encoded: bytes, query: KeywordQuery) -> bool:
    """Whether FTS5 finds a page with these words, which it may fold."""
    db.execute(f"CREATE VIRTUAL TABLE temp.page USING {FTS_TABLE}")
    try:
        fields = rows.decode_terms(encoded).fields
        db.execute("INSERT INTO temp.page (rowid, name, headings, body) VALUES (1, ?, ?, ?)", fields)
        found = db.execute("SELECT 1 FROM temp.page WHERE page MATCH ?", (build_any_expression(query),))
        return found.fetchone() is not None
    finally:
        db.execute("DROP TABLE temp.page")


def _find_count_faults(db: sqlite3.Connection) -> Iterator[str]:
    for label, sql in _ZERO_COUNTS:
        (count,) = db.execute(sql).fetchone()
        if count:
            yield f"{count} {label}"


def _find_checksum_faults(db: sqlite3.Connection) -> Iterator[str]:
    """Describe the pages, problems and state that do not match their checksums, or else chunks."""
    if is_state_corrupt(db):
        yield "its version or revision is not as it was written"
    are_pages_intact = True
    sql = "SELECT id, page_row, full_page FROM pages LEFT JOIN checksums ON page_id = pages.id"
    for page_id, *checksums in db.execute(sql):
        if checksums != _compute_stored_checksums(db, page_id):
            are_pages_intact = False
            yield f"page {page_id} is not as it was written"
    for *columns, checksum in db.execute("SELECT file, blob, reason, detail, checksum FROM problems"):
        if checksum != compute_problem_checksum(PageProblem(*columns)):
            yield "a problem is not as it was written"
    # Those of a page are covered by its checksum too, but not their own checksums.
    for row in db.execute(f"SELECT {rows.CHUNK_COLUMNS} FROM chunks") if are_pages_intact else ():
        if not is_row_intact(row):
            yield f"chunk {row[0]} is not as it was written"


def _compute_stored_checksums(db: sqlite3.Connection, page_id: int) -> list[int]:
    """The checksums of a page's row and of the full page, as they should be."""
    row = db.execute("SELECT * FROM full_pages WHERE id = ?", (page_id,)).fetchone()
    if row is None:  # without its words, a page is not in the view
        return []
    page = PageRow._make(row)
    return [
        compute_row_checksum(get_answer_values(page)),
        compute_page_checksum(page, read_page_parts(db, page_id)),
    ]


def _find_keyword_faults(db: sqlite3.Connection) -> Iterator[str]:
    """Compare FTS5 with the stored terms of the pages by indexing them again in a temporary table."""
    db.execute(f"CREATE VIRTUAL TABLE temp.proof USING {FTS_TABLE}")
    for page_id, encoded in db.execute("SELECT page_id, words FROM page_words"):
        terms = rows.decode_terms(encoded)
        row = (page_id, terms.name, terms.headings, terms.body)
        db.execute("INSERT INTO temp.proof (rowid, name, headings, body) VALUES (?, ?, ?, ?)", row)
    db.execute("CREATE VIRTUAL TABLE temp.words_terms USING fts5vocab('main', 'words', 'instance')")
    db.execute("CREATE VIRTUAL TABLE temp.proof_terms USING fts5vocab('temp', 'proof', 'instance')")
    field_number = " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(WORD_FIELDS, 1))
    field_sum = f"sum(doc * CASE col {field_number} END)"
    term_sums = f"SELECT term, count(*), sum(doc), {field_sum}, sum(offset * doc) FROM temp.{{}}_terms GROUP BY term"
    sizes = "SELECT id, sz FROM {}_docsize ORDER BY id"
    # An emptied FTS5 table keeps totals of zero, which a table that was never filled does not have.
    totals = "SELECT block FROM {}_data WHERE id = 1 AND EXISTS (SELECT * FROM pages)"
    for sql in (term_sums, sizes, totals):
        stored, expected = (db.execute(sql.format(name)) for name in ("words", "proof"))
        differ = any(one != other for one, other in _iter_pairs(stored, expected))
        stored.close()  # an unfinished cursor would keep the tables from being dropped
        expected.close()
        if differ:
            yield "the keyword index does not match the pages"
            break
    else:
        # Reading all terms in order does not use the offsets by which a search finds one.
        found = "EXISTS (SELECT * FROM words_terms AS found WHERE found.term = proof_rows.term)"
        db.execute("CREATE VIRTUAL TABLE temp.proof_rows USING fts5vocab('temp', 'proof', 'row')")
        if db.execute(f"SELECT * FROM proof_rows WHERE NOT {found}").fetchone():
            yield "a term of the keyword index cannot be found"
        db.execute("DROP TABLE temp.proof_rows")
    for name in ("words_terms", "proof_terms", "proof"):
        db.execute(f"DROP TABLE temp.{name}")


def _iter_pairs(one: sqlite3.Cursor, other: sqlite3.Cursor) -> Iterator[tuple[object, object]]:
    """Pairs of rows of two cursors; None after the end of the shorter one."""
    while True:
        first, second = one.fetchone(), other.fetchone()
        if first is None and second is None:
            return
        yield first, second
