"""That a search was made for other words than those typed, as a person is told."""

from wikiholt.model import SearchResult
from wikiholt.search.slips import find_replaced_words


def format_did_you_mean(result: SearchResult) -> str:
    """One sentence on what is shown instead, and why."""
    words = (result.query[start:end] for start, end in find_replaced_words(result.query, result.did_you_mean))
    lacking = " or ".join(f"“{word}”" for word in dict.fromkeys(words))
    return f"Showing pages for “{result.did_you_mean}”; no page holds {lacking}."
