"""The composition root: builds the service from the settings. The only place that chooses implementations."""

import importlib.util
import logging
import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from wikiholt import models
from wikiholt.api.backends import Backend, get_repositories_directory, open_backend
from wikiholt.api.models import (
    choose_reranker,
    load_embedder,
    make_embedder_loader,
    make_identity_getter,
    make_scale_getter,
)
from wikiholt.api.settings.definitions import Settings, WikiSettings
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.protocols import KeywordCache, Source
from wikiholt.domain.search import QueryRetention, SearchInterface
from wikiholt.domain.storage_protocols import NodeAssignments, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidSetting, MissingDependency, ModelError, make_extra_hint
from wikiholt.folder.source import DirectorySource
from wikiholt.folder.source_kind import find_wiki_at
from wikiholt.git.managed_repositories import ManagedSource, RepositoryDirectory
from wikiholt.git.mirror import NO_OTHER_NODES, SharedHead
from wikiholt.git.remote import FetchLimits, RemoteSource
from wikiholt.git.remote_url import is_remote
from wikiholt.git.repository import DiscoveryCache, find_repositories
from wikiholt.git.source import GitSource
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.keywords.keyword_cache import FileKeywordCache, build_patched_cache
from wikiholt.index.keywords.lexicon import LexiconProvider
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.models.lazy import Lazy, PreviousModels
from wikiholt.models.remote_references import REMOTE_PREFIX, is_remote_model
from wikiholt.processor import count_available_cores
from wikiholt.search.reranking import RerankConfig
from wikiholt.search.sort_order import parse_boost_rules
from wikiholt.text.analysis import join_languages
from wikiholt.text.dialect import AUTO, DIALECTS, GFM, OTTERWIKI, OTTERWIKI_DIALECTS, Dialect
from wikiholt.text.language_names import DEFAULT_LANGUAGE
from wikiholt.text.markdown import AnchorStyle
from wikiholt.text.page_names import (
    CODE_EXTENSIONS,
    MARKDOWN_EXTENSIONS,
    PAGE_EXTENSIONS,
    PICTURE_EXTENSIONS,
    get_file_extensions,
)
from wikiholt.wikis.access import AccessPolicy, Grant
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, SearchLoad, ViewLimits, WikiConfig
from wikiholt.wikis.people import GroupRules
from wikiholt.wikis.query_log import QueryLogWriter
from wikiholt.wikis.rate_limit import BucketTable, RateLimiter
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.session import WikiSession

if TYPE_CHECKING:  # imported where they are used: a command that searches once needs none of them
    from wikiholt.index.chroma.engine import ChromaEngine
    from wikiholt.search.answer_writer import AnswerWriter
    from wikiholt.sync.scheduler import Scheduler
    from wikiholt.sync.wiki_records import SchedulerCounters
    from wikiholt.wikis.evaluation.questions import Question

_log = logging.getLogger(__name__)

_MAX_OPEN_WIKIS = 256
_FILES_PER_WIKI = 16
"""Open files of a wiki under load: a few connections, each with its log, and caches."""
_MAX_OPEN_FILES = 8192


def open_service(data: Path | None = None, *, overrides: Mapping[str, object] | None = None) -> WikiService:
    """Load the settings and build the service of a data directory, without the environment."""
    return build_service(load_settings(data, overrides=overrides))


def build_service(settings: Settings, roots: Sequence[Path] = (), backend: Backend | None = None) -> WikiService:
    """The service that the settings describe. Does no I/O. Repositories below `roots` must not read outside of it."""
    backend = backend or open_backend(settings, _get_backup_policy(settings))
    store, registry = backend.store, backend.registry
    chroma = _build_chroma(settings, registry) if settings.vectors == "chroma" else None
    embedder = make_embedder_loader(settings)
    components = Components(
        vector_engine=chroma,
        store=store,
        embedder=embedder,
        release_memory=embedder.release_memory,
        databases=backend.databases,
        query_log_writer=QueryLogWriter(
            backend.open_query_log, QueryRetention(settings.queries_keep_days, settings.queries_max_entries)
        ),
        keyword_cache=_make_keyword_cache_opener(backend),
        open_copy=backend.open_copy,
        lexicon=LexiconProvider,
        lock_timeout_s=settings.lock_timeout,
        backup_policy=_get_backup_policy(settings),
        previous_model=PreviousModels(partial(load_embedder, settings)),
        scale=make_scale_getter(settings),
        reranking=build_reranking(settings),
        answer_writer=build_answer_writer(settings),
        identity=make_identity_getter(settings),
        view_limits=ViewLimits(settings.past_views, settings.past_max_bytes),
        search_load=SearchLoad((settings.threads or count_available_cores()) // 2),
    )
    return WikiService(
        registry,
        components,
        lambda wiki: build_wiki_config(wiki, settings, backend, roots),
        max_open=_get_max_open_wikis(),
        managed_repositories=_open_managed_repositories(settings),
    )


def _open_managed_repositories(settings: Settings) -> RepositoryDirectory:
    is_private = bool(settings.store) and not settings.repositories_directory
    return RepositoryDirectory(
        get_repositories_directory(settings),
        reason_against="Other nodes could not read a repository in the data directory." if is_private else "",
    )


def open_evaluation_handle(service: WikiService, slug: str, questions: "Sequence[Question]") -> WikiHandle:
    """A handle whose keyword search excludes the text that the questions were taken from. The caller closes it."""
    from wikiholt.wikis.evaluation.mined_questions import build_terms_without  # noqa: PLC0415 - few commands need it

    with service.get_handle(slug).open_contents() as contents:
        terms = build_terms_without(*contents, questions)
    return service.open_with_keyword_cache(slug, lambda index: build_patched_cache(index, terms))


def _get_backup_policy(settings: Settings) -> BackupPolicy:
    return BackupPolicy(settings.data / Path(settings.backup_directory).expanduser(), settings.backup_keep)


def raise_file_limit() -> None:
    """Raise the soft limit of open files. The number of wikis that stay open depends on it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _get_max_open_wikis() -> int:
    """The number of wikis to keep open: their files may use half of the open-file limit of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_OPEN_WIKIS if limit < 0 else max(8, min(_MAX_OPEN_WIKIS, limit // 2 // _FILES_PER_WIKI))


@dataclass(frozen=True, slots=True)
class Application:
    """The parts of a server of many wikis."""

    service: WikiService
    access: AccessPolicy
    rate_limiter: RateLimiter
    scheduler: "Scheduler"
    settings: Settings
    has_local_search: bool
    """Whether a search only computes, and waits for no database, other process or remote model."""
    worker: "WorkerParts | None" = None

    def open_session(self, grant: Grant) -> WikiSession:
        """Open a wiki with the granted scope, for an interface. Raises RepositoryReplaced."""
        handle = self.service.get_handle_of(grant.wiki)
        self.scheduler.touch(grant.wiki.id)
        chunks = self.settings.search_semantic_chunks_per_page
        timeout_s = self.settings.search_fresh_timeout
        return WikiSession(grant, handle, timeout_s, self.scheduler, semantic_chunks_per_page=chunks)

    def get_counters(self) -> "SchedulerCounters":
        """The counters of the scheduler, in whichever process it runs."""
        return self.worker.get_counters() if self.worker is not None else self.scheduler.get_counters()


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker process shares with the other processes of its service."""

    assignments: NodeAssignments
    buckets: BucketTable
    get_counters: "Callable[[], SchedulerCounters]"


def open_application(
    settings: Settings,
    roots: Sequence[Path] = (),
    *,
    service: WikiService | None = None,
    only_slug: str | None = None,
    worker: WorkerParts | None = None,
    publishes_state: bool = False,
    on_demand: bool = False,
) -> Application:
    """Build the application; the scheduler is not started. Repositories below `roots` are discovered; a root that is
    itself a repository or a directory of pages is one wiki.

    With `only_slug` the scheduler syncs that wiki alone, without backups and checks. Raises WikiNotFound. With
    `on_demand` it does the same for wikis in use. With `worker`, the scheduler is in another process, which needs
    `publishes_state`.
    """
    backend = open_backend(settings, _get_backup_policy(settings)) if service is None else None
    service = service or build_service(settings, roots, backend)
    if worker is not None:
        assignments: NodeAssignments | None = worker.assignments
    else:
        assignments = backend.open_assignments() if backend is not None and only_slug is None else None
    scheduler = _build_scheduler(
        settings, roots, service, only_slug, assignments, publishes_state=publishes_state, on_demand=on_demand
    )
    service.listen_for_damage(scheduler.request_repair)
    if only_slug is None and not on_demand:
        service.registry.follow(settings.postgres_registry_age)
    return Application(
        service=service,
        access=_build_access(settings, service),
        rate_limiter=RateLimiter(
            settings.limit_key_per_minute,
            settings.limit_address_per_minute,
            table=worker.buckets if worker is not None else None,
        ),
        scheduler=scheduler,
        settings=settings,
        has_local_search=not (settings.store or is_remote_model(settings.model))
        and settings.rerank_model in ("", AUTO)
        and settings.vectors != "chroma",
        worker=worker,
    )


def _build_access(settings: Settings, service: WikiService) -> AccessPolicy:
    return AccessPolicy(
        service.registry,
        domain=settings.serve_domain,
        public=settings.serve_public,
        own_hosts=settings.serve_hosts,
        is_replaced=service.is_replaced,
        rules=GroupRules(settings.people_groups),
        requires_sign_in=bool(settings.people_proxy_user_header or settings.people_oidc_issuer),
    )


def _build_scheduler(
    settings: Settings,
    roots: Sequence[Path],
    service: WikiService,
    only_slug: str | None,
    assignments: NodeAssignments | None,
    *,
    publishes_state: bool,
    on_demand: bool,
) -> "Scheduler":
    from wikiholt.folder.watcher import DirectoryWatcher  # noqa: PLC0415 - a command that searches needs none of these
    from wikiholt.sync.scheduler import Scheduler  # noqa: PLC0415
    from wikiholt.sync.wiki_records import SchedulerConfig  # noqa: PLC0415

    is_complete = only_slug is None and not on_demand
    config = SchedulerConfig(
        workers=settings.sync_workers,
        slice_s=settings.sync_slice,
        discovery_interval_s=settings.discover_interval,
        backup_interval_s=settings.backup_interval if is_complete else 0.0,
        check_interval_s=settings.check_interval if is_complete else 0.0,
        get_interval=lambda wiki: WikiSettings.parse(wiki.settings).interval or settings.sync_interval,
    )
    only_id = service.registry.get(only_slug).id if only_slug is not None else None
    wikis = {root: find_wiki_at(root) or DiscoveryCache() for root in roots}
    return Scheduler(
        service,
        config,
        partial(_find_repositories, wikis),
        only_id,
        assignments,
        DirectoryWatcher(),
        publishes_state=publishes_state,
        on_demand=on_demand,
    )


def _find_repositories(
    wikis: Mapping[Path, DiscoveredRepository | DiscoveryCache],
) -> Iterator[DiscoveredRepository]:
    """The wikis at the roots, and the repositories below the other roots."""
    for root, wiki in wikis.items():
        yield from find_repositories(root, wiki) if isinstance(wiki, DiscoveryCache) else (wiki,)


def build_reranking(settings: Settings) -> RerankConfig | None:
    """The configured reranker, loaded on first use, and its time budget; None if none is set. Raises InvalidSetting.

    The automatic one reads English only, and takes too long for services with many searches at once.
    """
    model, threads = choose_reranker(settings), settings.threads or None
    interfaces = frozenset({SearchInterface.CLI, SearchInterface.MCP}) if settings.rerank_model == AUTO else None
    if not model:
        return None
    if is_remote_model(model):
        from wikiholt.models.remote_reranker import RemoteReranker  # noqa: PLC0415 - few settings need it

        server = RemoteReranker(*_get_server(settings, "rerank"))
        return RerankConfig(lambda: server, settings.rerank_budget / 1000, model)
    try:
        identity = models.identify_model(model, None, models.RERANKER).fingerprint
    except ModelError:
        identity = model  # loading it reports the error
    # After a failure, searches go on without it instead of waiting for another attempt.
    reranker = Lazy(lambda: models.load_reranker(model, threads=threads), retry_delay_s=60.0)
    return RerankConfig(reranker, settings.rerank_budget / 1000, identity, interfaces)


def build_answer_writer(settings: Settings) -> "AnswerWriter | None":
    """The configured language model; None if none is set. Raises InvalidSetting."""
    if not settings.ask_model:
        return None
    from wikiholt.models.chat_server import ChatServer  # noqa: PLC0415 - few settings need it
    from wikiholt.search.answer_writer import AnswerWriter  # noqa: PLC0415

    return AnswerWriter(ChatServer(*_get_server(settings, "ask")), settings.ask_timeout)


def _get_server(settings: Settings, prefix: str) -> tuple[str, str, Callable[[], str]]:
    """The address, the model and the key of a model on a server, from the settings with this prefix."""
    model, url, variable = (getattr(settings, f"{prefix}_{name}") for name in ("model", "url", "key_variable"))
    if not url:
        hint = "set it to the address of an OpenAI-compatible server, such as http://127.0.0.1:11434/v1"
        raise InvalidSetting(f"{prefix}.model = {model} needs {prefix}.url", hint=hint)
    return url, model.removeprefix(REMOTE_PREFIX), lambda: os.environ.get(variable, "")


def build_wiki_config(wiki: Wiki, settings: Settings, backend: Backend, roots: Sequence[Path] = ()) -> WikiConfig:
    """The configuration of a wiki: its own settings, with the general settings as defaults."""
    own = WikiSettings.parse(wiki.settings)
    dialect = _get_dialect(own, settings)
    language, others = own.language or settings.language, own.languages or settings.languages
    # In Otterwiki, text that is not Markdown is attached to a page.
    texts = MARKDOWN_EXTENSIONS if dialect in OTTERWIKI_DIALECTS else PAGE_EXTENSIONS
    extensions = (*texts, *get_file_extensions(own.files))
    _require_readers(extensions)
    reads_pictures = not set(PICTURE_EXTENSIONS).isdisjoint(extensions)
    pipeline = TextPipeline(
        target_tokens=settings.chunk_target_tokens,
        overlap_tokens=settings.chunk_overlap_tokens,
        language=join_languages(DEFAULT_LANGUAGE if language == AUTO else language, others),
        # Who lists further languages wants these.
        detects_languages=language == AUTO and not others,
        anchors=cast(AnchorStyle, own.anchors or settings.anchors),
        max_bytes=settings.page_max_bytes,
        hide=own.hide,
        dialect=dialect or GFM,
        detects_dialect=dialect is None,
        reads_pictures=reads_pictures,
    )
    if is_remote(wiki.source):
        source: Source = _build_remote_source(wiki, own, settings, backend, extensions)
    elif own.kind == "directory":
        source = _build_directory_source(wiki, own, settings, backend, extensions)
    else:
        path = Path(wiki.source)
        entries = (root / path.relative_to(root).parts[0] for root in roots if root in path.parents)
        confined = Path(own.confined) if own.confined else next(entries, None)
        source = (ManagedSource if wiki.is_managed else GitSource)(
            path, subdirectory=own.subdirectory, ignore=own.ignore, extensions=extensions, confined_to=confined
        )
    logs = own.log_queries == "true" if own.log_queries else settings.queries_log
    rules = parse_boost_rules(own.boost)
    writes_answers = own.ask_model == "true" if own.ask_model else settings.ask_every_wiki
    url, checks = own.url or settings.url, settings.search_stale_check
    return WikiConfig(source, pipeline, url, checks, logs, rules, own.synonyms, writes_answers)


def _require_readers(extensions: Sequence[str]) -> None:
    """Raise MissingDependency if files with these extensions need a library that is not installed."""
    readers = (("code", CODE_EXTENSIONS, "tree_sitter"), ("pictures", PICTURE_EXTENSIONS, "rapidocr"))
    for kind, needing, library in readers:
        if not set(needing).isdisjoint(extensions) and importlib.util.find_spec(library) is None:
            message = f"The setting files names {kind}, but {library} is not installed."
            raise MissingDependency(message, hint=make_extra_hint("ocr" if kind == "pictures" else kind))


def _get_dialect(own: WikiSettings, settings: Settings) -> Dialect | None:
    """The dialect in a wiki's settings; None if it is to be detected."""
    if own.dialect != AUTO:
        return DIALECTS[own.dialect]
    return OTTERWIKI if (own.anchors or settings.anchors) == OTTERWIKI.name else None


def _build_remote_source(
    wiki: Wiki, wiki_settings: WikiSettings, settings: Settings, backend: Backend, extensions: Sequence[str]
) -> RemoteSource:
    limits = FetchLimits(
        schemes=settings.remote_schemes,
        allow_private=settings.remote_allow_private,
        timeout_s=settings.remote_timeout,
        max_bytes=settings.remote_max_bytes,
    )
    return RemoteSource(
        wiki.source,
        _get_mirror_directory(wiki, backend),
        limits,
        subdirectory=wiki_settings.subdirectory,
        ignore=wiki_settings.ignore,
        extensions=extensions,
        shared_head=_make_shared_head(wiki, backend),
    )


def _build_directory_source(
    wiki: Wiki, wiki_settings: WikiSettings, settings: Settings, backend: Backend, extensions: Sequence[str]
) -> DirectorySource:
    return DirectorySource(
        Path(wiki.source),
        _get_mirror_directory(wiki, backend),
        subdirectory=wiki_settings.subdirectory,
        ignore=wiki_settings.ignore,
        extensions=extensions,
        max_bytes=settings.page_max_bytes,
        shared_head=_make_shared_head(wiki, backend),
    )


def _get_mirror_directory(wiki: Wiki, backend: Backend) -> Path | None:
    """The directory for a wiki's mirror; None for a wiki that is only being validated, which has no id."""
    return backend.store.get_directory(wiki.id) if wiki.id else None


def _make_shared_head(wiki: Wiki, backend: Backend) -> SharedHead:
    """The HEAD of a mirror, shared between nodes if there are several."""
    return SharedHead(backend.store, wiki.id) if wiki.id and backend.is_shared else NO_OTHER_NODES


def _build_chroma(settings: Settings, registry: Registry) -> "ChromaEngine":
    """The Chroma engine of the settings. Raises MissingDependency if it should run here and is not installed."""
    if settings.chroma_path and importlib.util.find_spec("chromadb") is None:
        raise MissingDependency("ChromaDB is not installed.", hint=make_extra_hint("chroma"))
    from wikiholt.index.chroma.engine import ChromaConfig, ChromaEngine  # noqa: PLC0415

    config = ChromaConfig(
        url=settings.chroma_url,
        path=settings.data / Path(settings.chroma_path).expanduser() if settings.chroma_path else None,
        tenant=settings.chroma_tenant,
        database=settings.chroma_database,
        layout=settings.chroma_layout,
        timeout_s=settings.chroma_timeout,
        token=settings.chroma_token,
    )
    return ChromaEngine(config, settings.data / "chroma-owner", lambda: (wiki.id for wiki in registry.list_wikis()))


def _make_keyword_cache_opener(backend: Backend) -> Callable[[WikiIndex, str], KeywordCache | None]:
    def open_cache(index: WikiIndex, wiki_id: str) -> KeywordCache | None:
        if not isinstance(index, SqliteIndex) or index.get_state().pages <= backend.keyword_cache_min_pages:
            return None
        return FileKeywordCache(index, backend.store.get_directory(wiki_id))

    return open_cache
