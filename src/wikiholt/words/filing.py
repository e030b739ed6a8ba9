"""Postings as a file: written whole, mapped for reading."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.cachefile.file import MappedFile, SectionWriter
from wikiholt.cachefile.folder import CacheName, Folder
from wikiholt.text.fields import FIELD_WEIGHTS
from wikiholt.words.postings import Postings
from wikiholt.words.vocabulary import Vocabulary

FAMILY, KIND = "words", "postings"
LAYOUT = 1
"""Raised when the sections change their meaning."""

_LOOKUP = ("text", "ends", "offsets", "page_ids", "lengths")
_LISTS = ("rows", "counts")
_AT_ONCE = 16 << 20
"""Bytes of postings that are checked in less than some twenty milliseconds."""


def name_of(generation: int, version: int) -> CacheName:
    return CacheName(FAMILY, generation, version, KIND)


def write(folder: Folder, generation: int, postings: Postings) -> None:
    """Put the postings into the folder, in one step, and remove the files they replace."""
    name = name_of(generation, postings.version)
    with folder.writing(name) as file:
        writer = SectionWriter(file)
        writer.write("text", np.frombuffer(postings.terms.text, np.uint8))
        writer.write("ends", np.asarray(postings.terms.ends).astype("<i8", copy=False))
        writer.write("offsets", postings.offsets.astype("<i8", copy=False))
        writer.write("page_ids", postings.page_ids.astype("<i8", copy=False))
        writer.write("lengths", postings.lengths.astype("<i8", copy=False))
        writer.write("rows", postings.rows.astype("<i4", copy=False))
        writer.write("counts", postings.counts.astype("<f4", copy=False))
        writer.finish(KIND, folder.owner, generation, postings.version, _about(postings))
    folder.remove_before(name)


def open_mapped(folder: Folder, name: CacheName) -> tuple[Postings, MappedFile, bool]:
    """The postings in this file and whether every byte was checked; raises CacheBroken unless it can be used."""
    file = MappedFile(folder.locate(name))
    header = file.header
    if header.owner != folder.owner:
        raise CacheBroken("The cache's file belongs to another wiki.")
    if (header.kind, header.generation, header.version) != (KIND, name.generation, name.version):
        raise CacheBroken("The cache's file is not what its name says.")
    small = sum(len(file.section(name)) for name in _LISTS) <= _AT_ONCE
    file.check(None if small else _LOOKUP)
    terms = Vocabulary(file.section("text"), file.section("ends").cast("q"))
    numbers = [_array(file, name, "<i8") for name in ("offsets", "page_ids", "lengths")]
    offsets, page_ids, lengths = numbers
    rows, counts = _array(file, "rows", "<i4"), _array(file, "counts", "<f4")
    postings = Postings(name.version, terms, offsets, rows, counts, page_ids, lengths)
    if header.about != _about(postings) or len(offsets) != len(terms) + 1:
        raise CacheBroken("The cache's file was made in another way.")
    return postings, file, small


def _array(file: MappedFile, name: str, kind: str) -> NDArray[Any]:
    return np.frombuffer(file.section(name), kind)


def _about(postings: Postings) -> dict[str, Any]:
    return {
        "layout": LAYOUT,
        "weights": list(FIELD_WEIGHTS),
        "pages": len(postings.page_ids),
        "terms": len(postings.terms),
        "postings": len(postings.rows),
        "bytes": len(postings.terms.text),
    }
