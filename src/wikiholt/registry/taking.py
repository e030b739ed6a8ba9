"""What one registry lacks of another: whole wikis with their ids, hosts and keys, and the operator's keys; pure."""

from wikiholt.errors import WikiExists
from wikiholt.registry.schema import TABLE_COLUMNS, RegistryRow, RegistryRows

_UNIQUE_COLUMNS = {"wikis": ("id", "slug"), "hosts": ("host",), "keys": ("id",), "marks": ("name",)}
"""The columns by each of which a row is the only one of its table."""
_ROW_NOUNS = {"wikis": "wiki", "hosts": "host", "keys": "key"}
_OWNER_COLUMN = {"wikis": 0, "hosts": 1, "keys": 1}
"""Which column says whose wiki a row is."""


def find_missing_rows(present: RegistryRows, incoming: RegistryRows, wiki_ids: set[str]) -> RegistryRows:
    """The rows of these wikis, and of none, that are not there yet; those there that are equal are left.

    Raises WikiExists where there is another of the same slug, id or name; of marks, which say what once was, the ones
    that are there stay.
    """
    return {table: _find_missing_in_table(table, present[table], _select_wikis(table, incoming[table], wiki_ids)) for table in TABLE_COLUMNS}


def _select_wikis(table: str, rows: list[RegistryRow], wiki_ids: set[str]) -> list[RegistryRow]:
    if table == "marks":
        return rows
    return [row for row in rows if row[_OWNER_COLUMN[table]] is None or row[_OWNER_COLUMN[table]] in wiki_ids]


def _find_missing_in_table(table: str, present: list[RegistryRow], incoming: list[RegistryRow]) -> list[RegistryRow]:
    places = [TABLE_COLUMNS[table].index(name) for name in _UNIQUE_COLUMNS[table]]
    known = {(place, row[place]): tuple(row) for row in present for place in places}
    found: list[RegistryRow] = []
    for row in incoming:
        same = {known[at] for place in places if (at := (place, row[place])) in known}
        if not same:
            found.append(row)
        elif table != "marks" and same != {tuple(row)}:
            raise WikiExists(
                f"There is another {_ROW_NOUNS[table]} {row[places[-1]]!r} where this one is to go.",
                hint="Nothing was changed. Remove or rename one of the two, then try again.",
            )
    return found
