"""Runs the text package on given texts and writes what it makes of them; any supported interpreter can run it.

Arguments: a directory of dependencies, the source directory, a JSON file of texts, a JSON file for the results.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = sys.argv[1:3]

from wikiholt.model import Page, Problem  # noqa: E402
from wikiholt.text.chunking import chunk, embedded_text  # noqa: E402
from wikiholt.text.identifiers import joined  # noqa: E402
from wikiholt.text.inline import plain_inline  # noqa: E402
from wikiholt.text.links import Names  # noqa: E402
from wikiholt.text.page import parse_page  # noqa: E402
from wikiholt.text.patterns import matching  # noqa: E402
from wikiholt.text.plain import plain_text  # noqa: E402
from wikiholt.text.queries import loose_words, parse_query, plain_query  # noqa: E402
from wikiholt.text.readable import readable  # noqa: E402
from wikiholt.text.rewriting import Move, rewritten  # noqa: E402
from wikiholt.text.snippets import snippet  # noqa: E402
from wikiholt.text.tokens import approximate_spans  # noqa: E402
from wikiholt.text.words import page_words, terms  # noqa: E402

_PATHS = ("a", "b", "a/b", "Home")
_MOVE = Move("b", "c", Names(_PATHS), Names(["a", "c", "a/b", "Home"]))
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
    """What every part of the text package makes of one text."""
    data = text.encode("utf-8", "surrogatepass")
    page = parse_page("dir/page.md", "0" * 40, data, None)
    found: dict[str, Any] = {
        "terms": terms(text),
        "joined": list(joined(text)),
        "query": parse_query(text[:2_000], "english"),
        "query words": [loose_words(text[:2_000]), plain_query(text[:2_000])],
        "page": page,
        "plain": [plain_text(text), plain_inline(text)],
        "readable": readable(text[:4_000]),
        "snippet": snippet(text[:4_000], parse_query('kettle "every month" -winter the a c++')),
        "links rewritten": str(rewritten(data, "dir/page.md", "other/page.md", _MOVE)),
        "patterns": [matching((pattern,))(text[:200]) for pattern in _PATTERNS],
    }
    if isinstance(page, Page):
        chunks = chunk(page, approximate_spans)
        found["chunks"] = chunks
        found["embedded"] = [embedded_text(page, each, approximate_spans, 254) for each in chunks]
        found["words"] = page_words(page, "german")
    else:
        assert isinstance(page, Problem)
    return {step: to_json(value) for step, value in found.items()}


if __name__ == "__main__":
    results = [read(text) for text in json.loads(Path(sys.argv[3]).read_text())]
    Path(sys.argv[4]).write_text(json.dumps(results))
