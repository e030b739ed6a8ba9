"""Queries that show what the search can do, each with the page that should come first."""

from dataclasses import dataclass

from wikiholt.model import Filter, Mode

NO_FILTER = Filter()


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query of one demo wiki, the path of the page it should find, and what it is there to show."""

    wiki: str
    query: str
    finds: str
    shows: str
    mode: Mode = Mode.HYBRID
    where: Filter = NO_FILTER


DEMO_QUERIES = (
    DemoQuery(
        "allotment",
        "something is eating holes in my cabbages",
        "Growing/Pests",
        "found by meaning: the page speaks of larvae and brassicas",
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
        "narrowed by a filter: only pages of the category rules",
        where=Filter(categories=("rules",)),
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
