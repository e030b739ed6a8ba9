"""All errors. Each has a message, a stable code, an exit code and an HTTP status."""

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
    """A page's path, content, author or edit is not valid."""

    code = "invalid-page"


class InvalidImport(InvalidInput):
    """The data to import is unreadable or has no known owner."""

    code = "invalid-import"


class InvalidEvaluation(InvalidInput):
    """Questions or judgements are not valid, or there are none."""

    code = "invalid-evaluation"


class InputTooLarge(InvalidInput):
    code = "too-large"
    status = 413


class AccessDenied(WikiholtError):
    code = "access-denied"
    exit_code = 11
    status = 403


class Unauthorized(AccessDenied):
    """No key, or an unknown key."""

    code = "unauthorized"
    status = 401


class Forbidden(AccessDenied):
    """The key does not grant this."""

    code = "forbidden"


class SignInUnavailable(AccessDenied):
    """The OpenID provider does not answer."""

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


class RevisionNotFound(NotFound):
    """A tag, branch, commit or date of a wiki's past that its repository does not have."""

    code = "revision-not-found"


class QueryLogNotFound(NotFound):
    """The query log is disabled and empty."""

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
    """The wiki's source is read-only."""

    code = "not-writable"


class Busy(Conflict):
    """Another process holds the lock."""

    code = "busy"


class ViewPending(Busy):
    """The index of a past commit is being built."""

    code = "view-pending"
    status = 503


class LockTimeout(Busy):
    """The database did not grant a lock in time."""

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
    """The server of the model does not answer now."""

    code = "model-unavailable"


class ModelRefused(ModelError):
    """A model of the hub cannot be used as it is published."""

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
    """Another repository is at the wiki's path."""

    code = "repository-replaced"


class NoCommits(SourceError):
    code = "no-commits"


class NoPagesYet(NoCommits):
    """Nobody has written to the repository that Wikiholt created. Not a failure."""

    code = "no-pages-yet"


class IndexUnavailable(WikiholtError):
    code = "index-unavailable"
    exit_code = 7
    status = 503


class IndexMissing(IndexUnavailable):
    code = "index-missing"


class IndexRepairing(IndexMissing):
    """The index was damaged and is being rebuilt."""

    code = "index-repairing"


class IndexCorrupt(IndexUnavailable):
    code = "index-corrupt"


class IndexForeign(IndexCorrupt):
    """The index belongs to another wiki, or does not name its wiki."""

    code = "index-foreign"


class IndexTooNew(IndexUnavailable):
    code = "index-too-new"


class NothingIndexed(IndexUnavailable):
    code = "nothing-indexed"


class CacheCannotAnswer(IndexUnavailable):
    """The cache cannot answer this query; the store can."""

    code = "cache-cannot-answer"


class StorageError(IndexUnavailable):
    """The disk is full, or a directory is read-only."""

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
    """The counts of a sync do not add up."""

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
