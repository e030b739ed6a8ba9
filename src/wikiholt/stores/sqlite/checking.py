"""Whether an index file is whole: nothing torn, nothing missing, nothing left over."""

import sqlite3

_MUST_BE_ZERO = (
    ("chunks without a vector", "SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk_id FROM vectors)"),
    ("vectors without a chunk", "SELECT count(*) FROM vectors WHERE chunk_id NOT IN (SELECT id FROM chunks)"),
    ("chunks without a page", "SELECT count(*) FROM chunks WHERE page_id NOT IN (SELECT id FROM pages)"),
    ("pages without their words", "SELECT count(*) FROM pages WHERE id NOT IN (SELECT id FROM words_docsize)"),
    ("words without a page", "SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT id FROM pages)"),
    ("files both indexed and listed as a problem", "SELECT count(*) FROM problems JOIN pages USING (file)"),
    (
        "pages whose chunks are not all there",
        "SELECT count(*) FROM pages WHERE chunks <> (SELECT count(*) FROM chunks WHERE page_id = pages.id)",
    ),
)


def faults(db: sqlite3.Connection, dimensions: int) -> list[str]:
    """What is wrong, in words; empty when nothing is."""
    found = [f"SQLite: {text}" for (text,) in db.execute("PRAGMA quick_check(5)") if text != "ok"]
    if found:
        return found
    for what, sql in _MUST_BE_ZERO:
        (count,) = db.execute(sql).fetchone()
        if count:
            found.append(f"{count} {what}")
    (odd,) = db.execute("SELECT count(*) FROM vectors WHERE length(vector) <> ?", (dimensions * 4,)).fetchone()
    if odd:
        found.append(f"{odd} vectors of the wrong size")
    return found
