"""What an import asks of an index that several wikis share: its rows, whatever holds them."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from wikiholt.model import FloatArray

_CHUNK_MARKER = "::chunk_"


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One chunk as a stranger wrote it; nothing in it is trusted."""

    page: str
    text: str
    vector: FloatArray
    tenant: str | None = None
    """Whose it is, where the index tells; None where it does not."""
    index: int | None = None
    model: str = ""
    """What made the vector, where the index tells."""


SharedRows = Generator[SharedRow, None, None]


class SharedIndex(Protocol):
    """A shared index, opened for reading only."""

    @property
    def name(self) -> str:
        """What the operator called it, without secrets."""

    def iter_rows(self) -> SharedRows:
        """Every row, once; raises InvalidImport where it cannot be read to the end. Closing ends what it began."""


def parse_row_id(row_id: str, metadata: object) -> tuple[str, int | None]:
    """Page path and chunk number of a row that otterwiki-semantic-search wrote: by its metadata, else by its id."""
    told = metadata if isinstance(metadata, dict) else {}
    stem, mark, number = row_id.rpartition(_CHUNK_MARKER)
    page, index = told.get("page_path"), told.get("chunk_index")
    if not isinstance(page, str) or not page:
        page = stem if mark else ""
    if not isinstance(index, int) or isinstance(index, bool):
        index = int(number) if mark and number.isascii() and number.isdigit() and len(number) < 10 else None
    return page, index


def parse_json(text: str | bytes) -> object:
    """A JSON document from elsewhere; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
