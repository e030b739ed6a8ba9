"""The table of pages is declared once for both stores."""

import pytest

from wikiholt.storage import page_table
from wikiholt.storage.page_table import AddedColumn, PageRow

ROW = PageRow(1, "a.md", "a", "A", "b", None, None, None, None, None, 0, "[]", "[]", 1, b"", 1, "a", "a", 1, 1)


def test_column_types_follow_the_types_of_the_row() -> None:
    columns = dict(column.split(" ", 1) for column in page_table.format_sqlite_columns().split(", "))
    assert list(columns) == list(PageRow._fields)
    assert columns["category"].strip() == "TEXT"
    assert columns["name"] == "TEXT NOT NULL"
    assert columns["file"] == "TEXT NOT NULL UNIQUE"
    assert page_table.format_postgres_column("words") == "words bytea NOT NULL"
    assert page_table.format_postgres_column("path") == 'path text COLLATE "C" NOT NULL'
    assert page_table.get_postgres_type("word_count") == "int4"


def test_an_added_column_has_a_default_and_does_not_change_the_checksum_of_older_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert page_table.get_checksum_values(ROW) == ROW
    monkeypatch.setattr(page_table, "ADDED_COLUMNS", {"length": AddedColumn(2, 1), "word_count": AddedColumn(2, 7)})
    assert page_table.format_postgres_column("length") == "length int8 NOT NULL DEFAULT 1"
    assert page_table.get_checksum_values(ROW) == ROW[:-1], "only the last column has the value of older rows"
    assert page_table.get_checksum_values(ROW._replace(word_count=7)) == ROW[:-2]
    assert page_table.get_checksum_values(ROW._replace(word_count=7, length=2))[-2:] == (7, 2)
