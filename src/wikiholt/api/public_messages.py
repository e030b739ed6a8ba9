"""What clients may read of errors.

Errors that the client can fix (4xx) are reported in full. The message of a 5xx error may contain paths of the server:
the client gets a general message, and the log gets the details.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from wikiholt.errors import (
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexRepairing,
    IndexUnavailable,
    LockTimeout,
    MissingDependency,
    ModelError,
    NoCommits,
    NoPagesYet,
    NothingIndexed,
    QueryLogNotFound,
    SignInUnavailable,
    SourceError,
    StorageError,
    SyncFailed,
    ViewPending,
    WikiholtError,
    WikiNotFound,
)

T = TypeVar("T")

OPERATOR_HINT = "The service log has the reason."
_PUBLIC_MESSAGES: Mapping[type[WikiholtError], tuple[str, str]] = {
    IndexRepairing: ("This wiki's index was damaged and is being repaired.", "Try again in a moment; see the status."),
    IndexMissing: ("This wiki is not indexed yet.", "Try again in a moment; the status shows the progress."),
    IndexCorrupt: ("This wiki's index is damaged and is being repaired.", "Try again in a moment."),
    NothingIndexed: ("This wiki has no indexed page yet.", "Try again in a moment; the status shows the progress."),
    StorageError: ("The service cannot write to its disk.", OPERATOR_HINT),
    LockTimeout: ("This wiki's index is locked in the database.", "Try again in a moment; nothing is lost."),
    DatabaseUnavailable: (
        "The database of this wiki is unavailable.",
        "Try again in a moment; nothing is lost.",
    ),
    IndexUnavailable: ("This wiki's index is unavailable.", OPERATOR_HINT),
    NoCommits: ("This wiki has no commit yet.", "Create the first page."),
    NoPagesYet: ("This wiki has no pages yet.", "Create the first page."),
    SourceError: ("This wiki's repository cannot be read.", OPERATOR_HINT),
    ModelError: ("The embedding model cannot be used.", f"mode=keyword works without it. {OPERATOR_HINT}"),
    SyncFailed: ("This wiki's index could not be updated.", OPERATOR_HINT),
    SignInUnavailable: (
        "The sign-in provider does not answer correctly.",
        f"Try again later, or use a key. {OPERATOR_HINT}",
    ),
    MissingDependency: ("An optional dependency of the service is not installed.", OPERATOR_HINT),
    ViewPending: ("The wiki at this commit is being indexed.", "Try again in a few seconds."),
    WikiholtError: ("Internal error.", OPERATOR_HINT),
}
_COMMAND_PATTERN = re.compile(r"\bwikiholt (?!mcp\b)[a-z]")
"""A command of the server's command line, which clients cannot use. They do start `wikiholt mcp`."""
_CLIENT_HINTS: Mapping[type[WikiholtError], str] = {
    WikiNotFound: "Check its name: /api/v1/wikis lists the wikis that you can read.",
    QueryLogNotFound: "The setting log_queries=true of the wiki enables it.",
    WikiholtError: "Ask the operator of the service.",
}
"""In place of a hint that names such a command."""


def get_public_message(error: WikiholtError) -> tuple[str, str]:
    """The message and the hint that a client may see."""
    if error.status < 500:
        is_command = _COMMAND_PATTERN.search(error.hint) is not None
        return error.message, _find_by_class(_CLIENT_HINTS, error) if is_command else error.hint
    return _find_by_class(_PUBLIC_MESSAGES, error)


def _find_by_class(values: Mapping[type[WikiholtError], T], error: WikiholtError) -> T:
    return next(values[kind] for kind in type(error).__mro__ if kind in values)
