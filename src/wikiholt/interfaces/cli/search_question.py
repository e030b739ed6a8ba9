"""A search as it was typed: what the command runs itself, or sends to a running service."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wikiholt.domain.search import SearchMode, SortOrder
from wikiholt.interfaces.schemas.filter_params import FILTER_PARAMS, build_filter
from wikiholt.search.request import SearchRequest

_OPTIONS = ("n", "mode", "rerank", "offset", "sort", "facets")


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """The arguments of `wikiholt search`, in types that JSON has."""

    words: list[str]
    wikis: list[str]
    folder: str
    no_sync: bool
    as_json: bool
    """Whether the answer is printed as JSON, so that a document is enough."""
    options: dict[str, Any]
    filters: dict[str, Any]
    """The values of the filters by option."""

    @classmethod
    def from_arguments(cls, arguments: Namespace, *, as_json: bool) -> "SearchQuestion":
        return cls(
            arguments.words,
            arguments.wiki,
            str(Path.cwd().resolve()),
            arguments.no_sync,
            as_json,
            {name: getattr(arguments, name) for name in _OPTIONS},
            {param.option: getattr(arguments, param.option[2:].replace("-", "_")) for param in FILTER_PARAMS},
        )

    def to_request(self) -> SearchRequest:
        """The search. Raises InvalidQuery."""
        return SearchRequest(
            " ".join(self.words),
            self.options["n"],
            SearchMode(self.options["mode"]),
            build_filter(lambda param: self.filters[param.option]),
            rerank=self.options["rerank"],
            offset=self.options["offset"],
            sort=SortOrder(self.options["sort"]),
            facets=tuple(self.options["facets"]),
        )
