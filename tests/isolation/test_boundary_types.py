"""The incident of 2026-04-21, a keyword search that forgot its tenant, cannot be written here: nothing that searches
takes a wiki, so there is none to forget. A type checker and a look at every function of the package say so."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mypy import api

import wikiholt
from wikiholt.caches.chroma.chroma_cache import ChromaVectorCache
from wikiholt.caches.chroma.rest_api import CollectionInfo, CollectionRows
from wikiholt.caches.keywords.keyword_cache import FileKeywordCache
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.domain.protocols import KeywordCache, Source, VectorCache
from wikiholt.domain.storage_protocols import QueryLog, VectorSnapshot, WikiIndex
from wikiholt.search.hits import HitBuilder
from wikiholt.search.request import SearchRequest
from wikiholt.search.searcher import Searcher
from wikiholt.storage.sqlite.index import SqliteIndex
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.pages.wiki_pages import WikiPages
from wikiholt.wikis.query_log import QueryBuffer, WikiQueryLog

ROOT = Path(__file__).parents[2]
SNIPPETS = Path(__file__).with_name("boundary_snippets.py")
BOUND_TYPES: tuple[type, ...] = (
    *(WikiIndex, VectorCache, KeywordCache, Source, VectorSnapshot, QueryLog),
    *(
        SqliteIndex,
        FileVectorCache,
        FileKeywordCache,
        Searcher,
        HitBuilder,
        WikiHandle,
        WikiPages,
        WikiQueryLog,
        QueryBuffer,
    ),
    *(ChromaVectorCache, CollectionRows),
)
WIKI_PARAMETER = re.compile(r"wiki|slug|tenant|index_id|collection|schema")
SEARCH_PARAMETER = re.compile(r"^(query|request|vector|where|terms|words)$|KeywordQuery|SearchRequest|PageFilter")
MULTI_WIKI_MODULES = (
    "wikiholt.app.",
    "wikiholt.domain.",
    "wikiholt.interfaces.",
    "wikiholt.scheduler.",
    "wikiholt.storage.",
    "wikiholt.wikis.access.",
    "wikiholt.wikis.keys.",
    "wikiholt.wikis.rate_limit.",
    "wikiholt.wikis.registry",  # and its files, schema and backups
    "wikiholt.wikis.removal.",
    "wikiholt.wikis.service.",
    "wikiholt.wikis.session.SyncScheduler.",  # the scheduler, as a session needs it
)
"""Parts that may be told a wiki: they say which, and open it. None of them searches."""
OPENING_MODULES = tuple(f"wikiholt.caches.chroma.{part}." for part in ("engine", "record_layout", "embedded_chroma"))
"""Opens a wiki's collection, names it, and is the other end of the wire. What searches holds one collection's rows."""
DISCOVERY_MODULE = "wikiholt.git.repository_discovery."
"""Proposes slugs for directories."""
TELLS_APART = "wikiholt.git.repository_identity."
"""Says whether a repository is still the one a wiki was made from. Reads no page."""


def get_marked_lines() -> set[tuple[int, str]]:
    """The lines that must be refused, with the kind of complaint."""
    found = set()
    for number, line in enumerate(SNIPPETS.read_text().splitlines(), 1):
        for code in line.partition("# refused: ")[2].split(", "):
            found |= {(number, code)} if code else set()
    return found


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[int, str]]:
    cache = tmp_path_factory.mktemp("mypy")
    options = ["--strict", "--no-error-summary", "--no-incremental", "--cache-dir", str(cache)]
    options += ["--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "silent"]
    told, failure, _ = api.run([*options, str(SNIPPETS)])
    assert not failure
    lines = re.findall(rf"{SNIPPETS.name}:(\d+): error: .*\[([a-z-]+)\]", told)
    return {(int(number), code) for number, code in lines}


@pytest.mark.slow
def test_the_type_checker_refuses_every_way_to_pass_or_forget_a_wiki(complaints: set[tuple[int, str]]) -> None:
    assert len(get_marked_lines()) > 20
    assert complaints == get_marked_lines()


@pytest.mark.parametrize("kind", BOUND_TYPES, ids=lambda kind: kind.__name__)
def test_what_searches_is_bound_to_a_wiki_and_takes_none_beside_a_query(kind: type) -> None:
    methods: list[tuple[str, Callable[..., object]]] = [
        (name, method) for name, method in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
    ]
    assert methods
    for name, method in methods:
        assert find_wiki_parameters(method) == [], f"{kind.__name__}.{name}"
    assert not WIKI_PARAMETER.search(" ".join(inspect.signature(SearchRequest).parameters))


def find_wiki_parameters(function: Callable[..., object]) -> list[str]:
    """The parameters that name a wiki, by their own name or by their type."""
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if _names_a_wiki(each)]


def _names_a_wiki(parameter: inspect.Parameter) -> bool:
    # A bool says something about a link or a page. A collection that is open already is one wiki's own.
    is_harmless = parameter.annotation in (bool, CollectionInfo, CollectionRows)
    by_name = WIKI_PARAMETER.search(parameter.name) and not is_harmless
    return bool(by_name or re.search(r"\bWiki\b", str(parameter.annotation)))


def iter_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every function and method of the package, private ones too."""
    for module in pkgutil.walk_packages(wikiholt.__path__, "wikiholt."):
        if module.name.rpartition(".")[2] != "__main__":
            loaded = importlib.import_module(module.name)
            yield from _iter_members(loaded, loaded.__name__)


def _iter_members(holder: object, module: str) -> Iterator[tuple[str, Callable[..., object]]]:
    for member in vars(holder).values():
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        # Kind first: Flask's proxies have no module to ask for outside of a request.
        if inspect.isfunction(inner) and inner.__module__ == module:
            yield f"{module}.{inner.__qualname__}", inner
        elif inspect.isclass(inner) and inner is not holder and inner.__module__ == module:
            yield from _iter_members(inner, module)


def test_no_function_of_the_whole_package_takes_a_wiki_beside_a_query() -> None:
    looked, asking = 0, 0
    for name, function in iter_functions():
        parameters = inspect.signature(function).parameters.values()
        asks = [
            each.name
            for each in parameters
            if SEARCH_PARAMETER.search(each.name) or SEARCH_PARAMETER.search(str(each.annotation))
        ]
        looked += 1
        asking += bool(asks)
        wikis = [each for each in find_wiki_parameters(function) if each not in asks]
        if not name.startswith("wikiholt.interfaces.") and not name.endswith(".__init__"):
            assert not (asks and wikis), f"{name} takes {wikis} beside {asks}"
    assert looked > 500
    assert asking > 30


def test_only_the_parts_that_open_wikis_are_ever_told_one() -> None:
    told = {name for name, function in iter_functions() if find_wiki_parameters(function)}
    searching = {
        name
        for name in told
        if not name.startswith((DISCOVERY_MODULE, TELLS_APART, *MULTI_WIKI_MODULES, *OPENING_MODULES))
    }
    # Made for one wiki, once: bound by their constructors.
    assert {name for name in searching if not name.endswith(".__init__")} == set()
