"""Wikiholt inside Otterwiki: hooks wake the sync of the request's own wiki; API and pages in the wiki itself."""

import os

__all__ = ["forget"]


def forget(path_or_slug: str | os.PathLike[str]) -> tuple[str, ...]:
    """Remove the index, keys, backups and query log of a wiki that a farm has deleted; returns the slugs removed.

    Takes the wiki's slug, or the absolute path of its repository or of a directory above it, which may be gone. Call
    it after the directory was removed. One that is not known is no error. Works in any process that has Otterwiki's
    WIKIHOLT_* settings in its environment; raises WikiholtError.
    """
    from wikiholt.interfaces.otterwiki.forget import forget_wiki  # noqa: PLC0415 - a wiki boots without it

    return forget_wiki(path_or_slug)
