"""The registry of wikis: a small file that many processes share."""

import base64
import difflib
import json
import secrets
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from wikiholt.errors import IndexCorrupt, WikiExists, WikiNotFound
from wikiholt.model import Wiki
from wikiholt.registry.database import Database
from wikiholt.registry.slugs import validate_slug

_COLUMNS = "id, slug, source, settings, created_at"
_SHOWN = 80


class Registry:
    """All wikis by slug. Safe to use from many threads and processes; no error of it names another wiki."""

    def __init__(self, path: Path, *, timeout: float = 10.0) -> None:
        self._database = Database(path, timeout)

    def add(self, slug: str, source: str, settings: Mapping[str, str] | None = None) -> Wiki:
        """Register a wiki under a new, random id; raises InvalidSlug or WikiExists."""
        wiki = Wiki(_new_id(), validate_slug(slug), source, datetime.now(UTC), dict(settings or {}))
        values = (wiki.id, wiki.slug, wiki.source, _dump(wiki.settings), wiki.created_at.isoformat())
        with self._database.writing() as connection:
            if _find(connection, slug) is not None:
                raise WikiExists(f"There is already a wiki {slug!r}.", hint="Choose another slug, or remove it first.")
            connection.execute(f"INSERT INTO wikis ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", values)  # noqa: S608
        return wiki

    def get(self, slug: str) -> Wiki:
        """The wiki of that slug; raises WikiNotFound."""
        with self._database.reading() as connection:
            wiki = _find(connection, slug) if connection else None
        if wiki is None:
            raise _not_found(slug)
        return wiki

    def list(self) -> list[Wiki]:
        """Every wiki, by slug."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT {_COLUMNS} FROM wikis ORDER BY slug").fetchall()  # noqa: S608
        return [_wiki(row) for row in rows]

    def remove(self, slug: str) -> Wiki:
        """Strike a wiki from the registry and return what it was; its index is not touched."""
        with self._database.writing() as connection:
            wiki = _find(connection, slug)
            if wiki is None:
                raise _not_found(slug)
            connection.execute("DELETE FROM wikis WHERE slug = ?", (slug,))
        return wiki

    def update(self, slug: str, settings: Mapping[str, str]) -> Wiki:
        """Put these settings in the place of a wiki's old ones."""
        with self._database.writing() as connection:
            if _find(connection, slug) is None:
                raise _not_found(slug)
            connection.execute("UPDATE wikis SET settings = ? WHERE slug = ?", (_dump(settings), slug))
            wiki = _find(connection, slug)
        if wiki is None:
            raise _not_found(slug)
        return wiki

    def suggest(self, slug: str) -> tuple[str, ...]:
        """Slugs near this one, nearest first: for the operator's own terminal, never for an answer to a visitor."""
        return tuple(difflib.get_close_matches(slug.lower()[:_SHOWN], [wiki.slug for wiki in self.list()], n=3))

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def _new_id() -> str:
    # 100 random bits: never derived from the slug, never the same twice.
    return base64.b32encode(secrets.token_bytes(13)).decode().lower()[:20]


def _find(connection: sqlite3.Connection, slug: str) -> Wiki | None:
    if "\0" in slug or not slug.isascii():  # no slug looks like that, and SQLite need not see it
        return None
    row = connection.execute(f"SELECT {_COLUMNS} FROM wikis WHERE slug = ?", (slug,)).fetchone()  # noqa: S608
    return _wiki(row) if row else None


def _wiki(row: tuple[str, str, str, str, str]) -> Wiki:
    wiki_id, slug, source, settings, created_at = row
    try:
        parsed = json.loads(settings)
        if not all(isinstance(text, str) for pair in parsed.items() for text in pair):
            raise ValueError(settings)
        return Wiki(wiki_id, slug, source, datetime.fromisoformat(created_at), parsed)
    except (ValueError, TypeError, AttributeError) as error:
        raise IndexCorrupt(
            "A row of the registry cannot be understood.", hint="Put the registry back from a backup."
        ) from error


def _dump(settings: Mapping[str, str]) -> str:
    return json.dumps(dict(settings), ensure_ascii=False, sort_keys=True)


def _not_found(slug: str) -> WikiNotFound:
    shown = slug if len(slug) <= _SHOWN else slug[:_SHOWN] + "…"
    return WikiNotFound(f"There is no wiki {shown!r}.", hint="`wikiholt list` shows the wikis there are.")
