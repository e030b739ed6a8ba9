"""What one registry lacks of another: whole wikis with their ids, hosts and keys, and the operator's keys; pure."""

from wikiholt.errors import WikiExists
from wikiholt.registry.schema import COLUMNS, Row, Rows

_NAMED = {"wikis": ("id", "slug"), "hosts": ("host",), "keys": ("id",), "marks": ("name",)}
"""The columns by each of which a row is the only one of its table."""
_CALLED = {"wikis": "wiki", "hosts": "host", "keys": "key"}
_OWNER = {"wikis": 0, "hosts": 1, "keys": 1}
"""Which column says whose wiki a row is."""


def lacking(there: Rows, coming: Rows, wiki_ids: set[str]) -> Rows:
    """The rows of these wikis, and of none, that are not there yet; those there that are equal are left.

    Raises WikiExists where there is another of the same slug, id or name; of marks, which say what once was, the ones
    that are there stay.
    """
    return {table: _of_table(table, there[table], _wanted(table, coming[table], wiki_ids)) for table in COLUMNS}


def _wanted(table: str, rows: list[Row], wiki_ids: set[str]) -> list[Row]:
    if table == "marks":
        return rows
    return [row for row in rows if row[_OWNER[table]] is None or row[_OWNER[table]] in wiki_ids]


def _of_table(table: str, there: list[Row], coming: list[Row]) -> list[Row]:
    places = [COLUMNS[table].index(name) for name in _NAMED[table]]
    known = {(place, row[place]): tuple(row) for row in there for place in places}
    found: list[Row] = []
    for row in coming:
        same = {known[at] for place in places if (at := (place, row[place])) in known}
        if not same:
            found.append(row)
        elif table != "marks" and same != {tuple(row)}:
            raise WikiExists(
                f"There is another {_CALLED[table]} {row[places[-1]]!r} where this one is to go.",
                hint="Nothing was changed. Remove or rename one of the two, then try again.",
            )
    return found
