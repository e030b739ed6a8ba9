"""What the core asks of where pages come from."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from wikiholt.model import AttachedFile, Author, Blob, Commit, FileEdit, LogEntry, TreeChange, TreeEntry, FileVersion, Wiki


class Source(Protocol):
    """Where a wiki's pages come from: one git repository, read at a revision."""

    def get_head(self) -> str:
        """The commit at HEAD; raises SourceMissing, SourceBroken or NoCommits."""

    def get_last_known_head(self) -> str:
        """HEAD as far as anybody knows it, for saying whether an answer is behind; brings nothing, so it never waits.

        Raises what `head` raises.
        """

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision (relative to the wiki's sub-directory) with its blob."""

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions, at a cost of the difference; None when that is unknown."""

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs, in the order asked for; one larger than `limit` bytes comes without its data."""

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file was last changed by a commit; `since` is a commit to stop at if it is an ancestor."""

    def resolve_revision(self, revision: str) -> str:
        """The full id of a commit named by at least 7 of its digits; only commits that HEAD descends from count."""

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        """The page file's entry at the revision, or None when there is no such page; cheap in any wiki."""

    def list_attached_files(self, folder: str, revision: str) -> Mapping[str, AttachedFile]:
        """The files right in a folder that are no pages, by name; none where there is no such folder."""

    def read_history(self, file: str, limit: int = 50, revision: str | None = None) -> Sequence[Commit]:
        """The commits that changed a file, newest first, its earlier names followed; none for an unknown file."""

    def read_log(self, limit: int, skip: int = 0) -> Sequence[LogEntry]:
        """The commits that touched a page, newest first."""

    def find_old_versions(self, revision: str, limit: int) -> Sequence[FileVersion]:
        """At most so many former versions of the pages at the revision, newest first, followed through renames."""

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Make one commit of these edits on HEAD and return its id.

        Raises RevisionMismatch when a file is not the one expected, NotWritable, Busy, and InvalidPage for a path,
        author or message that makes no sense.
        """

    def fetch(self, stop: Callable[[], bool] = ...) -> bool:
        """Bring what is new from where the pages really live, if that is elsewhere; whether something came.

        Ends soon, with Busy, once `stop` says so.
        """

    def check_readable(self) -> None:
        """Raise what would keep the pages from being read; a source without commits yet is welcome."""


class RepositoryIdentities(Protocol):
    """Tells the repository of a wiki from another one that takes its place at the same path."""

    def identify(self, source: str) -> str:
        """When the repository at this path was created, in a form to compare; empty where that cannot be told."""

    def bind(self, wiki: Wiki) -> str:
        """Mark the wiki's repository as its own, if possible; returns what to record of it."""

    def release(self, wiki: Wiki) -> None:
        """Take the mark away, where it can be; never raises."""

    def matches(self, wiki: Wiki) -> bool:
        """Whether the repository at the wiki's path is the one that was recorded; cheap enough for every request."""
