"""The table of pages is declared once for both stores."""

from wikiholt.domain.page import Facets
from wikiholt.domain.search import Facet, PropertyFacets
from wikiholt.index import page_table
from wikiholt.index.page_table import PageRow

_OLDER = (1, "a.md", "a", "A", "b", *[None] * 5, 0, "[]", "[]", 1, b"", 1, "a", "a", 1, 1)
ROW = PageRow._make((*_OLDER, "{}", "[]", "[]", "a", 2.0, '["x"]'))


def test_column_types_follow_the_types_of_the_row() -> None:
    columns = dict(column.split(" ", 1) for column in page_table.format_sqlite_columns().split(", "))
    assert list(columns) == [name for name in PageRow._fields if name != "words"], "words have their own table"
    assert columns["category"].strip() == "TEXT"
    assert columns["name"] == "TEXT NOT NULL"
    assert columns["file"] == "TEXT NOT NULL UNIQUE"
    assert page_table.format_postgres_column("words") == "words bytea STORAGE EXTERNAL"
    assert page_table.format_postgres_column("path") == 'path text COLLATE "C"'
    assert page_table.get_postgres_type("word_count") == "int4"


def test_defaults_of_the_last_columns_are_not_in_the_checksum() -> None:
    older = ROW._replace(titles="", boost=1.0, pins="[]")
    assert page_table.get_checksum_values(older)[-1] == older.length
    assert page_table.get_checksum_values(older._replace(boost=2.0))[-2:] == ("", 2.0)
    assert page_table.get_checksum_values(ROW) == ROW


def test_the_facet_tags_has_those_in_the_text_too() -> None:
    tags = (Facet("daily", 2),)
    facets = Facets(2, (), tags, (), (PropertyFacets("Tags", ()), PropertyFacets("status", ())))
    assert facets.requested == (PropertyFacets("Tags", tags), PropertyFacets("status", ()))


def test_a_property_with_another_value_on_every_page_has_only_the_most_frequent_values() -> None:
    values = tuple(Facet(f"value {number}", 1) for number in range(5000))
    facets = Facets(5000, (), values, (), (PropertyFacets("tags", ()), PropertyFacets("id", values)))
    assert [facet.values for facet in facets.requested] == [values[:1000]] * 2
