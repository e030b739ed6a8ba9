"""Queries that show what the search can do, each with the page that should come first."""

from dataclasses import dataclass

from wikiholt.model import SearchMode


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query of one demo wiki, what it is there to show, and the path of the page it should find."""

    slug: str
    text: str
    expected_path: str
    description: str
    mode: SearchMode = SearchMode.HYBRID
    tags: tuple[str, ...] = ()
    path: str = ""


DEMO_QUERIES = (
    DemoQuery(
        "allotment",
        "how do I keep bugs off my vegetables without chemicals",
        "Growing/Pests",
        "found by meaning: the page speaks of pests, nets and larvae, not of bugs or chemicals",
    ),
    DemoQuery(
        "runbook",
        "a customer was charged two times",
        "Incidents/Duplicate payments",
        "found by meaning: the page speaks of a card that was debited twice",
    ),
    DemoQuery("runbook", "TRN-5031", "Services/Ledger", "found by word: an error code means nothing to a model"),
    DemoQuery(
        "allotment",
        "what am I allowed to burn",
        "Rules/Bonfires",
        "narrowed by a filter: only the pages below Rules",
        path="Rules",
    ),
    DemoQuery("allotment", "Komposthaufen umsetzen", "Growing/Kompost anlegen", "a German page among English ones"),
    DemoQuery("runbook", "当番の交代", "Practices/当番の引き継ぎ", "Japanese, which puts no spaces between words"),
    DemoQuery("allotment", "I lost my key", "Site/Keys and gate", "each wiki answers for itself: keys of a gate here"),
    DemoQuery(
        "runbook",
        "somebody published a key",
        "Practices/Keys and secrets",
        "each wiki answers for itself: keys of a service there",
    ),
)
