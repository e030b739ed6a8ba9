"""The bytes of stored files, with the texts of an index as they are before compression."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from wikiholt.errors import IndexCorrupt
from wikiholt.index import rows


def read_stored_bytes(file: Path) -> bytes:
    """The bytes of a file, followed by the texts and words of chunks and pages if it is an index."""
    content = file.read_bytes()
    if not content.startswith(b"SQLite format 3\0"):
        return content
    return content + "\n".join(_iter_texts(file)).encode("utf-8", "surrogatepass")


def _iter_texts(file: Path) -> Iterator[str]:
    """Yield what can be read of an index. Reads a copy: opening a database may write beside it."""
    with TemporaryDirectory() as directory, suppress(OSError, sqlite3.DatabaseError, IndexCorrupt):
        copy = Path(directory) / "copy"
        for suffix in ("", "-wal"):
            if (source := file.with_name(file.name + suffix)).exists():
                shutil.copyfile(source, f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as db:
            for (content,) in db.execute("SELECT content FROM chunks"):
                yield rows.decode_text(content)
            for (words,) in db.execute("SELECT words FROM page_words"):
                yield from rows.decode_terms(words).fields
