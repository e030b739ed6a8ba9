"""Wikis of several sizes, each a checked-out repository and an index of it, made once and kept in bench/data."""

import shutil
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import cast

from bench.corpus import list_pages, open_clone, run_git
from bench.embedders import IndexedEmbedder, RandomEmbedder
from bench.report import DATA
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.protocols import Embedder
from wikiholt.index.rows import compute_row_checksum
from wikiholt.index.sqlite.connections import open_connection
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar

HOME = DATA / "otterwiki"


def make_wiki(bundle: Path, pages: int | None, home: Path = HOME, *, random: bool = False) -> Path:
    """A directory in `home` with repository/ and wikiholt/ for a wiki of `pages` pages; None means all.

    With `random`, a wiki that is not indexed yet gets random vectors.
    """
    place = (home / (str(pages) if pages else "all")).resolve()
    if (place / "ready").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    if pages is None:
        _clone(bundle, place, home)
        index_wiki(place, random=random)
    else:
        # Built as it would be for these pages alone, but nothing is embedded a second time.
        whole = make_wiki(bundle, None, home, random=random)
        shutil.copytree(whole / "repository", place / "repository", symlinks=True)
        _delete_pages(place / "repository", pages)
        index_wiki(place, random=random, known=whole)
    (place / "ready").touch()
    return place


def index_wiki(place: Path, *, random: bool, known: Path | None = None) -> None:
    """Bring the index of a place to its HEAD, registered as the plugin would register it.

    Vectors come from the index of the place `known` where it has them.
    """
    service = open_service(place / "wikiholt")
    with ExitStack() as resources:
        resources.callback(service.close)
        model = service.components.embedder()
        if random:
            model = cast("Embedder", RandomEmbedder(model))
        if known is not None:
            other = open_service(known / "wikiholt")
            resources.callback(other.close)
            index = resources.enter_context(closing(other.components.store.open(other.list_wikis()[0].id)))
            model = cast("Embedder", IndexedEmbedder(model, index))
        service.components = replace(service.components, embedder=lambda: model)
        slug = WikiRegistrar(service).get_or_register(WikiLocation(str(place / "repository"))).slug
        service.get_handle(slug).sync()
        service.get_handle(slug).wait_for_caches(600)


def _clone(bundle: Path, place: Path, home: Path) -> None:
    bare = open_clone(bundle, home / "mdn.git")
    place.mkdir(parents=True)
    run_git(place, "clone", "-q", str(bare.path.resolve()), "repository")
    _copy_index(home / "mdn-data", place)


def _copy_index(data: Path, place: Path) -> None:
    """Give the wiki of a place the index that another data directory has of its largest wiki, if there is one."""
    if not (data / "registry.sqlite").exists():
        return

    service = open_service(place / "wikiholt")
    slug = WikiRegistrar(service).get_or_register(WikiLocation(str(place / "repository"))).slug
    own = service.components.store.get_directory(service.registry.get(slug).id)
    service.close()
    sizes = {each: sum(file.stat().st_size for file in each.iterdir()) for each in (data / "wikis").iterdir()}
    shutil.copytree(max(sizes, key=lambda each: sizes[each]), own, dirs_exist_ok=True)
    for file in own.glob("g??????.sqlite"):
        with closing(open_connection(file)) as db:
            db.execute("UPDATE owner SET wiki_id = ?, checksum = ?", (own.name, compute_row_checksum((own.name,))))


def _delete_pages(repository: Path, pages: int) -> None:
    """Commit the deletion of all but about `pages` pages, evenly chosen."""
    files = list_pages(repository)
    kept = set(files[:: max(1, len(files) // pages)][:pages])
    gone = "\0".join(file for file in files if file not in kept)
    run_git(repository, "rm", "-q", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=gone)
    run_git(repository, "commit", "-q", "-m", f"{pages} pages")
