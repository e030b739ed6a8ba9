"""Changes rows of a registry file as another program would, with or without a right checksum."""

import sqlite3
from contextlib import closing
from pathlib import Path

from wikiholt.wikis.registry_schema import TABLE_COLUMNS, compute_row_check


def overwrite_column(path: Path, table: str, column: str, value: str | None, *, checked: bool = True) -> None:
    """Change a column of every row, by default with the checksum of the new row."""
    columns = TABLE_COLUMNS[table]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"UPDATE {table} SET {column} = ?", (value,))
        for row in other.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall() if checked else ():
            change = f"UPDATE {table} SET row_check = ? WHERE {columns[0]} = ?"
            other.execute(change, (compute_row_check(table, row), row[0]))
