"""One snippet, for tests of what a snippet shows."""

from wikiholt.domain.search import KeywordQuery, Snippet
from wikiholt.text.snippets import QueryMatcher, SentenceScorer, SnippetBuilder


def build_snippet(
    text: str, query: KeywordQuery, *, length: int = 150, sentence_scorer: SentenceScorer | None = None
) -> Snippet:
    (snippet,) = SnippetBuilder(QueryMatcher(query, "english"), sentence_scorer).build([text], [length])
    return snippet
