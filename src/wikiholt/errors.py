"""The error tree. Every error says what happened and what to do about it.

WikiholtError
├── BadInput             what was asked for makes no sense            (exit 2, HTTP 422)
│   ├── InvalidSlug
│   ├── InvalidQuery
│   ├── InvalidSetting
│   ├── InvalidSource
│   ├── InvalidPage      a page's path, content, author or edit makes no sense
│   ├── InvalidEvaluation questions or judgements make no sense, or there is nothing to ask
│   ├── InvalidImport    what is to be imported cannot be read, or nobody knows whose it is
│   └── TooLarge                                                      (HTTP 413)
├── Refused              who asks may not                             (exit 11)
│   ├── Unauthorized     no key, or one that is not known             (HTTP 401)
│   ├── Forbidden        a key that does not open this                (HTTP 403)
│   └── TooManyRequests  come back after `retry_after` seconds        (HTTP 429)
├── NotFound             the thing named does not exist               (exit 3, HTTP 404)
│   ├── WikiNotFound
│   ├── PageNotFound
│   ├── AttachmentNotFound
│   ├── KeyNotFound
│   ├── BackupNotFound
│   └── NoQueryLog       nobody has turned it on, and there is none
├── Conflict             it exists already, or somebody is at work    (exit 4, HTTP 409)
│   ├── WikiExists
│   ├── PageExists
│   ├── RevisionMismatch the page is another one than the writer read
│   ├── NotWritable      this wiki's source takes no writes
│   └── Busy
│       └── LockTimeout  the database did not grant a lock in time     (HTTP 503)
├── ModelError           the embedder cannot be trusted               (exit 5, HTTP 503)
│   ├── ModelMissing
│   ├── ModelCorrupt
│   ├── ModelMismatch
│   └── ModelUnproven
├── SourceError          the git repository cannot be read            (exit 6, HTTP 503)
│   ├── SourceMissing
│   ├── SourceBroken
│   ├── RepositoryReplaced another repository lies where the wiki's was
│   └── NoCommits
├── IndexFault          the index cannot serve                       (exit 7, HTTP 503)
│   ├── IndexMissing
│   │   └── IndexHealing it was broken and is being mended
│   ├── IndexCorrupt
│   │   └── IndexForeign it is another wiki's, or does not say whose it is
│   ├── IndexTooNew
│   ├── NothingIndexed
│   ├── NotHere          a cache cannot answer this; the store can
│   ├── StorageRefused   disk full, read-only directory
│   └── DatabaseAway     come back after `retry_after` seconds; nothing is lost
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
    status = 422


class InvalidSlug(BadInput):
    pass


class InvalidQuery(BadInput):
    pass


class InvalidSetting(BadInput):
    pass


class InvalidSource(BadInput):
    pass


class InvalidPage(BadInput):
    pass


class InvalidImport(BadInput):
    pass


class InvalidEvaluation(BadInput):
    pass


class TooLarge(BadInput):
    status = 413


class Refused(WikiholtError):
    exit_code = 11
    status = 403


class Unauthorized(Refused):
    status = 401


class Forbidden(Refused):
    pass


class TooManyRequests(Refused):
    status = 429

    def __init__(self, message: str, *, retry_after: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class NotFound(WikiholtError):
    exit_code = 3
    status = 404


class WikiNotFound(NotFound):
    pass


class PageNotFound(NotFound):
    pass


class AttachmentNotFound(NotFound):
    pass


class KeyNotFound(NotFound):
    pass


class BackupNotFound(NotFound):
    pass


class NoQueryLog(NotFound):
    pass


class Conflict(WikiholtError):
    exit_code = 4
    status = 409


class WikiExists(Conflict):
    pass


class PageExists(Conflict):
    pass


class RevisionMismatch(Conflict):
    """`current` is the revision that last changed the page, or None when the page is not there."""

    def __init__(self, message: str, *, current: str | None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.current = current


class NotWritable(Conflict):
    pass


class Busy(Conflict):
    pass


class LockTimeout(Busy):
    status = 503


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


class RepositoryReplaced(SourceError):
    pass


class NoCommits(SourceError):
    pass


class IndexFault(WikiholtError):
    exit_code = 7
    status = 503


class IndexMissing(IndexFault):
    pass


class IndexHealing(IndexMissing):
    pass


class IndexCorrupt(IndexFault):
    pass


class IndexForeign(IndexCorrupt):
    pass


class IndexTooNew(IndexFault):
    pass


class NothingIndexed(IndexFault):
    pass


class NotHere(IndexFault):
    pass


class StorageRefused(IndexFault):
    pass


class DatabaseAway(IndexFault):
    """A database cannot be reached now. Never taken for damage: what it holds is there when it is back."""

    def __init__(self, message: str, *, retry_after: float = 5.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class SyncFailed(WikiholtError):
    exit_code = 8
    status = 503


class NoPages(SyncFailed):
    pass


class MissingExtra(WikiholtError):
    exit_code = 9
    status = 503
