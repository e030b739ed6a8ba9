"""Search snippets as HTML, for pages that the server renders."""

from html import escape

from wikiholt.domain.search import Snippet


def render_snippet(snippet: Snippet) -> str:
    """Render a snippet with its matches and the sentence closest to the query marked."""
    closest = snippet.sentence
    if closest is None:
        return _mark_matches(snippet, 0, len(snippet.text))
    before = _mark_matches(snippet, 0, closest.start)
    inside = _mark_matches(snippet, closest.start, closest.end)
    after = _mark_matches(snippet, closest.end, len(snippet.text))
    return f'{before}<span class="closest">{inside}</span>{after}'


def _mark_matches(snippet: Snippet, start: int, end: int) -> str:
    parts: list[str] = []
    text, position = snippet.text, start
    for span in snippet.matches:
        first, last = max(span.start, position), min(span.end, end)
        if first < last:
            parts += escape(text[position:first]), "<mark>", escape(text[first:last]), "</mark>"
            position = last
    return "".join([*parts, escape(text[position:end])])
