"""Notifies clients of pages that change: `subscriptions/listen` of 2026-07-28, and on standard input and output also
`resources/subscribe` of 2025-11-25.

HEAD is compared every few seconds while somebody listens, so that commits of any process and node are noticed. A
listener that may no longer read the wiki is disconnected.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

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
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from wikiholt.errors import SourceError, WikiholtError
from wikiholt.interfaces.mcp.resources import PAGE_URI_PREFIX, format_uri
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.session import WikiSession

if TYPE_CHECKING:
    from wikiholt.interfaces.mcp.mcp_server import McpContext, ToolContext

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
