"""Wikis: clients list those that they may see, the operator manages all."""

import re
from dataclasses import dataclass
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.bootstrap import Application
from wikiholt.api.documents.admin_documents import (
    RemovedWikiDocument,
    SettingDocument,
    WikiDocument,
    build_removed_document,
    build_setting_document,
    build_wiki_document,
)
from wikiholt.api.operations.operation import OperationTable
from wikiholt.api.operations.parameters import NO_NUL_PATTERN, BodyParameters, Count, Flag, Parameters
from wikiholt.api.settings.definitions import WIKI_SETTINGS, WikiSettings
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import Conflict, InvalidSource, SourceError

SlugInUrl = Annotated[str, Field(max_length=200, description="The slug of the wiki.")]
_SettingText = Annotated[str, Field(max_length=10_000, pattern=NO_NUL_PATTERN)]
_SettingTexts = Annotated[dict[str, _SettingText], Field(max_length=50)]


@dataclass(frozen=True, slots=True)
class VisibleWikis:
    """The wikis that a client may see, and whether it is the operator, who also sees their sources and settings."""

    wikis: list[Wiki]
    to_operator: bool


class WikiListParameters(Parameters):
    """Paging of the list of wikis, which is sorted by slug."""

    limit: Count = Field(1000, ge=1, le=10_000, description="Maximum number of entries.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class WikiParameters(Parameters):
    """A wiki."""

    slug: SlugInUrl


class RemoveParameters(WikiParameters):
    """Confirms the loss of pages."""

    delete_pages: Flag = Field(False, description="Also delete the pages of a wiki that has no other source.")


class NewWiki(BodyParameters):
    """A wiki to register: the path or URL of its repository, and its settings.

    Without a source, Wikiholt creates and keeps an empty repository.
    """

    slug: str = Field(max_length=200)
    source: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")] | None = None
    settings: _SettingTexts = Field(default_factory=dict)


class WikiChanges(BodyParameters):
    """Settings to change; an empty text removes a setting, others stay unchanged."""

    slug: SlugInUrl
    settings: _SettingTexts


class VisibleWikiDocument(TypedDict):
    """A wiki; only the operator sees the source and the settings."""

    slug: str
    created_at: NotRequired[str]
    source: NotRequired[str]
    settings: NotRequired[dict[str, str]]
    description: NotRequired[str]


class WikisDocument(TypedDict):
    """The wikis that the client may see; `total` is their number on all pages."""

    wikis: list[VisibleWikiDocument]
    total: int


class SettingsDocument(TypedDict):
    """The settings that a wiki can have."""

    settings: list[SettingDocument]


WIKI_OPERATIONS = OperationTable("wikis")


@WIKI_OPERATIONS.add("GET /settings")
def list_settings(_application: Application, _: Parameters) -> SettingsDocument:
    """List the settings that a wiki can have, with their defaults; requires an operator key."""
    return {"settings": [build_setting_document(setting) for setting in WIKI_SETTINGS.values()]}


@WIKI_OPERATIONS.add("GET /wikis")
def list_wikis(visible: VisibleWikis, parameters: WikiListParameters) -> WikisDocument:
    """List the wikis that the client may see."""
    listed = visible.wikis[parameters.offset : parameters.offset + parameters.limit]
    documents = [_build_visible_document(wiki, visible.to_operator) for wiki in listed]
    return {"wikis": documents, "total": len(visible.wikis)}


def _build_visible_document(wiki: Wiki, to_operator: bool) -> VisibleWikiDocument:
    document: VisibleWikiDocument = {"slug": wiki.slug}
    if description := wiki.settings.get("description"):
        document["description"] = description
    return {**document, **build_wiki_document(wiki)} if to_operator else document


@WIKI_OPERATIONS.add("POST /wikis", errors=(409, 413), status=201, location="/wikis/{slug}")
def add_wiki(application: Application, parameters: NewWiki) -> WikiDocument:
    """Register a wiki after checking its repository, or create one without a source; requires an operator key."""
    WikiSettings.parse(parameters.settings)
    try:
        if parameters.source is None:
            wiki = application.service.create(parameters.slug, parameters.settings)
        else:
            wiki = application.service.add(parameters.slug, _check_source(parameters.source), parameters.settings)
    except SourceError as error:
        # The operator may see the full reason, which can contain paths.
        raise InvalidSource(error.message, hint=error.hint) from error
    application.scheduler.touch(wiki.id)
    return build_wiki_document(wiki)


def _check_source(source: str) -> str:
    """Refuse a relative path, which would depend on the working directory of the service."""
    if source.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s]+@[^/\s]+:", source):
        return source
    raise InvalidSource("The source is neither an absolute path nor a URL.", hint="Write a path that starts with /.")


@WIKI_OPERATIONS.add("GET /wikis/{slug}", errors=(404,))
def read_wiki(application: Application, parameters: WikiParameters) -> WikiDocument:
    """Show the source and settings of a wiki without secrets; requires an operator key."""
    return build_wiki_document(application.service.registry.get(parameters.slug))


@WIKI_OPERATIONS.add("PATCH /wikis/{slug}", "change_wiki", errors=(404, 409, 413))
def update_wiki(application: Application, parameters: WikiChanges) -> WikiDocument:
    """Change settings of a wiki; requires an operator key."""
    WikiSettings.parse(parameters.settings)
    wiki = application.service.configure(parameters.slug, parameters.settings)
    application.scheduler.notify_changed(wiki.id)
    return build_wiki_document(wiki)


@WIKI_OPERATIONS.add("DELETE /wikis/{slug}", errors=(404, 409))
def remove_wiki(application: Application, parameters: RemoveParameters) -> RemovedWikiDocument:
    """Remove the index, keys and registration of a wiki; requires an operator key.

    Its repository stays, unless it was created without a source: then `delete_pages` must be set.
    """
    service = application.service
    wiki = service.registry.get(parameters.slug)
    if wiki.is_managed and not parameters.delete_pages:
        raise Conflict("This would delete the only copy of the pages.", hint="Send delete_pages=true to delete them.")
    return build_removed_document(service.remove(parameters.slug, wiki.id))
