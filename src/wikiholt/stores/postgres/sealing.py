"""Checksums of what a generation holds: those of the embedded store, over the same values, so that copies keep them."""

from collections.abc import Iterable
from typing import Any

from wikiholt.stores.sqlite.seals import row_seal

Row = tuple[Any, ...]


def page_seal(
    page: Row, chunks: Iterable[Row], vectors: Iterable[Row], tags: Iterable[str], links: Iterable[Row]
) -> int:
    """The checksum of all that is stored of a page: rows as the embedded store's tables have them, each in order."""
    crc = row_seal(page)
    for chunk in chunks:
        crc = row_seal(chunk, crc)
    for vector in vectors:
        crc = row_seal(vector, crc)
    for tag in tags:
        crc = row_seal((tag,), crc)
    for link in links:
        crc = row_seal((page[0], *link), crc)
    return crc
