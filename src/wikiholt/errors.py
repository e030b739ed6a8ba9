"""The error tree. Every error says what happened and what to do about it.

WikiholtError
├── BadInput             what was asked for makes no sense            (exit 2, HTTP 4xx)
│   ├── InvalidSlug
│   ├── InvalidQuery
│   ├── InvalidSetting
│   └── InvalidSource
├── NotFound             the thing named does not exist               (exit 3, HTTP 404)
│   ├── WikiNotFound
│   └── PageNotFound
├── Conflict             it exists already, or somebody is at work    (exit 4, HTTP 409)
│   ├── WikiExists
│   └── Busy
├── ModelError           the embedder cannot be trusted               (exit 5, HTTP 503)
│   ├── ModelMissing
│   ├── ModelCorrupt
│   ├── ModelMismatch
│   └── ModelUnproven
├── SourceError          the git repository cannot be read            (exit 6, HTTP 503)
│   ├── SourceMissing
│   ├── SourceBroken
│   └── NoCommits
├── IndexFault          the index cannot serve                       (exit 7, HTTP 503)
│   ├── IndexMissing
│   ├── IndexCorrupt
│   ├── IndexTooNew
│   ├── NothingIndexed
│   ├── NotHere          a cache cannot answer this; the store can
│   └── StorageRefused   disk full, read-only directory
├── SyncFailed           the counts do not add up                     (exit 8, HTTP 503)
│   └── NoPages
└── MissingExtra         an optional dependency is not installed      (exit 9, HTTP 503)
"""

import re
from typing import ClassVar


class WikiholtError(Exception):
    """An error with a message a person can act on and, where there is one, a hint."""

    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @classmethod
    def code(cls) -> str:
        """The stable name of this kind of error on every surface, derived from the class."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


class BadInput(WikiholtError):
    exit_code = 2
    status = 400


class InvalidSlug(BadInput):
    pass


class InvalidQuery(BadInput):
    pass


class InvalidSetting(BadInput):
    pass


class InvalidSource(BadInput):
    pass


class NotFound(WikiholtError):
    exit_code = 3
    status = 404


class WikiNotFound(NotFound):
    pass


class PageNotFound(NotFound):
    pass


class Conflict(WikiholtError):
    exit_code = 4
    status = 409


class WikiExists(Conflict):
    pass


class Busy(Conflict):
    pass


class ModelError(WikiholtError):
    exit_code = 5
    status = 503


class ModelMissing(ModelError):
    pass


class ModelCorrupt(ModelError):
    pass


class ModelMismatch(ModelError):
    pass


class ModelUnproven(ModelError):
    pass


class SourceError(WikiholtError):
    exit_code = 6
    status = 503


class SourceMissing(SourceError):
    pass


class SourceBroken(SourceError):
    pass


class NoCommits(SourceError):
    pass


class IndexFault(WikiholtError):
    exit_code = 7
    status = 503


class IndexMissing(IndexFault):
    pass


class IndexCorrupt(IndexFault):
    pass


class IndexTooNew(IndexFault):
    pass


class NothingIndexed(IndexFault):
    pass


class NotHere(IndexFault):
    pass


class StorageRefused(IndexFault):
    pass


class SyncFailed(WikiholtError):
    exit_code = 8
    status = 503


class NoPages(SyncFailed):
    pass


class MissingExtra(WikiholtError):
    exit_code = 9
    status = 503
