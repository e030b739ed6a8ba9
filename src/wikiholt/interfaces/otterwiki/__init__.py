"""The Otterwiki plugin: hooks that notify the scheduler of changes, the API and the search pages."""

import os

__all__ = ["forget"]


def forget(path_or_slug: str | os.PathLike[str]) -> tuple[str, ...]:
    """Remove the index, keys, backups and query log of a deleted wiki, and return the removed slugs.

    Takes the slug, or the absolute path of the repository or of a directory above it. Call it after deleting the
    directory. An unknown wiki is not an error. Works in every process that has Otterwiki's WIKIHOLT_* settings in its
    environment. Raises WikiholtError.
    """
    from wikiholt.interfaces.otterwiki.forget import forget_wiki  # noqa: PLC0415 - Otterwiki must start without it

    return forget_wiki(path_or_slug)
