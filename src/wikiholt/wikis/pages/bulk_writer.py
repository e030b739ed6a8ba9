"""Writes many pages: one commit for a batch of lines. A bad line affects no other line.

The result of a line depends only on the line and the page, so a caller may repeat any part of an interrupted import.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from wikiholt.domain.git import AttachedFile, Author, EntryKind, FileEdit, TreeEntry
from wikiholt.errors import InputTooLarge, InvalidPage, WikiholtError
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.pages.page_reader import fold_case, get_candidate_files, get_new_file
from wikiholt.wikis.pages.page_writer import PageWriter

_BATCH_LINES = 500
_BATCH_BYTES = 8 * 1024**2
"""A batch ends with the item that reaches one of these."""

T = TypeVar("T")


class BulkOutcome(StrEnum):
    """What a line did. `absent`: the page to delete does not exist."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BulkLine:
    """A page to write; without `content`, a page to delete. Content of bytes is that of a file that is not a page."""

    number: int
    path: str
    content: str | bytes | None


@dataclass(frozen=True, slots=True)
class BulkLineResult:
    """The result of a line. `revision` is the commit that contains it, if it changed a page."""

    number: int
    path: str
    outcome: BulkOutcome
    file: str = ""
    revision: str = ""
    error: WikiholtError | None = None

    @property
    def is_change(self) -> bool:
        return bool(self.revision)


@dataclass(frozen=True, slots=True)
class _CheckedLine:
    """A line with the file that a new page would have and its content as bytes."""

    line: BulkLine
    new_file: str
    data: bytes | None

    @property
    def is_attachment(self) -> bool:
        return isinstance(self.line.content, bytes)

    @property
    def key(self) -> str:
        """Equal for lines that may name the same page."""
        return fold_case(get_page_path(self.new_file))


class BulkWriter(PageWriter):
    """Writes many pages of one wiki."""

    def write_many(self, lines: Sequence[BulkLine], author: Author, message: str = "") -> list[BulkLineResult]:
        """Write the lines in one commit, or more if a page occurs twice or a line is invalid; results in line order.

        Raises what a commit raises for the repository as a whole, such as NotWritable and Busy.
        """
        results: list[BulkLineResult] = []
        group: dict[str, _CheckedLine] = {}
        for line in lines:
            try:
                checked = self._check_line(line)
            except (InvalidPage, InputTooLarge) as error:
                results.append(_make_failure(line, error))
                continue
            if checked.key in group:  # the later line wins
                results += self._commit_valid(list(group.values()), author, message)
                group = {}
            group[checked.key] = checked
        results += self._commit_valid(list(group.values()), author, message)
        return sorted(results, key=lambda result: result.number)

    def _check_line(self, line: BulkLine) -> _CheckedLine:
        if isinstance(line.content, bytes):
            self._check_attachment_size(line.content)
            return _CheckedLine(line, line.path, line.content)
        data = None if line.content is None else self._encode(line.content)
        file = get_new_file(line.path)
        if data is not None:
            self._source.check_page_file(file)
        return _CheckedLine(line, file, data)

    def _commit_valid(self, group: list[_CheckedLine], author: Author, message: str) -> list[BulkLineResult]:
        """Commit the lines; if the repository refuses one of them, find it by halving the group."""
        if not group:
            return []
        try:
            return self._retry(lambda: self._commit_lines(group, author, message))
        except (InvalidPage, InputTooLarge) as error:
            if len(group) == 1:
                return [_make_failure(group[0].line, error)]
        middle = len(group) // 2
        return [
            *self._commit_valid(group[:middle], author, message),
            *self._commit_valid(group[middle:], author, message),
        ]

    def _commit_lines(self, group: Sequence[_CheckedLine], author: Author, message: str) -> list[BulkLineResult]:
        head = self._read_head()
        tree = _PageTree(self._source.read_tree(head) if head is not None else {})
        attachments = [checked.new_file for checked in group if checked.is_attachment]
        for folder in {file.rpartition("/")[0] for file in attachments}:
            if head is not None:
                tree.add_attached_files(folder, self._source.list_attached_files(folder, head))
        files = {
            checked.key: tree.find_attached_file(checked.new_file)
            if checked.is_attachment
            else tree.find_file(checked.line.path)
            for checked in group
        }
        unchanged = self._find_unchanged(group, files, tree)
        edits = [
            FileEdit(file or checked.new_file, checked.data, tree.get_blob(file), is_attachment=checked.is_attachment)
            for checked in group
            if checked.key not in unchanged and ((file := files[checked.key]) or checked.data is not None)
        ]
        revision = self._commit(edits, author, message or _make_message(edits)) if edits else ""
        return [_make_result(checked, files[checked.key], checked.key in unchanged, revision) for checked in group]

    def _find_unchanged(
        self, group: Sequence[_CheckedLine], files: Mapping[str, str | None], tree: "_PageTree"
    ) -> set[str]:
        """The keys of the pages that have the content already."""
        existing = [
            (checked, blob)
            for checked in group
            if checked.data is not None and (blob := tree.get_blob(files[checked.key])) is not None
        ]
        blobs = self._source.read_blobs([blob for _, blob in existing], self._pipeline.max_bytes)
        return {checked.key for (checked, _), blob in zip(existing, blobs, strict=True) if blob.data == checked.data}


class _PageTree:
    """The page files of one revision, by path in any case and Unicode normalization."""

    def __init__(self, entries: Mapping[str, TreeEntry]) -> None:
        self._blobs = {file: entry.blob for file, entry in entries.items() if entry.kind is EntryKind.FILE}
        self._attached: dict[str, str] = {}
        self._files_by_key: dict[str, set[str]] = {}
        for file in self._blobs:
            for path in (file, get_page_path(file)):
                self._files_by_key.setdefault(fold_case(path), set()).add(file)

    def find_file(self, path: str) -> str | None:
        """The file of the page with this path, or else of the only one whose path differs only in spelling."""
        path = path.strip("/")
        for file in get_candidate_files(path):
            if file in self._blobs:
                return file
        similar = self._files_by_key.get(fold_case(path), set())
        return next(iter(similar)) if len(similar) == 1 else None

    def add_attached_files(self, folder: str, files: Mapping[str, AttachedFile]) -> None:
        self._attached |= {f"{folder}/{name}" if folder else name: file.blob for name, file in files.items()}

    def find_attached_file(self, file: str) -> str | None:
        return file if self.get_blob(file) is not None else None

    def get_blob(self, file: str | None) -> str | None:
        return None if file is None else self._blobs.get(file) or self._attached.get(file)


def iter_batches(items: Iterable[T], get_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of items of a size that is right for one commit."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += get_bytes(item)
        if len(batch) >= _BATCH_LINES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _make_result(checked: _CheckedLine, old_file: str | None, is_unchanged: bool, revision: str) -> BulkLineResult:
    file = old_file or checked.new_file
    if checked.data is None:
        outcome = BulkOutcome.DELETED if old_file else BulkOutcome.ABSENT
    elif is_unchanged:
        outcome = BulkOutcome.UNCHANGED
    else:
        outcome = BulkOutcome.UPDATED if old_file else BulkOutcome.CREATED
    is_change = outcome not in (BulkOutcome.UNCHANGED, BulkOutcome.ABSENT)
    return BulkLineResult(checked.line.number, get_page_path(file), outcome, file, revision if is_change else "")


def _make_failure(line: BulkLine, error: WikiholtError) -> BulkLineResult:
    # The frames of the traceback have the tree of the wiki, which would stay in memory once for each failed line.
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return BulkLineResult(line.number, line.path, BulkOutcome.FAILED, error=error)


def _make_message(edits: Sequence[FileEdit]) -> str:
    kind = "file" if any(edit.is_attachment for edit in edits) else "page"
    return f"Import {len(edits)} {kind}{'' if len(edits) == 1 else 's'}"
