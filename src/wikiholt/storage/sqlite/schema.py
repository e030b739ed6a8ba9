"""The layout of one wiki's index file, and how it is opened."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from wikiholt.domain.index import Recipe
from wikiholt.errors import IndexCorrupt, IndexForeign, IndexMissing, IndexTooNew, StorageError
from wikiholt.regular_files import is_irregular
from wikiholt.storage.checksums import compute_row_checksum, write_state_checksum
from wikiholt.storage.sqlite.errors import translate_errors

SCHEMA_VERSION = 3
"""2 has what links mean, and how long pages are; 3 says whose index it is.

An index of an older schema is searched until a sync has built another, but only if it says whose it is."""

# Terms arrive analysed and separated by spaces, so FTS5 splits at white space and changes nothing.
_FTS_TOKENIZER = "unicode61 remove_diacritics 0 categories ''L* M* N* P* S* Co''"

WORD_FIELDS = ("name", "headings", "body")
FTS_TABLE = f"fts5 ({', '.join(WORD_FIELDS)}, content='', tokenize='{_FTS_TOKENIZER}')"

_CREATE_TABLES = f"""
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), schema INTEGER NOT NULL, generation INTEGER NOT NULL,
    fingerprint TEXT NOT NULL, dimensions INTEGER NOT NULL, pipeline TEXT NOT NULL,
    version INTEGER NOT NULL, horizon INTEGER NOT NULL, revision TEXT, synced_at REAL, seal INTEGER NOT NULL) STRICT;
CREATE TABLE pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL UNIQUE, path TEXT NOT NULL, name TEXT NOT NULL,
    blob TEXT NOT NULL, category TEXT, category_key TEXT, description TEXT, language TEXT,
    last_updated REAL, hidden INTEGER NOT NULL,
    tags TEXT NOT NULL, warnings TEXT NOT NULL, chunks INTEGER NOT NULL, words BLOB NOT NULL,
    version INTEGER NOT NULL, key TEXT NOT NULL, last_key TEXT NOT NULL, word_count INTEGER NOT NULL,
    length INTEGER NOT NULL) STRICT;
CREATE INDEX pages_path ON pages (path);
CREATE INDEX pages_key ON pages (key);
CREATE INDEX pages_last_key ON pages (last_key);
CREATE INDEX pages_category ON pages (category_key);
CREATE INDEX pages_version ON pages (version);
CREATE TABLE tags (tag TEXT NOT NULL, page_id INTEGER NOT NULL, PRIMARY KEY (tag, page_id)) STRICT, WITHOUT ROWID;
CREATE INDEX tags_page ON tags (page_id);
CREATE TABLE links (
    page_id INTEGER NOT NULL, target TEXT NOT NULL, text TEXT NOT NULL, line INTEGER NOT NULL,
    wiki INTEGER NOT NULL, paths TEXT NOT NULL, key TEXT, other_key TEXT) STRICT;
CREATE INDEX links_page ON links (page_id);
CREATE INDEX links_key ON links (key) WHERE key IS NOT NULL;
CREATE INDEX links_other_key ON links (other_key) WHERE other_key IS NOT NULL;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, page_id INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL,
    heading_path TEXT NOT NULL, anchor TEXT NOT NULL, first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    hash BLOB NOT NULL, UNIQUE (page_id, number)) STRICT;
CREATE INDEX chunks_hash ON chunks (hash);
CREATE TABLE vectors (
    chunk_id INTEGER PRIMARY KEY, page_id INTEGER NOT NULL, vector BLOB NOT NULL) STRICT;
CREATE TABLE dropped (version INTEGER NOT NULL, chunk_id INTEGER, page_id INTEGER) STRICT;
CREATE INDEX dropped_version ON dropped (version);
CREATE TABLE problems (
    file TEXT PRIMARY KEY, blob TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
    seal INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING {FTS_TABLE};
CREATE TABLE seals (page_id INTEGER PRIMARY KEY, crc INTEGER NOT NULL) STRICT;
CREATE TABLE model (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, precision TEXT NOT NULL, seal INTEGER NOT NULL) STRICT;
CREATE TABLE owner (one INTEGER PRIMARY KEY CHECK (one = 1), wiki_id TEXT NOT NULL, seal INTEGER NOT NULL) STRICT;
"""

_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16000", "mmap_size = 268435456")
_READER_PRAGMAS = ("cache_size = -16000",)
FILE_SUFFIXES = ("", "-wal", "-shm")
"""What the names of an index's own files end with."""
_READ_ONLY_CODES = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_SHARED_MEMORY_CODES = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}
"""The small file that readers and writers share cannot be made: the disk is full."""


class ImmutableConnection(sqlite3.Connection):
    """A connection without locks to a file nobody was writing when it was opened: read from it at once, never keep it.

    It would not notice a writer that comes later.
    """


def open_connection(file: Path, *, create: bool = False) -> sqlite3.Connection:
    """A connection to an existing index file (or a new one); transactions are begun by hand.

    Where the directory cannot be written, or the disk is full, it can be read from all the same, as far as that is
    safe.
    """
    _require_regular_files(file)
    with translate_errors():
        try:
            return _open_database(file, "mode=rwc" if create else "mode=rw", _PRAGMAS)
        except sqlite3.OperationalError as error:
            if not file.exists():
                raise IndexMissing("this wiki has no index yet", hint="run `wikiholt sync`") from error
            if create or not _is_unwritable(error):
                raise
            return _open_reader(file)


def open_immutable(file: Path) -> sqlite3.Connection:
    """A connection to a file that nobody writes any more, as it lies there; nothing is made beside it."""
    _require_regular_files(file)
    with translate_errors():
        try:
            return _open_database(file, "mode=ro&immutable=1", _READER_PRAGMAS, ImmutableConnection)
        except sqlite3.OperationalError as error:
            if file.exists():
                raise
            raise IndexMissing("the file is not there", hint="look for another") from error


def _require_regular_files(file: Path) -> None:
    """Raise IndexCorrupt where a directory, link or pipe has the name of a file: SQLite would call it an I/O error."""
    for ending in FILE_SUFFIXES:
        if is_irregular(file.with_name(file.name + ending), follow=not ending) and (ending or file.exists()):
            what = {"": "the index", "-wal": "its log", "-shm": "its shared memory"}[ending]
            raise IndexCorrupt(f"{what} is not a regular file", hint="run `wikiholt sync` to build it again")


def _open_reader(file: Path) -> sqlite3.Connection:
    """A connection that only reads, where SQLite may make no files of its own."""
    try:
        return _open_database(file, "mode=ro", _READER_PRAGMAS)
    except sqlite3.OperationalError as error:
        if not _is_unwritable(error):
            raise
        # Whoever writes has a log; without one the file alone is the whole truth.
        log = file.with_name(file.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StorageError(
                "the index has changes in its log, and its directory cannot be written to take them up",
                hint="check free disk space, run `wikiholt sync` as the owner of the data directory, or let this user"
                " write there",
            ) from error
        return _open_database(file, "mode=ro&immutable=1", _READER_PRAGMAS, ImmutableConnection)


def _is_unwritable(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in _READ_ONLY_CODES or error.sqlite_errorcode in _SHARED_MEMORY_CODES


def _open_database(
    file: Path, mode: str, pragmas: Sequence[str], factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    uri = f"file:{quote(str(file))}?{mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30, factory=factory)
    try:
        # One connection, one file: the boundary between wikis is not to be crossed by a statement.
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for setting in pragmas:
            db.execute(f"PRAGMA {setting}")
        # SQLite touches the file no sooner than it is read.
        db.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def create_index_file(file: Path, wiki_id: str, generation: int, recipe: Recipe) -> None:
    """Write an empty index of a wiki; the file appears under its name only when it is whole."""
    making = file.with_name(file.name + ".making")
    for leftover in making.parent.glob(making.name + "*"):
        leftover.unlink()
    db = open_connection(making, create=True)
    with translate_errors():
        try:
            db.executescript("BEGIN;" + _CREATE_TABLES)
            row = (SCHEMA_VERSION, generation, recipe.fingerprint, recipe.dimensions, recipe.pipeline)
            db.execute(
                "INSERT INTO state VALUES (1, ?, ?, ?, ?, ?, 0, 0, NULL, NULL, ?)", (*row, compute_row_checksum(row))
            )
            model = (recipe.model, recipe.precision)
            db.execute("INSERT INTO model VALUES (1, ?, ?, ?)", (*model, compute_row_checksum(model)))
            db.execute("INSERT INTO owner VALUES (1, ?, ?)", (wiki_id, compute_row_checksum((wiki_id,))))
            write_state_checksum(db)
            db.execute("COMMIT")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
    making.rename(file)


def read_header(db: sqlite3.Connection) -> tuple[int, int, Recipe]:
    """The schema, generation and recipe of an open file, or an error when this version cannot use it."""
    with translate_errors():
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"state", "pages", "chunks", "vectors", "words", "problems", "seals"} <= tables:
            raise IndexCorrupt("the index file has lost its tables", hint="run `wikiholt sync` to build it again")
        row = db.execute("SELECT schema, generation, fingerprint, dimensions, pipeline, seal FROM state").fetchone()
    # Sealed the same way in every schema, so that damage is never taken for the work of a newer version.
    if row is None or compute_row_checksum(row[:-1]) != row[-1]:
        raise IndexCorrupt("the index file has lost its state", hint="run `wikiholt sync` to build it again")
    schema, generation, *recipe = row[:-1]
    if schema > SCHEMA_VERSION:
        raise IndexTooNew(
            f"the index was written by a newer Wikiholt (schema {schema}, this one knows {SCHEMA_VERSION})",
            hint="upgrade Wikiholt, or remove the wiki and add it again",
        )
    return schema, generation, Recipe(*recipe, *(_read_model(db) if "model" in tables else ()))


def get_owner(db: sqlite3.Connection) -> str:
    """The id of the wiki that the file says it belongs to; raises IndexCorrupt, and IndexForeign if it says none."""
    with translate_errors():
        if not db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'owner'").fetchone():
            raise IndexForeign(
                "the index does not say which wiki it belongs to; an older Wikiholt wrote it",
                hint="run `wikiholt sync` to build it again",
            )
        row = db.execute("SELECT wiki_id, seal FROM owner").fetchone()
    if row is None or compute_row_checksum(row[:1]) != row[1]:
        raise IndexCorrupt("the index file has lost whose it is", hint="run `wikiholt sync` to build it again")
    return str(row[0])


def require_owner(db: sqlite3.Connection, wiki_id: str) -> None:
    """Raise IndexForeign unless the file belongs to this wiki: nothing is ever answered from another's."""
    if get_owner(db) != wiki_id:
        raise IndexForeign(
            "the index belongs to another wiki",
            hint="its file was put here by mistake; `wikiholt sync` sets it aside and builds this wiki's own",
        )


def _read_model(db: sqlite3.Connection) -> tuple[str, str]:
    """By what the model can be loaded; nothing where that cannot be trusted, for the index serves all the same."""
    with translate_errors():
        row = db.execute("SELECT name, precision, seal FROM model").fetchone()
    return row[:2] if row is not None and compute_row_checksum(row[:2]) == row[2] else ("", "")
