"""A search as it was typed: what the command runs itself, or sends to a running service."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.interfaces.schemas.common import parse_since
from wikiholt.search.request import SearchRequest


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """The arguments of `wikiholt search`, in types that JSON has."""

    words: list[str]
    wikis: list[str]
    folder: str
    n: int
    mode: str
    category: list[str]
    tag: list[str]
    path: str
    since: str | None
    rerank: bool | None
    no_sync: bool
    as_json: bool

    @classmethod
    def from_arguments(cls, arguments: Namespace) -> "SearchQuestion":
        names = ("words", "n", "mode", "category", "tag", "path", "since", "rerank", "no_sync")
        values = {name: getattr(arguments, name) for name in names}
        return cls(wikis=arguments.wiki, folder=str(Path.cwd().resolve()), as_json=arguments.json, **values)

    def to_request(self) -> SearchRequest:
        """The search. Raises InvalidQuery."""
        since = parse_since(self.since) if self.since is not None else None
        where = PageFilter(tuple(self.category), tuple(self.tag), self.path, since)
        return SearchRequest(" ".join(self.words), self.n, SearchMode(self.mode), where, rerank=self.rerank)
