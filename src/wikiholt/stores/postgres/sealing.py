"""Checksums of what a generation holds: those of the embedded store, over the same values, so that copies keep them."""

from collections.abc import Iterable
from typing import Any

from wikiholt.stores.sqlite.seals import compute_row_checksum

Row = tuple[Any, ...]


def compute_page_checksum(
    page: Row, chunks: Iterable[Row], vectors: Iterable[Row], tags: Iterable[str], links: Iterable[Row]
) -> int:
    """The checksum of all that is stored of a page: rows as the embedded store's tables have them, each in order."""
    crc = compute_row_checksum(page)
    for chunk in chunks:
        crc = compute_row_checksum(chunk, crc)
    for vector in vectors:
        crc = compute_row_checksum(vector, crc)
    for tag in tags:
        crc = compute_row_checksum((tag,), crc)
    for link in links:
        crc = compute_row_checksum((page[0], *link), crc)
    return crc
