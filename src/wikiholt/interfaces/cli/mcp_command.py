"""`wikiholt mcp [SLUG]`: serves one wiki to the agent that started this process, until standard input ends."""

import importlib.util
import logging
import re
import time
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import Any

from wikiholt.api.bootstrap import Application, open_application
from wikiholt.api.operations.operation import Operation
from wikiholt.api.operations.parameters import Parameters
from wikiholt.domain.git import Author
from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidSetting, MissingDependency, ModelError, make_extra_hint
from wikiholt.interfaces.cli.background import start_background
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.local_client import LocalService
from wikiholt.interfaces.cli.selection import choose_folder_wikis, make_several_error
from wikiholt.interfaces.http.local_owner import SOCKET_NAME
from wikiholt.wikis.access import Grant
from wikiholt.wikis.session import WikiSession

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5.0
"""How long a running sync has to finish its current batch."""
_START_TIMEOUT_S = 10.0
"""How long the process in the background has to start."""
_POLL_S = 0.05
_OPERATIONS_WITH_MODEL = ("search", "ask")


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "mcp", run_mcp, json=False)
    parser.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki (default: that of the current directory)")
    parser.add_argument("--write", action="store_true", help="allow the agent to write, rename and delete pages")
    parser.add_argument("--past", action="store_true", help="allow the agent to search the wiki as it was")
    parser.add_argument("--author", default="", metavar="AUTHOR", help="author of its commits: Name <address>")


def run_mcp(context: CommandContext) -> int:
    """Serve the wiki on standard input and output, and keep its index at HEAD meanwhile."""
    if importlib.util.find_spec("mcp") is None:
        raise MissingDependency("The MCP SDK is not installed.", hint=make_extra_hint("mcp"))
    from wikiholt.interfaces.mcp.mcp_server import ToolContext, serve_stdio

    arguments, settings = context.arguments, context.settings
    author = _parse_author(arguments.author)
    slug = arguments.slug or _choose_slug(context)
    application = open_application(settings, only_slug=slug)
    scope = Scope.WRITE if arguments.write else Scope.PAST if arguments.past else Scope.READ
    warm = _WarmService(context, slug)
    tool_context = ToolContext(
        scope,
        lambda: _open_session(application, slug, scope, author),
        write_hint="Do without it, or ask the user to add `--write` to the command that starts it.",
        find_elsewhere=warm.find,
    )
    application.scheduler.start()
    # In the background: the agent waits for the handshake, and loading takes seconds.
    Thread(target=_load_model, args=(application, warm), name="load-model", daemon=True).start()
    try:
        serve_stdio(tool_context, settings, slug)
    finally:
        if not application.scheduler.stop(_STOP_TIMEOUT_S):
            _log.warning("a sync was interrupted; pages indexed so far are kept")
        application.service.close()
    return 0


def _choose_slug(context: CommandContext) -> str:
    """The wiki of the current directory, which is registered if it has pages. Raises WikiNotFound."""
    wikis = choose_folder_wikis(context, context.list_wikis())
    if len(wikis) > 1:
        raise make_several_error(wikis, "Write `wikiholt mcp SLUG` with one of these")
    return wikis[0].slug


def _open_session(application: Application, slug: str, scope: Scope, author: Author | None) -> WikiSession:
    wiki = application.service.registry.get(slug)
    return replace(application.open_session(Grant(wiki, scope, None)), author=author)


def _parse_author(text: str) -> Author | None:
    if not text:
        return None
    match = re.fullmatch(r"\s*([^<>\x00-\x1f]*[^<>\s\x00-\x1f])\s*<([^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+)>\s*", text)
    if match is None:
        raise InvalidSetting(
            f"--author {text!r} is not a name with an address.", hint="Write --author 'Name <address@example.org>'."
        )
    return Author(match[1].strip(), match[2])


class _WarmService:
    """The process in the background, which searches for all agents, so that they have one model in memory."""

    def __init__(self, context: CommandContext, slug: str) -> None:
        self._context = context
        self._slug = slug
        self._can_start = bool(context.settings.search_keep_warm and not context.settings.store)

    def is_ready(self) -> bool:
        """Whether it runs; it is started and waited for if necessary. False if it is turned off or did not start."""
        if not self._can_start:
            return False
        settings = self._context.settings
        # Agents with different settings would end each other's.
        start_background(settings, self._context.arguments, replace=False)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._can_start and not (settings.data / SOCKET_NAME).exists():
            self._can_start = time.monotonic() < deadline
            time.sleep(_POLL_S)
        return self._can_start

    def find(self, operation: Operation, parameters: Parameters) -> Any:
        """Its document of an operation that needs a model; None if this process is to answer."""
        if operation.name not in _OPERATIONS_WITH_MODEL or not self.is_ready():
            return None
        values = parameters.model_dump(mode="json", exclude_defaults=True)
        params = [
            (name, str(item).lower() if isinstance(item, bool) else item)
            for name, value in values.items()
            for item in (value if isinstance(value, list) else [value])
        ]
        path = operation.route.removeprefix("GET /")
        return LocalService(self._context.settings, SearchInterface.MCP).get(path, params, self._slug)


def _load_model(application: Application, warm: _WarmService) -> None:
    """Have a model in memory before the first search needs it. A search reports a failure."""
    with suppress(ModelError):
        if not warm.is_ready():
            application.service.load_embedder()
