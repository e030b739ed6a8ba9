"""MCP resources: pages and their attachments, listed and read by URI, completed and subscribed to.

Clients subscribe with `subscriptions/listen` of 2026-07-28, and on standard input and output also with
`resources/subscribe` of 2025-11-25.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote

import anyio
from anyio import to_thread
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BlobResourceContents,
    Completion,
    EmptyResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from wikiholt.domain.search import PageFilter
from wikiholt.errors import InputTooLarge, InvalidPage, InvalidQuery, SourceError, WikiholtError
from wikiholt.interfaces.http.operation_routes import INERT_MEDIA_TYPES
from wikiholt.interfaces.mcp.tool import DATA_NOTICE
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.session import WikiSession

if TYPE_CHECKING:
    from wikiholt.interfaces.mcp.mcp_server import McpContext, ToolContext

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
            description="A file by the path of its page and its name; list_attachments lists the URIs.",
        ),
    ]


def list_resources(wiki: WikiSession, cursor: str | None) -> tuple[list[Resource], str | None]:
    """A batch of the pages by path, and the cursor of the next batch."""
    match = re.fullmatch(r"from-([0-9]{1,9})", cursor or "from-0")
    if match is None:
        raise InvalidQuery("Invalid cursor.", hint="Start without a cursor.")
    offset = int(match[1])
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
        raise InvalidPage("This is not the URI of an attachment.", hint="The tool list_attachments lists the URIs.")
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


# Subscriptions. HEAD is compared every few seconds while somebody listens, so that commits of any process and node are
# noticed. A listener that may no longer read the wiki is disconnected.


POLL_INTERVAL_S = 2.0
_AUTHORIZATION_INTERVAL_S = 30.0
_MAX_STREAMS = 256
_MAX_URIS = 1000


class ChangeDetector:
    """Compares HEAD of one wiki with HEAD at the last call. Used by one thread at a time."""

    def __init__(self, wiki: WikiSession) -> None:
        self._wiki = wiki
        self._head = wiki.handle.pages.get_head()

    def find_events(self, uris: Iterable[str]) -> list[ServerEvent]:
        """An event for each page that changed, and one if pages appeared or disappeared.

        If it is unknown what changed, all of these URIs have.
        """
        pages = self._wiki.handle.pages
        try:
            head = pages.get_head()
            if head == self._head:
                return []
            changes = pages.find_changes(self._head, head) if self._head and head else None
        except SourceError:  # a remote that is not fetched yet, or a repository that is being replaced
            return []
        self._head = head
        if changes is None:
            return [*(ResourceUpdated(uri) for uri in uris), ResourcesListChanged()]
        to_display_path = self._wiki.path_style.to_display_path
        events: list[ServerEvent] = [
            ResourceUpdated(format_uri(to_display_path(get_page_path(change.file)))) for change in changes
        ]
        is_list_changed = any(change.old is None or change.new is None for change in changes)
        return [*events, ResourcesListChanged()] if is_list_changed else events


class Listeners:
    """Serves `subscriptions/listen`, for all wikis of a process."""

    def __init__(self) -> None:
        self._stream_count = 0

    async def listen(
        self, tool_context: "ToolContext", ctx: "McpContext", params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream until the client closes it or may no longer read the wiki."""
        uris = params.notifications.resource_subscriptions or []
        if len(uris) > _MAX_URIS:
            raise MCPError(INVALID_PARAMS, f"At most {_MAX_URIS} resources can be subscribed to.")
        if self._stream_count >= _MAX_STREAMS:
            raise MCPError(INTERNAL_ERROR, "Too many clients are listening. Next: try again later.")
        detector = await to_thread.run_sync(_open_detector, tool_context.open)
        bus = InMemorySubscriptionBus()
        handler = ListenHandler(bus)
        self._stream_count += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_publish_changes, tool_context, detector, uris, bus, handler)
                result = await handler(ctx, params)
                tasks.cancel_scope.cancel()
            return result
        finally:
            self._stream_count -= 1


def _open_detector(open_wiki: Callable[[], WikiSession]) -> ChangeDetector:
    try:
        return ChangeDetector(open_wiki())
    except WikiholtError as error:
        raise MCPError(INVALID_PARAMS, f"{error.code}: {error.message}") from None


async def _publish_changes(
    tool_context: "ToolContext",
    detector: ChangeDetector,
    uris: Iterable[str],
    bus: InMemorySubscriptionBus,
    handler: ListenHandler,
) -> None:
    """Publish changes until the caller may no longer read the wiki; then end the stream."""
    polls = 0
    while True:
        await anyio.sleep(POLL_INTERVAL_S)
        polls += 1
        try:
            if polls % max(1, round(_AUTHORIZATION_INTERVAL_S / POLL_INTERVAL_S)) == 0:
                await to_thread.run_sync(tool_context.check_access)
            for event in await to_thread.run_sync(detector.find_events, uris):
                await bus.publish(event)
        except WikiholtError:
            handler.close()
            return


class SessionSubscriptions:
    """The subscriptions of the one session on standard input and output."""

    def __init__(self, open_wiki: Callable[[], WikiSession]) -> None:
        self._open_wiki = open_wiki
        self._uris: set[str] = set()
        self._session: ServerSession | None = None
        self._detector: ChangeDetector | None = None

    async def subscribe(self, ctx: "McpContext", params: SubscribeRequestParams) -> EmptyResult:
        uri = str(params.uri)
        if not uri.startswith(PAGE_URI_PREFIX) or len(self._uris) >= _MAX_URIS:
            raise MCPError(INVALID_PARAMS, "Only pages can be subscribed to, 1000 at most.", {"uri": uri})
        if self._detector is None:
            self._detector = await to_thread.run_sync(_open_detector, self._open_wiki)
        self._uris.add(uri)
        self._session = ctx.session
        return EmptyResult()

    async def unsubscribe(self, _: "McpContext", params: UnsubscribeRequestParams) -> EmptyResult:
        self._uris.discard(str(params.uri))
        return EmptyResult()

    async def run(self) -> None:
        """Send notifications until cancelled. Nothing is compared before the first subscription."""
        while True:
            await anyio.sleep(POLL_INTERVAL_S)
            if self._session is not None and self._detector is not None:
                with suppress(WikiholtError):  # the wiki was removed
                    events = await to_thread.run_sync(self._detector.find_events, set(self._uris))
                    await self._send(self._session, events)

    async def _send(self, session: ServerSession, events: Iterable[ServerEvent]) -> None:
        for event in events:
            if isinstance(event, ResourceUpdated) and event.uri in self._uris:
                await session.send_resource_updated(event.uri)
            elif isinstance(event, ResourcesListChanged):
                await session.send_resource_list_changed()
