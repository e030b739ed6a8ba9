"""The composition root: settings in, a working service out. The only place where parts are chosen and joined."""

import importlib.util
import logging
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import cast

from wikiholt import embedding
from wikiholt.access import Access
from wikiholt.asked import Scribe
from wikiholt.backups import BackupPlan
from wikiholt.embedding.former import FormerModels, model_of
from wikiholt.embedding.once import Once
from wikiholt.errors import MissingExtra, ModelError
from wikiholt.evaluating import Question
from wikiholt.grounds import Ground, ground_of, own_buckets
from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.keeper import Finding, Keeper, Pace
from wikiholt.limits import Limits
from wikiholt.model import QueryBounds, Recipe, Scale, Wiki
from wikiholt.pages import Pipeline
from wikiholt.ports import Embedder, Source, Store, VectorCache, WikiIndex, WordCache
from wikiholt.registry import Registry
from wikiholt.search import Reranking
from wikiholt.service import Service
from wikiholt.settings import Settings, WikiSettings, load
from wikiholt.sources.address import is_remote
from wikiholt.sources.bringing import Word
from wikiholt.sources.discovery import repositories
from wikiholt.sources.git import GitSource
from wikiholt.sources.identity import GitRepositories
from wikiholt.sources.remote import RemoteSource
from wikiholt.sources.transfer import Costs
from wikiholt.text.analysis import joined_languages
from wikiholt.text.anchors import AnchorStyle
from wikiholt.vectors import cache_for
from wikiholt.vectors.chroma import Chroma, Place
from wikiholt.vectors.stored import StoredVectors
from wikiholt.words.cache import PostingsCache
from wikiholt.words.lexicon import Lexicons
from wikiholt.words.revised import RevisedWords

_LOG = logging.getLogger(__name__)

_MOST_OPEN = 256
_FILES_OF_ONE = 16
"""Files that a wiki under load may have open: a few connections, each with its log, and caches."""


def open_service(
    data: Path | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Service:
    """The service of a data directory, with its settings read from file, environment and arguments."""
    return build(load(data, config, environ or {}, overrides or {}))


def build(settings: Settings, roots: Sequence[Path] = (), ground: Ground | None = None) -> Service:
    """The service these settings describe; nothing is touched until it is used. What lies below `roots` stays there."""
    ground = ground or ground_of(settings, _backups(settings))
    store, registry = ground.store, ground.registry
    chroma = _chroma(settings, registry) if settings.vectors == "chroma" else None
    workshop = Workshop(
        engine=chroma,
        store=store,
        embedder=embedder_of(settings),
        databases=ground.databases,
        scribe=Scribe(ground.query_log, QueryBounds(settings.queries_keep, settings.queries_most)),
        vector_cache=_vector_cache(settings, ground) if chroma is None else _chroma_cache(chroma, ground),
        word_cache=_word_cache(ground),
        lexicon=Lexicons,
        lock_timeout=settings.lock_timeout,
        backups=_backups(settings),
        former=FormerModels(settings.threads or None),
        scale=cache(scale_of),
        reranking=reranking_of(settings),
        identity=cache(lambda: embedding.identify(settings.model, settings.precision)),
    )
    open_wikis = _open_wikis()
    return Service(
        registry,
        workshop,
        lambda wiki: parts_of(wiki, settings, ground, roots),
        open_wikis=open_wikis,
        repositories=GitRepositories(),
    )


def without_answers(service: Service, slug: str, questions: Sequence[Question]) -> WikiHandle:
    """A handle for asking these questions: what they are taken from is left out of the words it finds pages by.

    Whoever asked for it closes it.
    """
    words = service.wiki(slug).words_without(questions)
    return service.reworded(slug, lambda index: RevisedWords(index, words))


def _backups(settings: Settings) -> BackupPlan:
    return BackupPlan(settings.data / Path(settings.backup_place).expanduser(), settings.backup_keep)


def _open_wikis() -> int:
    """How many wikis may be kept open, by the files this process may have open; half are left to others."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if allowed < 0 else max(8, min(_MOST_OPEN, allowed // 2 // _FILES_OF_ONE))


@dataclass(frozen=True, slots=True)
class Farm:
    """All there is behind a server of many wikis."""

    service: Service
    access: Access
    limits: Limits
    keeper: Keeper
    settings: Settings


def open_farm(
    settings: Settings, roots: Sequence[Path] = (), *, service: Service | None = None, only: str | None = None
) -> Farm:
    """The farm these settings describe, over the repositories below `roots`; the keeper is not started yet.

    `only` is the slug of the one wiki its keeper looks after, and then only keeps at its HEAD; raises WikiNotFound.
    """
    ground = ground_of(settings, _backups(settings)) if service is None else None
    service = service or build(settings, roots, ground)
    pace = Pace(
        workers=settings.sync_workers,
        slice=settings.sync_slice,
        discover=settings.discover_interval,
        backups=settings.backup_interval if only is None else 0.0,
        checks=settings.check_interval if only is None else 0.0,
        interval_of=lambda wiki: WikiSettings.parse(wiki.settings).interval or settings.sync_interval,
    )
    only_id = service.registry.get(only).id if only is not None else None
    shifts = ground.shifts() if ground is not None and only is None else None
    find = partial(_found_below, roots)
    keeper = Keeper(service, pace, find, only_id, shifts)
    service.on_broken = keeper.mend
    return Farm(
        service=service,
        access=Access(
            service.registry,
            domain=settings.serve_domain,
            public=settings.serve_public,
            own_hosts=settings.serve_hosts,
            is_replaced=service.is_replaced,
        ),
        limits=Limits(
            settings.limit_key_per_minute,
            settings.limit_address_per_minute,
            shared=ground.buckets if ground else own_buckets,
        ),
        keeper=keeper,
        settings=settings,
    )


def _found_below(roots: Sequence[Path]) -> Iterator[Finding]:
    return (found for root in roots for found in repositories(root))


def embedder_of(settings: Settings) -> Callable[[], Embedder]:
    """A function that loads the model the first time it is asked for, and gives the same one ever after."""
    return Once(lambda: embedding.load(settings.model, precision=settings.precision, threads=settings.threads or None))


def reranking_of(settings: Settings) -> Reranking | None:
    """The reranker that is set, to be loaded when it is first needed, and the time it has."""
    model, threads = settings.rerank_model, settings.threads or None
    if not model:
        return None
    try:
        identity = embedding.identify(model, None, embedding.RERANKER).fingerprint
    except ModelError:
        identity = model  # whoever asks for it hears what is wrong with it
    # Searches do without it: none is to wait for what is broken.
    reader = Once(lambda: embedding.load_reranker(model, threads=threads), again=60.0)
    return Reranking(reader, settings.rerank_budget / 1000, identity)


def scale_of(recipe: Recipe) -> Scale:
    """What the cosines of this recipe's model mean, by its card; those of a model that is gone mean themselves."""
    with suppress(ModelError, OSError):
        found = embedding.identify(*model_of(recipe))
        if found.fingerprint == recipe.fingerprint:
            return found.scale
    return Scale()


def parts_of(wiki: Wiki, settings: Settings, ground: Ground, roots: Sequence[Path] = ()) -> Parts:
    """What the general settings and a wiki's own make of it."""
    own = WikiSettings.parse(wiki.settings)
    pipeline = Pipeline(
        target_tokens=settings.chunk_target_tokens,
        overlap_tokens=settings.chunk_overlap_tokens,
        language=joined_languages(own.language or settings.language, own.languages or settings.languages),
        anchors=cast(AnchorStyle, own.anchors or settings.anchors),
        max_bytes=settings.page_max_bytes,
        hide=own.hide,
    )
    if is_remote(wiki.source):
        source: Source = _elsewhere(wiki, own, settings, ground)
    else:
        path = Path(wiki.source)
        entries = (root / path.relative_to(root).parts[0] for root in roots if root in path.parents)
        confined = Path(own.confined) if own.confined else next(entries, None)
        source = GitSource(path, subdirectory=own.subdirectory, ignore=own.ignore, confined=confined)
    logs = own.log_queries == "true" if own.log_queries else settings.queries_log
    return Parts(source, pipeline, own.url or settings.url, settings.search_stale_check, logs)


def _elsewhere(wiki: Wiki, own: WikiSettings, settings: Settings, ground: Ground) -> RemoteSource:
    costs = Costs(
        schemes=settings.remote_schemes,
        allow_private=settings.remote_allow_private,
        timeout=settings.remote_timeout,
        max_bytes=settings.remote_max_bytes,
    )
    # A wiki that is only being tried has no id, and so no place for a mirror.
    place = ground.store.directory(wiki.id) if wiki.id else None
    word = _word(ground.store, wiki.id) if wiki.id and ground.shared else None
    return RemoteSource(wiki.source, place, costs, subdirectory=own.subdirectory, ignore=own.ignore, word=word)


def _word(store: Store, wiki_id: str) -> Word:
    """What nodes tell each other of a remote lies with the wiki's index."""
    return Word(lambda: store.note(wiki_id, "head"), lambda head: store.keep_note(wiki_id, "head", head, make=True))


def _vector_cache(settings: Settings, ground: Ground) -> Callable[[WikiIndex, str], VectorCache]:
    def make(index: WikiIndex, wiki_id: str) -> VectorCache:
        kind = settings.vectors
        # An HNSW index finds most of the nearest, in tens of milliseconds; a node's own cache finds them all, in a few.
        small = ground.shared and index.state().chunks < settings.postgres_hnsw_from
        if kind == "store" or (kind == "auto" and small):
            return StoredVectors(index)
        made, note = cache_for(kind, index, _place(ground, wiki_id), crossover=settings.faiss_crossover)
        if note:
            _LOG.info(note)
        return made

    return make


def _chroma(settings: Settings, registry: Registry) -> Chroma:
    """Chroma as the settings have it; raises MissingExtra where it is to run here and is not installed."""
    if settings.chroma_path and importlib.util.find_spec("chromadb_rust_bindings") is None:
        raise MissingExtra("ChromaDB is not installed.", hint='pip install "wikiholt[chroma]"')
    place = Place(
        url=settings.chroma_url,
        path=settings.data / Path(settings.chroma_path).expanduser() if settings.chroma_path else None,
        tenant=settings.chroma_tenant,
        database=settings.chroma_database,
        layout=settings.chroma_layout,
        timeout=settings.chroma_timeout,
        token=settings.chroma_token,
    )
    return Chroma(place, settings.data / "chroma-owner", lambda: (wiki.id for wiki in registry.list()))


def _chroma_cache(chroma: Chroma, ground: Ground) -> Callable[[WikiIndex, str], VectorCache]:
    def make(index: WikiIndex, wiki_id: str) -> VectorCache:
        generation, slug = index.generation, ground.registry.by_id(wiki_id).slug
        place = _place(ground, wiki_id)
        return chroma.cache(index, place, wiki_id, slug, lambda: ground.store.published(wiki_id) == generation)

    return make


def _word_cache(ground: Ground) -> Callable[[WikiIndex, str], WordCache | None]:
    def make(index: WikiIndex, wiki_id: str) -> WordCache | None:
        if index.state().pages <= ground.few_pages:
            return None
        return PostingsCache(index, _place(ground, wiki_id))

    return make


def _place(ground: Ground, wiki_id: str) -> Path:
    """Where caches of the wiki may lie; beside a database there may be nothing of it on this machine yet."""
    place = ground.store.directory(wiki_id)
    if ground.shared:
        with suppress(OSError):  # a cache that cannot be written answers all the same
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place
