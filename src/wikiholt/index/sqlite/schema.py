"""The tables of one wiki's index file, how the file is created and identified, and the check when it is opened."""

import sqlite3
from pathlib import Path

from wikiholt.domain.index import Recipe
from wikiholt.errors import IndexCorrupt, IndexForeign, IndexTooNew
from wikiholt.index.page_table import (
    HAS_ALIAS,
    HAS_ORDER_OVERRIDE,
    HAS_PROPERTIES,
    HAS_WARNINGS,
    SQLITE_SCHEMA_VERSION,
    PageRow,
    format_sqlite_columns,
)
from wikiholt.index.rows import HASH_PREFIX_BYTES, compute_row_checksum
from wikiholt.index.sqlite.connections import open_connection, translate_errors

# Terms are already analysed and separated by spaces: FTS5 only splits at white space.
_FTS_TOKENIZER = "unicode61 remove_diacritics 0 categories ''L* M* N* P* S* Co''"

WORD_FIELDS = ("name", "headings", "body")
FTS_TABLE = f"fts5 ({', '.join(WORD_FIELDS)}, content='', tokenize='{_FTS_TOKENIZER}')"

_CREATE_TABLES = f"""
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), schema INTEGER NOT NULL, generation INTEGER NOT NULL,
    fingerprint TEXT NOT NULL, dimensions INTEGER NOT NULL, pipeline TEXT NOT NULL,
    version INTEGER NOT NULL, revision TEXT, synced_at REAL,
    vector_file INTEGER NOT NULL DEFAULT 1, vector_rows INTEGER NOT NULL DEFAULT 0,
    vector_dead INTEGER NOT NULL DEFAULT 0, vector_since INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL) STRICT;
CREATE TABLE pages ({format_sqlite_columns()}) STRICT;
CREATE INDEX pages_path ON pages (path);
CREATE INDEX pages_key ON pages (key);
CREATE INDEX pages_last_key ON pages (last_key);
CREATE INDEX pages_category ON pages (category_key);
CREATE INDEX pages_alias ON pages (id) WHERE {HAS_ALIAS};
CREATE INDEX pages_properties ON pages (id) WHERE {HAS_PROPERTIES};
CREATE INDEX pages_order ON pages (id) WHERE {HAS_ORDER_OVERRIDE};
CREATE INDEX pages_warnings ON pages (file) WHERE {HAS_WARNINGS};
CREATE TABLE page_words (page_id INTEGER PRIMARY KEY, words BLOB NOT NULL) STRICT;
CREATE VIEW full_pages AS SELECT {", ".join(PageRow._fields)} FROM pages JOIN page_words ON page_id = id;
CREATE TABLE tags (tag TEXT NOT NULL, page_id INTEGER NOT NULL, PRIMARY KEY (tag, page_id)) STRICT, WITHOUT ROWID;
CREATE INDEX tags_page ON tags (page_id);
CREATE TABLE links (
    page_id INTEGER NOT NULL, target TEXT NOT NULL, text TEXT NOT NULL, line INTEGER NOT NULL,
    wiki INTEGER NOT NULL, paths TEXT NOT NULL, key TEXT, other_key TEXT) STRICT;
CREATE INDEX links_page ON links (page_id);
CREATE INDEX links_key ON links (key) WHERE key IS NOT NULL;
CREATE INDEX links_other_key ON links (other_key) WHERE other_key IS NOT NULL;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, page_id INTEGER NOT NULL, number INTEGER NOT NULL, content ANY NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL, hash BLOB NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (page_id, number)) STRICT;
CREATE INDEX chunks_hash ON chunks (substr(hash, 1, {HASH_PREFIX_BYTES}));
CREATE TABLE dropped (version INTEGER NOT NULL, chunk_id INTEGER NOT NULL) STRICT;
CREATE INDEX dropped_version ON dropped (version);
CREATE TABLE problems (
    file TEXT PRIMARY KEY, blob TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
    checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING {FTS_TABLE};
CREATE TABLE checksums (page_id INTEGER PRIMARY KEY, page_row INTEGER NOT NULL, full_page INTEGER NOT NULL) STRICT;
CREATE TABLE model (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, precision TEXT NOT NULL,
    checksum INTEGER NOT NULL) STRICT;
CREATE TABLE owner (one INTEGER PRIMARY KEY CHECK (one = 1), wiki_id TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT;
"""

_STATE_QUERY = "SELECT version, revision, synced_at, vector_file, vector_rows, vector_since FROM state"
WRITE_CHECKSUMS = "INSERT OR REPLACE INTO checksums (page_id, page_row, full_page) VALUES (?, ?, ?)"
_STATE_PAGE_ID = 0
"""The checksum of the state is stored like that of a page with this id."""
_COUNTS = """SELECT (SELECT count(*) FROM pages), (SELECT count(*) FROM checksums WHERE page_id > 0),
    (SELECT count(*) FROM words_docsize)"""
_REQUIRED_TABLES = {"state", "pages", "page_words", "chunks", "words", "problems", "checksums", "model", "owner"}


def create_index_file(file: Path, wiki_id: str, generation: int, recipe: Recipe) -> None:
    """Create an empty index of a wiki. The file appears under its name only once it is complete."""
    draft = get_draft_file(file)
    remove_draft(draft)
    db = open_connection(draft, create=True)
    with translate_errors():
        try:
            db.executescript("BEGIN;" + _CREATE_TABLES)
            db.execute(
                "INSERT INTO state (one, schema, generation, fingerprint, dimensions, pipeline, version,"
                " checksum) VALUES (1, ?, ?, ?, ?, ?, 0, 0)",
                (SQLITE_SCHEMA_VERSION, generation, recipe.fingerprint, recipe.dimensions, recipe.pipeline),
            )
            write_generation(db, generation, recipe)
            model = (recipe.model, recipe.precision)
            db.execute(
                "INSERT INTO model (one, name, precision, checksum) VALUES (1, ?, ?, ?)",
                (*model, compute_row_checksum(model)),
            )
            owner = (wiki_id,)
            sql = "INSERT INTO owner (one, wiki_id, checksum) VALUES (1, ?, ?)"
            db.execute(sql, (*owner, compute_row_checksum(owner)))
            write_state_checksum(db)
            db.execute("COMMIT")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
    draft.rename(file)


def write_generation(db: sqlite3.Connection, generation: int, recipe: Recipe) -> None:
    """Set the generation number and the checksum of the header."""
    header = (SQLITE_SCHEMA_VERSION, generation, recipe.fingerprint, recipe.dimensions, recipe.pipeline)
    db.execute("UPDATE state SET generation = ?, checksum = ?", (generation, compute_row_checksum(header)))


def get_draft_file(file: Path) -> Path:
    """The name of an index file while it is being created."""
    return file.with_name(file.name + ".making")


def remove_draft(draft: Path) -> None:
    for file in draft.parent.glob(draft.name + "*"):
        file.unlink(missing_ok=True)


def read_header(db: sqlite3.Connection) -> tuple[int, Recipe]:
    """The generation and recipe of an index file. Raises IndexCorrupt or IndexTooNew if this version cannot use it."""
    tables = _list_tables(db)
    generation, fingerprint, dimensions, pipeline = _read_checked_header(db, tables)
    if not tables >= _REQUIRED_TABLES:
        raise _make_lost_error("tables")
    return generation, Recipe(fingerprint, dimensions, pipeline, *_read_model(db))


def _read_checked_header(db: sqlite3.Connection, tables: set[str]) -> tuple[int, str, int, str]:
    """The header after its checksum and schema version; both have the same places in every schema.

    So damage is never mistaken for another version.
    """
    if "state" not in tables:
        raise _make_lost_error("tables")
    with translate_errors():
        row = db.execute("SELECT * FROM state").fetchone()
    header, checksum = (row[1:6], row[-1]) if row else ((), None)
    if not header or compute_row_checksum(tuple(header)) != checksum:
        raise _make_lost_error("state")
    schema, generation, fingerprint, dimensions, pipeline = header
    if schema > SQLITE_SCHEMA_VERSION:
        raise IndexTooNew(
            f"the index was written by a newer Wikiholt (schema {schema}, this one knows {SQLITE_SCHEMA_VERSION})",
            hint="upgrade Wikiholt, or remove the wiki and add it again",
        )
    if schema < SQLITE_SCHEMA_VERSION:
        raise IndexCorrupt(
            f"the index was written by an older Wikiholt (schema {schema}, this one needs {SQLITE_SCHEMA_VERSION})",
            hint="run `wikiholt sync` to build it again",
        )
    return generation, fingerprint, dimensions, pipeline


def get_owner(db: sqlite3.Connection) -> str:
    """The id of the wiki the file belongs to. Raises IndexCorrupt, or IndexForeign if the file does not say."""
    with translate_errors():
        try:
            row = db.execute("SELECT * FROM owner").fetchone()  # the checksum has the same place in every schema
        except sqlite3.OperationalError:
            tables = _list_tables(db)
            if "owner" in tables:
                raise
            _read_checked_header(db, tables)
            raise IndexForeign(
                "the index does not say which wiki it belongs to", hint="run `wikiholt sync` to build it again"
            ) from None
    wiki_id, checksum = row[1:] if row else (None, None)
    if wiki_id is None or compute_row_checksum((wiki_id,)) != checksum:
        raise _make_lost_error("owner")
    return str(wiki_id)


def require_owner(db: sqlite3.Connection, wiki_id: str) -> None:
    """Raise IndexForeign unless the file belongs to this wiki."""
    if get_owner(db) != wiki_id:
        raise IndexForeign(
            "the index belongs to another wiki",
            hint="its file was put here by mistake; `wikiholt sync` quarantines it and builds this wiki's own",
        )


def write_state_checksum(db: sqlite3.Connection) -> None:
    """Record the checksum of the index's version and revision."""
    checksum = compute_row_checksum(db.execute(_STATE_QUERY).fetchone())
    db.execute(WRITE_CHECKSUMS, (_STATE_PAGE_ID, 0, checksum))


def is_state_corrupt(db: sqlite3.Connection) -> bool:
    """Whether the version or revision does not match its checksum."""
    checksum = db.execute("SELECT full_page FROM checksums WHERE page_id = ?", (_STATE_PAGE_ID,)).fetchone()
    state = db.execute(_STATE_QUERY).fetchone()
    return state is None or checksum != (compute_row_checksum(state),)


def find_obvious_fault(db: sqlite3.Connection) -> str:
    """A fault that is cheap to detect, or "". Runs on every open, inside one transaction.

    SQLite has already detected a truncated file: it compares the file's length with its header.
    """
    if is_state_corrupt(db):
        return "its version or revision is not as it was written"
    pages, checksums, terms = db.execute(_COUNTS).fetchone()
    if pages != checksums:
        return f"pages and their checksums ({pages} and {checksums})"
    return "" if pages == terms else f"pages and their terms ({pages} and {terms})"


def _list_tables(db: sqlite3.Connection) -> set[str]:
    with translate_errors():
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _read_model(db: sqlite3.Connection) -> tuple[str, str]:
    """The model's name and precision; empty if damaged, because the index can serve without them."""
    with translate_errors():
        row = db.execute("SELECT name, precision, checksum FROM model").fetchone()
    name, precision, checksum = row or ("", "", None)
    return (name, precision) if compute_row_checksum((name, precision)) == checksum else ("", "")


def _make_lost_error(part: str) -> IndexCorrupt:
    return IndexCorrupt(f"the index file has lost its {part}", hint="run `wikiholt sync` to build it again")
