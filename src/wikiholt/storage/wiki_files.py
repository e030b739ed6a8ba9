"""Wiki ids and the local directories of wikis, for both stores."""

import re
from contextlib import suppress
from pathlib import Path

from wikiholt.errors import InvalidSlug

_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")


def validate_wiki_id(wiki_id: str) -> None:
    """Raise InvalidSlug if a path or schema name must not be made from this id."""
    if not _WIKI_ID.fullmatch(wiki_id):
        raise InvalidSlug("this is not a wiki id", hint="ids come from the registry, never from input")


def list_wiki_directories(root: Path) -> list[str]:
    """List the ids of wikis that have a directory below the root."""
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and _WIKI_ID.fullmatch(entry.name))


def list_files(directory: Path) -> list[str]:
    """List the relative paths of all files in a directory."""
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if not file.is_dir())


def get_directory_bytes(directory: Path) -> int:
    """Return the size of all files in a directory."""
    total = 0
    for file in directory.rglob("*"):
        with suppress(OSError):  # a writer creates and removes files meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total
