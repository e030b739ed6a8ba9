"""That a search was made for other words than those typed, as a person is told."""

from wikiholt.model import Answer
from wikiholt.search.slips import unheld


def showing(answer: Answer) -> str:
    """One sentence on what is shown instead, and why."""
    words = (answer.query[start:end] for start, end in unheld(answer.query, answer.did_you_mean))
    lacking = " or ".join(f"“{word}”" for word in dict.fromkeys(words))
    return f"Showing pages for “{answer.did_you_mean}”; no page holds {lacking}."
