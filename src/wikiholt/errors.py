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

from typing import ClassVar


class WikiholtError(Exception):
    """An error with a message a person can act on and, where there is one, a hint."""

    code: ClassVar[str] = "wikiholt-error"
    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInput(WikiholtError):
    code = "bad-input"
    exit_code = 2
    status = 422


class InvalidSlug(InvalidInput):
    code = "invalid-slug"


class InvalidQuery(InvalidInput):
    code = "invalid-query"


class InvalidSetting(InvalidInput):
    code = "invalid-setting"


class InvalidSource(InvalidInput):
    code = "invalid-source"


class InvalidPage(InvalidInput):
    code = "invalid-page"


class InvalidImport(InvalidInput):
    code = "invalid-import"


class InvalidEvaluation(InvalidInput):
    code = "invalid-evaluation"


class InputTooLarge(InvalidInput):
    code = "too-large"
    status = 413


class AccessDenied(WikiholtError):
    code = "refused"
    exit_code = 11
    status = 403


class Unauthorized(AccessDenied):
    code = "unauthorized"
    status = 401


class Forbidden(AccessDenied):
    code = "forbidden"


class TooManyRequests(AccessDenied):
    code = "too-many-requests"
    status = 429

    def __init__(self, message: str, *, retry_after: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class NotFound(WikiholtError):
    code = "not-found"
    exit_code = 3
    status = 404


class WikiNotFound(NotFound):
    code = "wiki-not-found"


class PageNotFound(NotFound):
    code = "page-not-found"


class AttachmentNotFound(NotFound):
    code = "attachment-not-found"


class KeyNotFound(NotFound):
    code = "key-not-found"


class BackupNotFound(NotFound):
    code = "backup-not-found"


class QueryLogNotFound(NotFound):
    code = "no-query-log"


class Conflict(WikiholtError):
    code = "conflict"
    exit_code = 4
    status = 409


class WikiExists(Conflict):
    code = "wiki-exists"


class PageExists(Conflict):
    code = "page-exists"


class RevisionMismatch(Conflict):
    """`current` is the revision that last changed the page, or None when the page is not there."""

    code = "revision-mismatch"

    def __init__(self, message: str, *, current: str | None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.current = current


class NotWritable(Conflict):
    code = "not-writable"


class Busy(Conflict):
    code = "busy"


class LockTimeout(Busy):
    code = "lock-timeout"
    status = 503


class ModelError(WikiholtError):
    code = "model-error"
    exit_code = 5
    status = 503


class ModelMissing(ModelError):
    code = "model-missing"


class ModelCorrupt(ModelError):
    code = "model-corrupt"


class ModelMismatch(ModelError):
    code = "model-mismatch"


class ModelSelfTestFailed(ModelError):
    code = "model-unproven"


class SourceError(WikiholtError):
    code = "source-error"
    exit_code = 6
    status = 503


class SourceMissing(SourceError):
    code = "source-missing"


class SourceCorrupt(SourceError):
    code = "source-broken"


class RepositoryReplaced(SourceError):
    code = "repository-replaced"


class NoCommits(SourceError):
    code = "no-commits"


class IndexUnavailable(WikiholtError):
    code = "index-fault"
    exit_code = 7
    status = 503


class IndexMissing(IndexUnavailable):
    code = "index-missing"


class IndexRepairing(IndexMissing):
    code = "index-healing"


class IndexCorrupt(IndexUnavailable):
    code = "index-corrupt"


class IndexForeign(IndexCorrupt):
    code = "index-foreign"


class IndexTooNew(IndexUnavailable):
    code = "index-too-new"


class NothingIndexed(IndexUnavailable):
    code = "nothing-indexed"


class CacheCannotAnswer(IndexUnavailable):
    code = "not-here"


class StorageError(IndexUnavailable):
    code = "storage-refused"


class DatabaseUnavailable(IndexUnavailable):
    """A database cannot be reached now. Never taken for damage: what it holds is there when it is back."""

    code = "database-away"

    def __init__(self, message: str, *, retry_after: float = 5.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class SyncFailed(WikiholtError):
    code = "sync-failed"
    exit_code = 8
    status = 503


class NoPages(SyncFailed):
    code = "no-pages"


class MissingDependency(WikiholtError):
    code = "missing-extra"
    exit_code = 9
    status = 503
