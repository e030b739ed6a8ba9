"""A keyword search that omits its tenant (the incident of 2026-04-21) is impossible here: no search function takes a
wiki. An inspection of every function of the package proves it here, and mypy in `boundary_snippets.py`."""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wikiholt
from wikiholt.index.chroma.client import CollectionInfo, CollectionRecords

WIKI_PARAMETER = re.compile(r"wiki|slug|tenant|index_id|collection|schema")
SEARCH_PARAMETER = re.compile(r"^(query|request|vector|where|terms|words)$|KeywordQuery|SearchRequest|PageFilter")
MULTI_WIKI_MODULES = (
    "wikiholt.api.",
    "wikiholt.domain.",
    "wikiholt.git.managed_repositories.",  # creates and deletes them
    "wikiholt.interfaces.",
    "wikiholt.sync.",
    "wikiholt.index.",
    "wikiholt.wikis.access.",
    "wikiholt.wikis.keys.",
    "wikiholt.wikis.people.",
    "wikiholt.wikis.rate_limit.",
    "wikiholt.wikis.registry",  # and its files, schema and backups
    "wikiholt.wikis.revoked_list.RevokedEntry.",
    "wikiholt.wikis.service.",
    "wikiholt.wikis.session.SyncScheduler.",  # the scheduler, as a session needs it
)
"""Modules whose functions may take a wiki: they select and open it. None of them searches."""
OPENING_MODULES = tuple(f"wikiholt.index.chroma.{part}." for part in ("engine", "layout"))
"""Modules that open and name the collection of a wiki. Searches use the rows of one collection."""
DISCOVERY_FUNCTION = "wikiholt.git.repository._find_in_entry"
"""Proposes slugs for directories."""
IDENTITY_MODULES = ("wikiholt.git.repository_identity.", "wikiholt.wikis.revoked_list.")
"""Check whether a source is still the one of a wiki, and whether a wiki was removed. They read no page."""
WATCHER_MODULE = "wikiholt.folder.watcher."
"""Reports that something changed in the directory of a wiki. Reads no page."""


def find_wiki_parameters(function: Callable[..., object]) -> list[str]:
    """The parameters that name a wiki, by their own name or by their type."""
    found = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in found if _names_a_wiki(parameter)]


def _names_a_wiki(parameter: inspect.Parameter) -> bool:
    # A bool describes a link or a page. An open collection belongs to one wiki.
    is_harmless = parameter.annotation in (bool, CollectionInfo, CollectionRecords)
    by_name = WIKI_PARAMETER.search(parameter.name) and not is_harmless
    return bool(by_name or re.search(r"\bWiki\b", str(parameter.annotation)))


def iter_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every function and method of the package, private ones too."""
    for module in pkgutil.walk_packages(wikiholt.__path__, "wikiholt."):
        # This module needs PyTorch, which is installed on machines with a GPU only.
        is_available = module.name != "wikiholt.models.torch_encoder" or importlib.util.find_spec("torch")
        if module.name.rpartition(".")[2] != "__main__" and is_available:
            loaded = importlib.import_module(module.name)
            yield from _iter_members(loaded, loaded.__name__)


def _iter_members(holder: object, module: str) -> Iterator[tuple[str, Callable[..., object]]]:
    for member in vars(holder).values():
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        # Check the type first: Flask's proxies have no `__module__` outside of a request.
        if inspect.isfunction(inner) and inner.__module__ == module:
            yield f"{module}.{inner.__qualname__}", inner
        elif inspect.isclass(inner) and inner is not holder and inner.__module__ == module:
            yield from _iter_members(inner, module)


@pytest.mark.slow  # it imports every module
def test_no_function_of_the_package_takes_a_wiki_and_a_query() -> None:
    checked, with_query = 0, 0
    for name, function in iter_functions():
        parameters = inspect.signature(function).parameters.values()
        queries = [
            parameter.name
            for parameter in parameters
            if SEARCH_PARAMETER.search(parameter.name) or SEARCH_PARAMETER.search(str(parameter.annotation))
        ]
        checked += 1
        with_query += bool(queries)
        wikis = [parameter for parameter in find_wiki_parameters(function) if parameter not in queries]
        if not name.startswith("wikiholt.interfaces.") and not name.endswith(".__init__"):
            assert not (queries and wikis), f"{name} takes {wikis} and {queries}"
    assert checked > 500
    assert with_query > 30


@pytest.mark.slow
def test_only_modules_that_open_wikis_take_one_as_a_parameter() -> None:
    found = {name for name, function in iter_functions() if find_wiki_parameters(function)}
    searching = {
        name
        for name in found
        if not name.startswith(
            (DISCOVERY_FUNCTION, WATCHER_MODULE, *IDENTITY_MODULES, *MULTI_WIKI_MODULES, *OPENING_MODULES)
        )
    }
    # Bound to one wiki by their constructors.
    assert {name for name in searching if not name.endswith(".__init__")} == set()


def test_interfaces_use_the_methods_of_the_service_and_not_its_components() -> None:
    interfaces = Path(wikiholt.__file__).parent / "interfaces"
    readers = [
        file.name
        for file in interfaces.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "components"
    ]
    assert readers == []
