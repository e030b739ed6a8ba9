"""JSON documents about wikis and their operation: index status, sync, backups, keys."""

from typing import TYPE_CHECKING, Literal

from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document, build_documents
from wikiholt.api.settings.definitions import WIKI_SETTINGS
from wikiholt.git.remote_url import redact_url

if TYPE_CHECKING:  # a command that lists wikis needs none of these, and they need numpy
    from wikiholt.api.settings.setting import Setting
    from wikiholt.domain.index import SyncReport
    from wikiholt.domain.wiki import Backup, Key, RegistryBackup, Wiki
    from wikiholt.wikis.registry import RemovedWiki
    from wikiholt.wikis.status import WikiStatus


class IndexHealthDocument(TypedDict):
    """Health of an index: `broken` once damage is found, `repairing` until another index has replaced it.

    `checked_at` is the time of the last full check without a finding.
    """

    condition: Literal["ok", "repairing", "broken"]
    reason: str | None
    since: str | None
    checked_at: str | None


class ReindexEstimateDocument(TypedDict):
    """Estimated cost of a reindex; a sync after a settings change embeds `reusable_vectors` fewer texts."""

    pages: int
    chunks: int
    chunks_to_embed: int
    reusable_vectors: int
    seconds: float
    seconds_reusing: float
    disk_bytes: int
    disk_free: int
    exact: bool


# Wikis, their status, and syncs


HIDDEN_VALUE = "(hidden)"
_SECRET_SETTINGS = frozenset(setting.name for setting in WIKI_SETTINGS.values() if setting.secret)


class ErrorDocument(TypedDict):
    """An error and what to do about it."""

    code: str
    message: str
    hint: str


class ProblemDocument(TypedDict):
    """A page that could not be indexed, with the reason."""

    file: str
    reason: str
    detail: str


class PageWarningsDocument(TypedDict):
    """An indexed page with warnings, for example of frontmatter that cannot be read."""

    file: str
    warnings: list[str]


class WikiDocument(TypedDict):
    """A wiki as its operator sees it."""

    slug: str
    source: str
    settings: dict[str, str]
    created_at: str


class SettingDocument(TypedDict):
    """A setting of a wiki: what it does, its default as text, and its choices, if it has any.

    The items of a list are separated by commas.
    """

    name: str
    kind: Literal["text", "number", "list"]
    help: str
    default: str
    choices: list[str]
    secret: bool


class IndexStatusDocument(TypedDict):
    """What is indexed, how fresh it is, and what is wrong."""

    pages: int
    chunks: int
    meaning_ready: float
    problems: list[ProblemDocument]
    pages_with_warnings: int
    warnings: list[PageWarningsDocument]
    history_warning: str | None
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    synced_at: str | None
    generation: int | None
    version: int | None
    model: str | None
    dialect: str | None
    main_language: str | None
    languages: dict[str, int]
    documents: dict[str, int]
    skipped: dict[str, int]
    ignored: dict[str, int]
    disk_bytes: int
    error: ErrorDocument | None
    health: IndexHealthDocument


class ActivityDocument(TypedDict):
    """The current activity for the wiki, with its progress."""

    kind: str
    since: str
    pages_done: int
    pages_total: int
    chunks_embedded: int
    chunks_done: int
    chunks_expected: int
    seconds_left: float | None


class StatusDocument(WikiDocument, IndexStatusDocument):
    """A wiki and its index; `quarantined` lists damaged indexes that were kept for inspection."""

    quarantined: list[str]


class SyncDocument(TypedDict):
    """The result of a sync."""

    wiki: str
    revision: str
    added: int
    changed: int
    moved: int
    deleted: int
    unchanged: int
    chunks_embedded: int
    chunks_reused: int
    problems: list[ProblemDocument]
    pages_with_warnings: int
    warnings: list[PageWarningsDocument]
    history_warning: str | None
    rebuilt: bool
    seconds: float


def build_sync_document(wiki: "Wiki", report: "SyncReport") -> SyncDocument:
    return build_document(
        SyncDocument,
        report,
        wiki=wiki.slug,
        problems=build_documents(ProblemDocument, report.problems),
        warnings=build_documents(PageWarningsDocument, report.warnings),
        history_warning=report.history_warning or None,
        seconds=round(report.seconds, 3),
    )


def build_wiki_document(wiki: "Wiki") -> WikiDocument:
    return build_document(WikiDocument, wiki, source=redact_url(wiki.source), settings=get_public_settings(wiki))


class RemovedWikiDocument(TypedDict):
    """What was removed with a wiki: index files, key ids, host names."""

    wiki: str
    removed: list[str]
    keys: list[str]
    hosts: list[str]


def build_removed_document(removed: "RemovedWiki") -> RemovedWikiDocument:
    keys = [key.id for key in removed.keys]
    return build_document(RemovedWikiDocument, removed, wiki=removed.wiki.slug, removed=removed.files, keys=keys)


def build_setting_document(setting: "Setting") -> SettingDocument:
    default = ", ".join(setting.default) if isinstance(setting.default, tuple) else str(setting.default)
    kind = "text" if setting.kind is str else "list" if setting.kind is tuple else "number"
    return build_document(SettingDocument, setting, default=default, kind=kind)


def get_public_settings(wiki: "Wiki") -> dict[str, str]:
    """A wiki's settings with secret values hidden."""
    return {name: HIDDEN_VALUE if name in _SECRET_SETTINGS else text for name, text in wiki.settings.items()}


def build_status_document(status: "WikiStatus") -> StatusDocument:
    return {
        **build_wiki_document(status.wiki),
        **build_index_status(status, build_document(ErrorDocument, status.error) if status.error else None),
        "quarantined": list(status.quarantined),
    }


def build_index_status(status: "WikiStatus", error: ErrorDocument | None) -> IndexStatusDocument:
    """Build the part that all status documents share. The caller decides how much the error reveals."""
    state = status.state
    return build_document(
        IndexStatusDocument,
        status,
        pages=state.pages if state else 0,
        chunks=state.chunks if state else 0,
        meaning_ready=state.embedded_share if state else 0.0,
        problems=build_documents(ProblemDocument, status.problems),
        warnings=build_documents(PageWarningsDocument, status.warnings),
        history_warning=status.history_warning or None,
        indexed_revision=state.revision if state else None,
        head_revision=status.head,
        synced_at=state.synced_at if state else None,
        generation=state.generation if state else None,
        version=state.version if state else None,
        model=state.recipe.fingerprint if state else None,
        dialect=status.dialect or None,
        main_language=status.main_language or None,
        error=error,
        health=build_document(IndexHealthDocument, status.health, reason=status.health.reason or None),
    )


# Backups. The documents contain no path of the server.


class BackupDocument(TypedDict):
    """A backup of an index. If it cannot be used, `fault` says why and the fields of its content are null."""

    name: str
    taken_at: str
    reason: str
    bytes: int
    generation: int | None
    version: int | None
    revision: str | None
    model: str | None
    pages: int | None
    chunks: int | None
    fault: str | None


class RegistryBackupDocument(TypedDict):
    """A backup of the registry."""

    name: str
    taken_at: str
    reason: str
    bytes: int
    wikis: int
    keys: int
    fault: str | None


def build_backup_document(backup: "Backup") -> BackupDocument:
    names = ("generation", "version", "revision", "pages", "chunks")
    return build_document(
        BackupDocument,
        backup,
        **{name: getattr(backup.state, name, None) for name in names},
        model=backup.state.recipe.fingerprint if backup.state else None,
        fault=backup.fault or None,
    )


def build_registry_backup_document(backup: "RegistryBackup") -> RegistryBackupDocument:
    return build_document(RegistryBackupDocument, backup, fault=backup.fault or None)


# Keys. Only the document of a new key contains its token.


class KeyDocument(TypedDict):
    """A key without its secret; `wiki` is null for an operator key."""

    id: str
    wiki: str | None
    scope: str
    label: str
    created_at: str
    expires_at: str | None
    expired: bool


class NewKeyDocument(KeyDocument):
    """A new key with its token, which is never shown again."""

    token: str


def build_key_document(key: "Key", wiki: "Wiki | None") -> KeyDocument:
    return build_document(KeyDocument, key, wiki=wiki.slug if wiki else None, expired=key.is_expired())


def build_new_key_document(key: "Key", wiki: "Wiki | None", token: str) -> NewKeyDocument:
    return {**build_key_document(key, wiki), "token": token}
