"""The error tree. Every error has a message, a stable code, an exit code and an HTTP status.

WikiholtError
├── InvalidInput          the input is not valid                       (exit 2, HTTP 422)
│   ├── InvalidSlug
│   ├── InvalidQuery
│   ├── InvalidSetting
│   ├── InvalidSource
│   ├── InvalidPage       a page's path, content, author or edit is not valid
│   ├── InvalidEvaluation questions or judgements are not valid, or there are none
│   ├── InvalidImport     the data to import is unreadable or has no known owner
│   └── InputTooLarge                                                  (HTTP 413)
├── AccessDenied          permission denied                            (exit 11, HTTP 403)
│   ├── Unauthorized      no key, or an unknown key                    (HTTP 401)
│   ├── Forbidden         the key does not grant this                  (HTTP 403)
│   ├── SignInUnavailable the OpenID provider does not answer          (HTTP 503)
│   └── TooManyRequests   rate limited; retry after `retry_after` s    (HTTP 429)
├── NotFound              the named object does not exist              (exit 3, HTTP 404)
│   ├── WikiNotFound
│   ├── PageNotFound
│   ├── AttachmentNotFound
│   ├── KeyNotFound
│   ├── BackupNotFound
│   └── QueryLogNotFound  the query log is disabled and empty
├── Conflict              the object exists, or is in use              (exit 4, HTTP 409)
│   ├── WikiExists
│   ├── PageExists
│   ├── RevisionMismatch  the page changed since the writer read it
│   ├── NotWritable       the wiki's source is read-only
│   └── Busy              another process holds the lock
│       └── LockTimeout   the database did not grant a lock in time    (HTTP 503)
├── ModelError            the model cannot be used                     (exit 5, HTTP 503)
│   ├── ModelMissing
│   ├── ModelCorrupt
│   ├── ModelMismatch
│   ├── ModelSelfTestFailed
│   ├── ModelUnavailable   the server of the model does not answer now
│   └── ModelRefused       a model of the hub cannot be used as it is published
├── SourceError           the git repository cannot be read            (exit 6, HTTP 503)
│   ├── SourceMissing
│   ├── SourceCorrupt
│   ├── RepositoryReplaced another repository is at the wiki's path
│   └── NoCommits
│       └── NoPagesYet    nobody has written to the repository that Wikiholt created; not a failure
├── IndexUnavailable      the index cannot answer                      (exit 7, HTTP 503)
│   ├── IndexMissing
│   │   └── IndexRepairing the index was damaged and is being rebuilt
│   ├── IndexCorrupt
│   │   └── IndexForeign  the index belongs to another wiki, or does not name its wiki
│   ├── IndexTooNew
│   ├── NothingIndexed
│   ├── CacheCannotAnswer the cache cannot answer this query; the store can
│   ├── StorageError      disk full, or a read-only directory
│   └── DatabaseUnavailable retry after `retry_after` s; no data is lost
│       ├── TooManyConnections
│       └── LoginRefused
├── SyncFailed            the sync's counts do not add up              (exit 8, HTTP 503)
│   └── NoPages
└── MissingDependency     an optional dependency is not installed      (exit 9, HTTP 503)
"""

from typing import ClassVar


class WikiholtError(Exception):
    """Base class. `message` says what happened; `hint`, if any, says what to do about it."""

    code: ClassVar[str] = "wikiholt-error"
    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInput(WikiholtError):
    code = "invalid-input"
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
    code = "access-denied"
    exit_code = 11
    status = 403


class Unauthorized(AccessDenied):
    code = "unauthorized"
    status = 401


class Forbidden(AccessDenied):
    code = "forbidden"


class SignInUnavailable(AccessDenied):
    code = "sign-in-unavailable"
    status = 503


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
    """`slug` is the name that was asked for, if there was one."""

    code = "wiki-not-found"

    def __init__(self, message: str, *, hint: str = "", slug: str = "") -> None:
        super().__init__(message, hint=hint)
        self.slug = slug


class PageNotFound(NotFound):
    """`current_path` is the page that has the requested path as an alias or former name, if there is exactly one."""

    code = "page-not-found"

    def __init__(self, message: str, *, hint: str = "", current_path: str = "") -> None:
        super().__init__(message, hint=hint)
        self.current_path = current_path


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
    """`current` is the revision that last changed the page, or None if the page does not exist."""

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
    code = "model-self-test-failed"


class ModelUnavailable(ModelError):
    code = "model-unavailable"


class ModelRefused(ModelError):
    code = "model-refused"


class SourceError(WikiholtError):
    code = "source-error"
    exit_code = 6
    status = 503


class SourceMissing(SourceError):
    code = "source-missing"


class SourceCorrupt(SourceError):
    code = "source-corrupt"


class RepositoryReplaced(SourceError):
    code = "repository-replaced"


class NoCommits(SourceError):
    code = "no-commits"


class NoPagesYet(NoCommits):
    code = "no-pages-yet"


class IndexUnavailable(WikiholtError):
    code = "index-unavailable"
    exit_code = 7
    status = 503


class IndexMissing(IndexUnavailable):
    code = "index-missing"


class IndexRepairing(IndexMissing):
    code = "index-repairing"


class IndexCorrupt(IndexUnavailable):
    code = "index-corrupt"


class IndexForeign(IndexCorrupt):
    code = "index-foreign"


class IndexTooNew(IndexUnavailable):
    code = "index-too-new"


class NothingIndexed(IndexUnavailable):
    code = "nothing-indexed"


class CacheCannotAnswer(IndexUnavailable):
    code = "cache-cannot-answer"


class StorageError(IndexUnavailable):
    code = "storage-error"


class DatabaseUnavailable(IndexUnavailable):
    """A database cannot be reached now. This is never treated as damage: its data is intact."""

    code = "database-unavailable"

    def __init__(self, message: str, *, retry_after: float = 5.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class TooManyConnections(DatabaseUnavailable):
    """The server accepts no further connection."""

    code = "too-many-connections"


class LoginRefused(DatabaseUnavailable):
    """The server does not let the wiki's role log in. `wikiholt doctor --fix` and the next sync reset its password."""

    code = "login-refused"


class SyncFailed(WikiholtError):
    code = "sync-failed"
    exit_code = 8
    status = 503


class NoPages(SyncFailed):
    code = "no-pages"


def make_extra_hint(extra: str) -> str:
    """How to install an extra. The project is on no package index, so there is no command that works everywhere."""
    return f"install Wikiholt with the extra {extra}, for example: pip install '.[{extra}]' in its source directory"


class MissingDependency(WikiholtError):
    code = "missing-extra"
    exit_code = 9
    status = 503
