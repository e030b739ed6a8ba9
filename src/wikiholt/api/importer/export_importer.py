"""Imports the export of another program: its pages and files, in batches, and its problems."""

from collections.abc import Iterator

from wikiholt.api.operations.bulk_lines import BatchWriter, BulkResultDocument, make_failure, write_batches
from wikiholt.documents.exports.items import ExportedFile, ExportedPage, ExportReader
from wikiholt.errors import InvalidPage
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult, iter_batches


def write_export(reader: ExportReader, write: BatchWriter) -> Iterator[BulkResultDocument]:
    """Write all items of the export, numbered from 1, and yield the result of each; a problem is a failed one."""
    yield from write_batches(iter_batches(_iter_lines(reader), _count_bytes), write)


def _iter_lines(reader: ExportReader) -> Iterator[BulkLine | BulkLineResult]:
    for number, item in enumerate(reader.iter_items(), 1):
        if isinstance(item, ExportedPage):
            yield BulkLine(number, item.file, item.text)
        elif isinstance(item, ExportedFile):
            yield BulkLine(number, item.file, item.data)
        else:
            yield make_failure(number, item.name, InvalidPage(item.reason, hint="Repair it and import again."))


def _count_bytes(line: BulkLine | BulkLineResult) -> int:
    return len(line.content or "") if isinstance(line, BulkLine) else 0
