"""The operations that return a page, or a draft of one, as sanitized HTML."""

import re
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document, build_documents
from wikiholt.api.operations.operation import OperationTable
from wikiholt.api.operations.page_writes import Text
from wikiholt.api.operations.pages import PageParameters, PathInUrl
from wikiholt.api.operations.parameters import BodyParameters
from wikiholt.api.settings.definitions import WikiSettings
from wikiholt.domain.page import PageContent, PageProblem
from wikiholt.domain.search import Hit
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidPage, PageNotFound, WikiholtError
from wikiholt.interfaces.web.renderer import highlight_words, render_changes, render_markdown
from wikiholt.interfaces.web.sanitizer import LinkResolver
from wikiholt.search.request import MAX_QUERY_CHARS, SearchRequest
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.links import PageNameIndex, get_folder, resolve_link_paths
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.session import WikiSession

_MAX_SIMILAR = 5
_SIMILAR_TEXT_CHARS = 300
_MIN_SIMILAR_SCORE = 0.5
"""The hint stops the first attempt to save, so the page must be more likely than not."""


class HeadingDocument(TypedDict):
    """A heading; `anchor` is its id in the HTML and in search hits."""

    level: int
    text: str
    anchor: str


class PageRefDocument(TypedDict):
    """A page by path and name."""

    path: str
    name: str


class PreviewDocument(TypedDict):
    """A page to display. `html` is sanitized: no script or style; URLs only in links and images. `cut`: truncated."""

    name: str
    path: str
    file: str
    url: str
    edit_url: str
    html: str
    cut: bool
    headings: list[HeadingDocument]
    category: str | None
    tags: list[str]
    last_updated: str | None
    revision: str
    linked_from: list[PageRefDocument]
    notes: list[str]


class PreviewParameters(PageParameters):
    """Parameters of a preview."""

    q: str = Field("", max_length=MAX_QUERY_CHARS, description="A query, whose words are marked in the HTML.")


class Draft(BodyParameters):
    """The text of a page that is not saved; `revision` is that of the text which was opened (empty: none)."""

    path: PathInUrl
    content: Text
    revision: Annotated[str, Field(max_length=64)] | None = None


class DraftDocument(PreviewDocument):
    """A draft to display. `changes` is HTML: the difference from the saved page, at the revision of the request if it
    has one.

    `revision` is that of the page now, empty if there is no page yet; then `similar` lists pages with a similar title
    or text.
    """

    changes: str
    similar: list[PageRefDocument]


PREVIEW_OPERATIONS = OperationTable("pages", errors=(404,))


@PREVIEW_OPERATIONS.add("GET /preview/{path}", "preview")
def preview_page(wiki: WikiSession, parameters: PreviewParameters) -> PreviewDocument:
    """A page as sanitized HTML, with its headings and the pages that link to it."""
    return build_preview_document(wiki, wiki.handle.pages.read(parameters.path), parameters.q)


@PREVIEW_OPERATIONS.add("POST /preview/{path}", scope=Scope.WRITE, errors=(404, 409, 413))
def preview_draft(wiki: WikiSession, parameters: Draft) -> DraftDocument:
    """Render a text as the page would look with it, and compare it with the saved page. Nothing is written.

    With `revision`, it is compared with the page at that revision, because the page may have been changed since then.
    """
    pages = wiki.handle.pages
    draft = pages.read_draft(parameters.path, parameters.content)
    try:
        saved = "" if parameters.revision == "" else pages.read(parameters.path, parameters.revision).content
    except (PageNotFound, InvalidPage):
        if parameters.revision:
            raise
        saved = ""
    similar = [] if draft.revision else _find_similar_pages(wiki.handle, draft)
    changes = render_changes(saved, parameters.content)
    return {**build_preview_document(wiki, draft), "changes": changes, "similar": similar}


def _find_similar_pages(handle: WikiHandle, draft: PageContent) -> list[PageRefDocument]:
    """Find pages like a new one by its title and by the beginning of its text. The query log has no such searches."""
    title = draft.path.rpartition("/")[2]
    text = split_frontmatter(draft.content).body
    found: dict[str, Hit] = {}
    # Without punctuation, no word is an operator of the query language.
    for query in (title, text[:_SIMILAR_TEXT_CHARS]):
        words = " ".join(re.findall(r"\w+", query))
        with suppress(WikiholtError):
            for hit in handle.search(SearchRequest(words, _MAX_SIMILAR)).hits if words else ():
                if hit.score >= _MIN_SIMILAR_SCORE or hit.name.casefold() == title.casefold():
                    found[hit.path] = max(found.get(hit.path, hit), hit, key=lambda known: known.score)
    best = sorted(found.values(), key=lambda hit: -hit.score)[:_MAX_SIMILAR]
    return build_documents(PageRefDocument, best)


def build_preview_document(wiki: WikiSession, content: PageContent, query: str = "") -> PreviewDocument:
    """Build the document, with the words of `query` marked. Raises InvalidPage if the page cannot be parsed."""
    pipeline = wiki.handle.pages.get_pipeline()
    edit_url = WikiSettings.parse(wiki.wiki.settings).edit_url
    page = pipeline.parse(content.file, content.blob, content.content.encode("utf-8", "replace"), None)
    if isinstance(page, PageProblem):
        raise InvalidPage(f"the page {content.path} cannot be displayed: {page.detail}", hint="read it with git")
    linking_pages = {link.path: link.name for link in content.linked_from if link.path != content.path}
    rendered = render_markdown(page, make_link_resolver(content, pipeline.dialect), pipeline.dialect)
    return build_document(
        PreviewDocument,
        content,
        url=wiki.handle.build_link(content.path),
        edit_url=edit_url.replace("{path}", quote(content.path)).replace("{file}", quote(content.file)),
        html=highlight_words(rendered.html, query, pipeline.language) if query.strip() else rendered.html,
        cut=rendered.cut,
        headings=build_documents(HeadingDocument, page.headings),
        category=content.metadata.category,
        tags=content.metadata.tags,
        last_updated=content.metadata.last_updated,
        linked_from=[{"path": path, "name": name} for path, name in linking_pages.items()],
    )


def make_link_resolver(content: PageContent, dialect: Dialect = GFM) -> LinkResolver:
    """A function that resolves links on this page, from the links in the index."""
    aliases = {link.path: link.aliases for link in content.links_to}
    names = PageNameIndex([*aliases, content.path], resolution=dialect.resolution, aliases=aliases)
    missing = frozenset(content.missing)  # such as an alias that another page has too

    def resolve(target: str, wiki: bool) -> str | None:
        paths = resolve_link_paths((target,), wiki, content.file, dialect.resolution)
        if paths and paths[0] in missing:
            return None
        # Without an index the existing pages are unknown: accept a link by path as it is.
        page = names.find_page(paths, wiki, get_folder(content.path))
        return page or (paths[0] if content.notes and paths and not wiki else None)

    return resolve
