"""Marks the words of a query in rendered HTML."""

import re
from dataclasses import replace
from html import escape, unescape

from wikiholt.text.keyword_query import parse_query
from wikiholt.text.snippets import QueryMatcher

_MAX_MARKS = 500
_TEXT_PATTERN = re.compile(r"(<[^>]*+>)|([^<]++)")


def highlight_words(html: str, query: str, language: str) -> str:
    """Return sanitized HTML with the words of the query in `<mark>`. Function words of the language are not marked."""
    # The query is complete: its last word is no prefix of longer words.
    words = replace(parse_query(query, language), prefix="")
    if not words:
        return html
    matcher = QueryMatcher(words, language)
    parts: list[str] = []
    count = 0
    for tag, text in _TEXT_PATTERN.findall(html):
        if tag or count >= _MAX_MARKS or not text.strip():
            parts.append(tag or text)
            continue
        plain = unescape(text)
        position = 0
        for start, end, _ in matcher.find(plain):
            if start >= position:
                parts += (
                    escape(plain[position:start], quote=False),
                    f"<mark>{escape(plain[start:end], quote=False)}</mark>",
                )
                position, count = end, count + 1
        parts.append(escape(plain[position:], quote=False))
    return "".join(parts)
