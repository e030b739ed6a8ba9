"""Registers the small wikis and indexes them, as a service would in the background.

Ten thousand wikis share some hundred pages, and each page is embedded only once: the vectors
come from a wiki of all the pages, by the same hashes of the same texts. Everything else is what a sync does.
"""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

from bench.embedders import CachingEmbedder
from bench.many_wikis.repositories import SmallPage, create_repositories, make_slug
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import IndexMissing
from wikiholt.wikis.service import WikiService


def open_caching_service(data: Path) -> WikiService:
    """The service of a data directory, embedding no text twice."""
    service = build_service(load_settings(data, overrides={"search.stale_check": True}))
    embedder = CachingEmbedder(service.components.embedder())
    service.components = dataclasses.replace(service.components, embedder=lambda: embedder, identity=None)
    return service


def index_wikis(pages: Sequence[SmallPage], root: Path, data: Path, count: int) -> None:
    """Create, register and index `count` wikis, except those that exist."""
    service = open_caching_service(data)
    began = time.perf_counter()
    repositories = list(create_repositories(pages, root, count))
    print_progress(f"{count} repositories", began)
    began = time.perf_counter()
    known = {wiki.slug for wiki in service.list_wikis()}
    new = [(make_slug(n), str(path.resolve()), {}) for n, path in enumerate(repositories) if make_slug(n) not in known]
    service.registry.add_many(new)
    print_progress(f"{len(new)} of them registered", began)
    began = time.perf_counter()
    done = 0
    for number in range(count):
        done += _sync_new(service, make_slug(number))
        if done and done % 1000 == 0:
            print_progress(f"{done} indexed", began)
    print_progress(f"{done} of them indexed", began)
    service.close()


def _sync_new(service: WikiService, name: str) -> bool:
    handle = service.get_handle(name)
    try:
        index = service.components.store.open(handle.wiki.id)
    except IndexMissing:
        handle.sync()
        return True
    revision = index.get_state().revision
    index.close()
    if revision is None:
        handle.sync()
    return revision is None


def print_progress(what: str, began: float) -> None:
    print(json.dumps({"done": what, "seconds": round(time.perf_counter() - began, 1)}), flush=True)
