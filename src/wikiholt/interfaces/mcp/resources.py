"""MCP resources: pages, listed and read by URI, with completion of their paths; and their attachments."""

import re
from base64 import b64encode
from collections.abc import Sequence
from urllib.parse import parse_qs, quote, unquote

from mcp_types import BlobResourceContents, Completion, Resource, ResourceTemplate, TextResourceContents

from wikiholt.domain.search import PageFilter
from wikiholt.errors import InputTooLarge, InvalidPage, InvalidQuery
from wikiholt.interfaces.http.attachment_routes import INERT_MEDIA_TYPES
from wikiholt.interfaces.mcp.result_schemas import DATA_NOTICE
from wikiholt.wikis.session import WikiSession

PAGE_URI_PREFIX = "wiki://page/"
PAGE_URI_TEMPLATE = f"{PAGE_URI_PREFIX}{{+path}}{{?revision}}"
_ATTACHMENT_URI_PREFIX = "wiki://attachment/"
ATTACHMENT_URI_TEMPLATE = f"{_ATTACHMENT_URI_PREFIX}{{+path}}/{{filename}}"
_MARKDOWN_MEDIA_TYPE = "text/markdown"
_LIST_PAGE_SIZE = 100
_MAX_COMPLETIONS = 100
_MAX_COMPLETION_PAGES = 5000
_MAX_PAGE_CHARS = 1_000_000
_MAX_ATTACHMENT_BYTES = 2_000_000
_META = {"wikiholt/notice": DATA_NOTICE}


def list_templates() -> list[ResourceTemplate]:
    return [
        ResourceTemplate(
            name="page",
            title="A page of the wiki",
            uri_template=PAGE_URI_TEMPLATE,
            description=f"A page by its path, as it is or as it was at a revision. {DATA_NOTICE}",
            mime_type=_MARKDOWN_MEDIA_TYPE,
        ),
        ResourceTemplate(
            name="attachment",
            title="A file attached to a page",
            uri_template=ATTACHMENT_URI_TEMPLATE,
            description="A file by the path of its page and its name; list_attachments has the URIs.",
        ),
    ]


def list_resources(wiki: WikiSession, cursor: str | None) -> tuple[list[Resource], str | None]:
    """A batch of the pages by path, and the cursor of the next batch."""
    offset = _parse_cursor(cursor)
    with wiki.use_handle() as handle:
        batch = handle.pages.list(PageFilter(), _LIST_PAGE_SIZE, offset)
    resources = [
        Resource(
            name=wiki.path_style.to_display_path(page.path),
            title=wiki.path_style.to_display_title(page.name, page.path),
            uri=format_uri(wiki.path_style.to_display_path(page.path)),
            mime_type=_MARKDOWN_MEDIA_TYPE,
        )
        for page in batch.pages
    ]
    done = offset + len(resources)
    return resources, f"from-{done}" if resources and done < batch.total else None


def _parse_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    match = re.fullmatch(r"from-([0-9]{1,9})", cursor)
    if match is None:
        raise InvalidQuery("Invalid cursor.", hint="Start without a cursor.")
    return int(match[1])


def format_uri(path: str) -> str:
    return f"{PAGE_URI_PREFIX}{quote(path)}"


def format_attachment_uri(path: str, filename: str) -> str:
    return f"{_ATTACHMENT_URI_PREFIX}{quote(path)}/{quote(filename, safe='')}"


def read_resource(wiki: WikiSession, uri: str) -> TextResourceContents | BlobResourceContents:
    if uri.startswith(_ATTACHMENT_URI_PREFIX):
        return _read_attachment(wiki, uri)
    path, revision = _parse_uri(uri)
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(path), revision)
    if len(page.content) > _MAX_PAGE_CHARS:
        raise InputTooLarge(
            f"The page has {len(page.content):,} characters.", hint="Read it in parts with the tool read_page."
        )
    return TextResourceContents(
        uri=uri, mime_type=_MARKDOWN_MEDIA_TYPE, text=page.content, _meta={**_META, "wikiholt/revision": page.revision}
    )


def _read_attachment(wiki: WikiSession, uri: str) -> TextResourceContents | BlobResourceContents:
    """A text as text, another file in base64 with a type in which no script can run."""
    quoted_path, _, quoted_name = uri.removeprefix(_ATTACHMENT_URI_PREFIX).rpartition("/")
    if not quoted_path or "?" in uri or "#" in uri:
        raise InvalidPage("This is not the URI of an attachment.", hint="list_attachments has the URIs.")
    path = wiki.path_style.to_git_path(unquote(quoted_path))
    found = wiki.handle.pages.read_attachment(path, unquote(quoted_name))
    if len(found.data) > _MAX_ATTACHMENT_BYTES:
        raise InputTooLarge(
            f"The file has {len(found.data):,} bytes; the limit is {_MAX_ATTACHMENT_BYTES:,}.",
            hint="Read it over the HTTP API.",
        )
    meta = {**_META, "wikiholt/revision": found.revision}
    media_type = found.attachment.mime_type
    if media_type in INERT_MEDIA_TYPES and not media_type.startswith("text/"):
        return BlobResourceContents(uri=uri, mime_type=media_type, blob=b64encode(found.data).decode(), _meta=meta)
    try:
        text = found.data.decode()
    except UnicodeDecodeError:
        blob = b64encode(found.data).decode()
        return BlobResourceContents(uri=uri, mime_type="application/octet-stream", blob=blob, _meta=meta)
    return TextResourceContents(uri=uri, mime_type="text/plain", text=text, _meta=meta)


def _parse_uri(uri: str) -> tuple[str, str | None]:
    """The path and revision of a URI. Raises InvalidPage."""
    if not uri.startswith(PAGE_URI_PREFIX) or "#" in uri:
        raise InvalidPage("This is not the URI of a page.", hint=f"URIs have the form {PAGE_URI_TEMPLATE}.")
    quoted_path, _, query = uri.removeprefix(PAGE_URI_PREFIX).partition("?")
    values = parse_qs(query, keep_blank_values=True) if query else {}
    revision = values.pop("revision", [""])[0] or None
    if values or (revision and not re.fullmatch(r"[0-9a-fA-F]{7,64}", revision)):
        raise InvalidPage("This is not the URI of a page.", hint=f"URIs have the form {PAGE_URI_TEMPLATE}.")
    return unquote(quoted_path), revision


def complete_argument(wiki: WikiSession, name: str, value: str, path: str | None) -> Completion:
    """Complete an argument of the URI template: paths that start with the value, then paths that contain it."""
    if name == "revision":
        if not path:
            return Completion(values=[])
        commits = wiki.handle.pages.read_history(wiki.path_style.to_git_path(path), _MAX_COMPLETIONS)
        return _build_completion([commit.revision for commit in commits if commit.revision.startswith(value.lower())])
    if name != "path":
        return Completion(values=[])
    with wiki.use_handle() as handle:
        pages = handle.pages.list(PageFilter(), _MAX_COMPLETION_PAGES).pages
    folded = value.casefold()
    paths = [wiki.path_style.to_display_path(page.path) for page in pages]
    starting = [path for path in paths if path.casefold().startswith(folded)]
    containing = [path for path in paths if folded in path.casefold()]
    return _build_completion(list(dict.fromkeys([*starting, *containing])))


def complete_topic(wiki: WikiSession, value: str) -> Completion:
    """Categories and tags that start with the value."""
    with wiki.use_handle() as handle:
        facets = handle.pages.get_facets(PageFilter())
    topics = dict.fromkeys(facet.value for facet in (*facets.categories, *facets.tags))
    return _build_completion([topic for topic in topics if topic.casefold().startswith(value.casefold())])


def _build_completion(values: Sequence[str]) -> Completion:
    has_more = len(values) > _MAX_COMPLETIONS
    return Completion(values=list(values[:_MAX_COMPLETIONS]), total=len(values), has_more=has_more)
