"""The files of an export: scripts that call one function with compressed data, so that a page opened from a directory,
which may not fetch files, can load them too.

The same contents give the same bytes. `static_search.js` reads what is written here.
"""

import gzip
import json
import re
import sys
import unicodedata
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.search import ranking
from wikiholt.search.candidates import KEYWORD_SHARES, MIN_ONLY_TERM_WEIGHT
from wikiholt.search.hits import SNIPPET_CHARS, WORD_WEIGHT
from wikiholt.search.title_match import PATH_SHARE, make_title_terms
from wikiholt.text import analysis, bm25
from wikiholt.text.command_names import PROGRAMS, WORDS
from wikiholt.text.keyword_query import get_stop_terms
from wikiholt.text.page_names import FOLDER_PAGES, LINK_EXTENSIONS
from wikiholt.text.segmentation import CJK_RANGES
from wikiholt.wikis.export.contents import ExportContents, SearchedPage
from wikiholt.wikis.export.encoder import DIMENSIONS, SCALE

WORDS_FILE_BYTES = 14_000
"""About how large a file of words is before it is compressed: a search reads one or two for each word."""
TEXT_FILE_CHARS = 9_000
"""The same for a file of texts: a search reads one for each hit."""


class ExportFiles(NamedTuple):
    """The data files by name, and a digest of them, which is the name of their directory."""

    files: Mapping[str, bytes]
    digest: str


def build_files(contents: ExportContents, url: str) -> ExportFiles:
    """All data files. `url` is the template of the links to pages, with `{path}` or `{file}`."""
    files: dict[str, bytes] = {}
    words = dict(_iter_word_files(contents))
    text_files = _group_texts(contents.pages)
    for number, (_, data) in enumerate(words.items()):
        files[f"words-{number}.js"] = _make_script(data)
    for number, pages in enumerate(text_files):
        texts = [[[each.headings, each.anchor, each.text] for each in page.passages] for page in pages]
        files[f"text-{number}.js"] = _make_script(_encode_json(texts))
    encoder = contents.encoder
    files["vectors.js"] = _make_script(_pack(encoder.parts))
    start = {
        "constants": _build_constants(contents.languages),
        "words": list(words),
        "texts": [len(pages) for pages in text_files],
        "dimensions": DIMENSIONS,
        "parts": np.bincount(encoder.part_pages, minlength=len(contents.pages)).tolist(),
        "pages": [_build_page(page, url, contents.languages[0]) for page in contents.pages],
    }
    files["start.js"] = _make_script(_encode_json(start))
    digest = blake2b(digest_size=8)
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return ExportFiles(files, digest.hexdigest())


def format_url(template: str, path: str, file: str) -> str:
    """The link to a page. Where addresses are folders (`{path}/`), a page that describes its folder has its address."""
    folder, _, last = path.rpartition("/")
    if last.lower() in FOLDER_PAGES and "{path}/" in template:
        template, path = template.replace("{path}/", "{path}/" if folder else ""), folder
    return template.replace("{path}", quote(path)).replace("{file}", quote(file))


def _build_page(exported: SearchedPage, url: str, language: str) -> list[Any]:
    page = exported.page
    names = []
    for name in (page.name, *page.aliases):
        terms = make_title_terms(name, page.path, language)
        names.append([name, " ".join(sorted(terms.name)), " ".join(sorted(terms.with_path - terms.name))])
    link = format_url(url, page.path, page.file)
    return [page.path, link, names, list(page.tags), exported.length, len(exported.passages)]


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _make_script(data: bytes) -> bytes:
    return b'wikiholtPart("' + b64encode(gzip.compress(data, 9, mtime=0)) + b'")\n'


# Words: every term with its pages and its vector, and every other word with its term, in order.


def _iter_word_files(contents: ExportContents) -> Iterator[tuple[str, bytes]]:
    """The first word and the data of each file."""
    words: list[str] = []
    body = bytearray()
    size = 0
    for word in sorted({*contents.postings, *contents.stems, *contents.terms}, key=_get_utf16_key):
        entry = _encode_word(contents, word)
        size += len(word) + 8 + len(entry)
        words.append(" ".join((word, *_list_stems(contents, word))))
        body += entry
        if size >= WORDS_FILE_BYTES:
            yield words[0].split(" ")[0], _join_words(words, body)
            words, body, size = [], bytearray(), 0
    if words:
        yield words[0].split(" ")[0], _join_words(words, body)


def _get_utf16_key(word: str) -> bytes:
    """Words in the order in which JavaScript compares them."""
    return word.encode("utf-16-be", "surrogatepass")


def _list_stems(contents: ExportContents, word: str) -> Sequence[str]:
    """The terms of a word by language; none if it is its own, one if all languages agree."""
    stems = contents.stems.get(word, ())
    return stems[:1] if len(set(stems)) == 1 else stems


def _join_words(words: Sequence[str], body: bytearray) -> bytes:
    head = "\n".join(words).encode("utf-8", "replace")
    return len(head).to_bytes(4, "little") + head + body


def _encode_word(contents: ExportContents, word: str) -> bytes:
    """The number of pages, doubled, plus 1 with a vector; the pages as distances; the counts; the vector."""
    postings = contents.postings.get(word, ())
    number = contents.terms.get(word)
    encoder = contents.encoder
    scale = float(encoder.term_scales[number]) if number is not None else 0.0
    numbers = [2 * len(postings) + (scale > 0)]
    pages = [page for page, _ in postings]
    numbers += [page - before for page, before in zip(pages, [0, *pages], strict=False)]
    numbers += [count for _, count in postings]
    encoded = b"".join(map(_encode_number, numbers))
    if scale <= 0 or number is None:
        return encoded
    level = int(np.clip(round(np.log(scale) * 16) + 224, 0, 255))
    return encoded + bytes([level]) + _pack(encoder.terms[number : number + 1])


def _encode_number(number: int) -> bytes:
    """Seven bits per byte, the lowest first; the highest bit says that more follow."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _pack(rows: FloatArray) -> bytes:
    """Two numbers of -7 to 7 in a byte, each plus 8."""
    numbers = (rows + 8).astype(np.uint8).reshape(-1)
    return (numbers[::2] | numbers[1::2] << 4).tobytes()


def _group_texts(pages: Sequence[SearchedPage]) -> list[list[SearchedPage]]:
    groups: list[list[SearchedPage]] = [[]]
    size = 0
    for page in pages:
        if size >= TEXT_FILE_CHARS:
            groups.append([])
            size = 0
        groups[-1].append(page)
        size += sum(len(passage.text) for passage in page.passages)
    return groups


# What the script needs to analyse and rank as the index does.


def _build_constants(languages: Sequence[str]) -> dict[str, Any]:
    hybrid, keyword = SearchMode.HYBRID, SearchMode.KEYWORD
    return {
        "marks": analysis.COMBINING_MARKS,
        "accents": _find_accents(),
        "unspaced": analysis.UNSPACED_SCRIPTS,
        "cjk": CJK_RANGES,
        "letters": {chr(key): value for key, value in analysis.LETTER_REPLACEMENTS.items()},
        "stops": [sorted(get_stop_terms(language)) for language in languages],
        "extensions": list(LINK_EXTENSIONS),
        "programs": sorted(PROGRAMS),
        "commands": sorted(WORDS),
        "passageWords": WORD_WEIGHT,
        "turkish": languages[0] in {"turkish", "tr"},
        "k1": bm25.K1,
        "b": bm25.B,
        "prefix": bm25.PREFIX_WEIGHT,
        "depth": KEYWORD_SHARES,
        "only": MIN_ONLY_TERM_WEIGHT,
        "path": PATH_SHARE,
        "long": ranking.LONG_QUERY_WORDS,
        "code": ranking.MIN_CODE_CHARS,
        "scale": [SCALE.unrelated, SCALE.related],
        "snippet": SNIPPET_CHARS,
        "weights": {
            mode.value: [ranking.RANK_WEIGHTS[mode], ranking.SENTENCE_WEIGHTS[mode], ranking.WORD_WEIGHTS[mode]]
            for mode in (hybrid, keyword)
        },
    }


def _find_accents() -> str:
    """The characters that are removed from words, as ranges of a pattern."""
    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code))]
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{_escape(first)}-{_escape(last)}" for first, last in ranges)


def _escape(code: int) -> str:
    return re.sub(r"([\]\\^-])", r"\\\1", chr(code))
