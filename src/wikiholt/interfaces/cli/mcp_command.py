"""`wikiholt mcp SLUG`: one wiki for the agent that started this process, until it closes standard input."""

import importlib.util
import logging
import re
from argparse import Namespace
from contextlib import suppress
from threading import Thread

from wikiholt.app.bootstrap import Application, open_application
from wikiholt.app.settings.settings_loader import Settings
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidSetting, MissingDependency, ModelError
from wikiholt.wikis.access import Grant
from wikiholt.wikis.session import WikiSession

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5.0
"""Seconds that a sync under way has to finish the batch in hand."""


def run_mcp(arguments: Namespace, settings: Settings) -> int:
    """Serve the wiki on standard input and output, and keep its index at HEAD meanwhile."""
    require_mcp()
    from wikiholt.interfaces.mcp.mcp_server import (  # noqa: PLC0415 - it is an extra
        ServerOptions,
        ToolContext,
        make_server,
        serve_stdio,
    )

    author = _parse_author(arguments.author)
    farm = open_application(settings, only_slug=arguments.slug)
    scope = Scope.WRITE if arguments.write else Scope.READ
    entry = ToolContext(scope, lambda: _open_session(farm, arguments.slug, scope, author))
    farm.scheduler.start()
    # Not before the handshake: an agent waits for that, and a model takes its time.
    Thread(target=_load_model, args=(farm,), name="load-model", daemon=True).start()
    try:
        serve_stdio(make_server(lambda _: entry, ServerOptions(settings.mcp_max_tokens, settings.mcp_aliases)))
    finally:
        if not farm.scheduler.stop(_STOP_TIMEOUT_S):
            _log.warning("a sync was left in the middle; what it committed is kept")
        farm.service.close()
    return 0


def require_mcp() -> None:
    """Raise MissingExtra where the protocol's SDK is not installed."""
    if importlib.util.find_spec("mcp") is None:
        raise MissingDependency(
            "The Model Context Protocol's SDK is not installed.", hint='pip install "wikiholt[mcp]"'
        )


def _open_session(application: Application, slug: str, scope: Scope, author: Author | None) -> WikiSession:
    handle = application.service.get_handle(slug)
    application.scheduler.touch(handle.wiki.id)
    grant = Grant(handle.wiki, scope, None)
    return WikiSession(grant, handle, application.settings.search_fresh_timeout, application.scheduler, author=author)


def _parse_author(text: str) -> Author | None:
    if not text:
        return None
    found = re.fullmatch(r"\s*([^<>\x00-\x1f]*[^<>\s\x00-\x1f])\s*<([^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+)>\s*", text)
    if found is None:
        raise InvalidSetting(f"--author {text!r} names nobody.", hint="Write --author 'Name <address@example.org>'.")
    return Author(found[1].strip(), found[2])


def _load_model(application: Application) -> None:
    """Load the model before the first search needs it; a search says what is wrong with it."""
    with suppress(ModelError):
        application.service.components.embedder()
