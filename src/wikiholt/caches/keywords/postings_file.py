"""The file format of postings: written once, mapped for reading."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheFileName, MappedFile, SectionWriter
from wikiholt.caches.keywords.postings import Postings, Vocabulary
from wikiholt.text.bm25 import FIELD_WEIGHTS

CACHE_FAMILY, CACHE_KIND = "words", "postings"
LAYOUT_VERSION = 1
"""Incremented when the meaning of the sections changes."""

_LOOKUP_SECTIONS = ("text", "ends", "offsets", "page_ids", "lengths")
_LIST_SECTIONS = ("rows", "counts")
_MAX_EAGER_CHECK_BYTES = 16 << 20
"""Postings up to this size are verified at opening, which takes less than twenty milliseconds."""


def make_file_name(generation: int, version: int) -> CacheFileName:
    return CacheFileName(CACHE_FAMILY, generation, version, CACHE_KIND)


def write_postings(directory: CacheDirectory, generation: int, postings: Postings) -> None:
    """Write the postings atomically and remove the files they replace. Raises OSError."""
    name = make_file_name(generation, postings.version)
    with directory.open_for_writing(name) as file:
        writer = SectionWriter(file)
        writer.write("text", np.frombuffer(postings.terms.text, np.uint8))
        writer.write("ends", np.asarray(postings.terms.ends).astype("<i8", copy=False))
        writer.write("offsets", postings.offsets.astype("<i8", copy=False))
        writer.write("page_ids", postings.page_ids.astype("<i8", copy=False))
        writer.write("lengths", postings.lengths.astype("<i8", copy=False))
        writer.write("rows", postings.rows.astype("<i4", copy=False))
        writer.write("counts", postings.counts.astype("<f4", copy=False))
        writer.finish(CACHE_KIND, directory.owner, generation, postings.version, _build_header_fields(postings))
    directory.remove_older(name)


def open_postings(directory: CacheDirectory, name: CacheFileName) -> tuple[Postings, MappedFile, bool]:
    """Return the postings of a file, the file, and whether it was fully verified. Raises CacheBroken or OSError."""
    file = MappedFile(directory.get_path(name))
    header = file.header
    if header.owner != directory.owner:
        raise CacheBroken("The cache file belongs to another wiki.")
    if (header.kind, header.generation, header.version) != (CACHE_KIND, name.generation, name.version):
        raise CacheBroken("The header of the cache file does not match its name.")
    is_small = sum(len(file.get_section(section)) for section in _LIST_SECTIONS) <= _MAX_EAGER_CHECK_BYTES
    file.verify_checksums(None if is_small else _LOOKUP_SECTIONS)
    terms = Vocabulary(file.get_section("text"), file.get_section("ends").cast("q"))
    offsets, page_ids, lengths = (_read_array(file, section, "<i8") for section in ("offsets", "page_ids", "lengths"))
    rows, counts = _read_array(file, "rows", "<i4"), _read_array(file, "counts", "<f4")
    postings = Postings(name.version, terms, offsets, rows, counts, page_ids, lengths)
    if header.about != _build_header_fields(postings) or len(offsets) != len(terms) + 1:
        raise CacheBroken("The cache file was written with another layout.")
    return postings, file, is_small


def _read_array(file: MappedFile, section: str, dtype: str) -> NDArray[Any]:
    return np.frombuffer(file.get_section(section), dtype)


def _build_header_fields(postings: Postings) -> dict[str, Any]:
    return {
        "layout": LAYOUT_VERSION,
        "weights": list(FIELD_WEIGHTS),
        "pages": len(postings.page_ids),
        "terms": len(postings.terms),
        "postings": len(postings.rows),
        "bytes": len(postings.terms.text),
    }
