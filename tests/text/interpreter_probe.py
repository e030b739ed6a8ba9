"""Runs the text package on given texts and writes the results; any supported interpreter can run it.

Arguments: a directory of dependencies, the source directory, a JSON file of texts, a JSON file for the results.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = sys.argv[1:3]

from wikiholt.domain.page import Page, PageProblem  # noqa: E402
from wikiholt.text.analysis import find_identifiers  # noqa: E402
from wikiholt.text.bm25 import build_page_terms, to_terms  # noqa: E402
from wikiholt.text.chunks import build_chunks  # noqa: E402
from wikiholt.text.display_text import to_display_text  # noqa: E402
from wikiholt.text.ignore_patterns import build_matcher  # noqa: E402
from wikiholt.text.inline import strip_inline_to_line  # noqa: E402
from wikiholt.text.keyword_query import find_plain_words, parse_query, to_plain_query  # noqa: E402
from wikiholt.text.link_rewrite import PageMove, rewrite_links  # noqa: E402
from wikiholt.text.links import PageNameIndex  # noqa: E402
from wikiholt.text.model_text import build_embedding_text, to_plain_text  # noqa: E402
from wikiholt.text.page_parser import parse_page  # noqa: E402
from wikiholt.text.segmentation import estimate_token_spans  # noqa: E402
from wikiholt.text.snippets import QueryMatcher, SnippetBuilder  # noqa: E402

_MATCHER = QueryMatcher(parse_query('kettle "every month" -winter the a c++'), "english")
_PATHS = ("a", "b", "a/b", "Home")
_MOVE = PageMove("b", "c", PageNameIndex(_PATHS), PageNameIndex(["a", "c", "a/b", "Home"]))
_PATTERNS = ("**/b", "a*b*c*", "drafts/**", "[a-c]?/*.md")


def to_json(value: object) -> object:
    """The value in a form that does not depend on the interpreter or on the order of a set."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def read(text: str) -> dict[str, Any]:
    """The results of every part of the text package for one text."""
    data = text.encode("utf-8", "surrogatepass")
    page = parse_page("dir/page.md", "0" * 40, data, None)
    found: dict[str, Any] = {
        "terms": to_terms(text),
        "joined": list(find_identifiers(text)),
        "query": parse_query(text[:2_000], "english"),
        "query words": [find_plain_words(text[:2_000]), to_plain_query(text[:2_000])],
        "page": page,
        "plain": [to_plain_text(text), strip_inline_to_line(text)],
        "readable": to_display_text(text[:4_000]),
        "snippet": SnippetBuilder(_MATCHER).build([text[:4_000]], [150]),
        "links rewritten": str(rewrite_links(data, "dir/page.md", "other/page.md", _MOVE)),
        "patterns": [build_matcher((pattern,))(text[:200]) for pattern in _PATTERNS],
    }
    if isinstance(page, Page):
        chunks = build_chunks(page, estimate_token_spans)
        found["chunks"] = chunks
        found["embedded"] = [build_embedding_text(page, each, estimate_token_spans, 254) for each in chunks]
        found["words"] = build_page_terms(page, "german")
    else:
        assert isinstance(page, PageProblem)
    return {step: to_json(value) for step, value in found.items()}


if __name__ == "__main__":
    results = [read(text) for text in json.loads(Path(sys.argv[3]).read_text())]
    Path(sys.argv[4]).write_text(json.dumps(results))
