"""`wikiholt open` without a page: the running service in the browser, signed in as the owner of the data directory."""

import socket
import webbrowser
from contextlib import suppress
from urllib.parse import urlsplit

from wikiholt.errors import InvalidSetting, NotFound
from wikiholt.interfaces.cli.command import CommandContext
from wikiholt.interfaces.http.owner_link import SIGN_IN_PATH, OwnerLink

_CONNECT_TIMEOUT_S = 2.0


def open_served_pages(context: CommandContext) -> int:
    """Open the running service of the data directory in the browser, signed in as its owner."""
    link = OwnerLink(context.settings.data).read()
    if link is None or not _is_answered(link):
        raise NotFound(
            f"No service that can sign you in is running on {context.settings.data}.",
            hint="Start one with `wikiholt serve`. The setting serve.owner must be true.",
        )
    open_in_browser(link)
    address = link.partition("?")[0].removesuffix(SIGN_IN_PATH)
    return context.print_result({"opened": "browser", "address": address}, [f"Opened {address}"])


def _is_answered(link: str) -> bool:
    """Whether something listens at the address of the link: a service that was killed leaves its file."""
    parts = urlsplit(link)
    with suppress(OSError), socket.create_connection((parts.hostname, parts.port or 0), _CONNECT_TIMEOUT_S):
        return True
    return False


def open_in_browser(address: str) -> None:
    """Raises InvalidSetting if there is no browser."""
    if not webbrowser.open(address):
        raise InvalidSetting(f"No browser could open {address}", hint="Set BROWSER, or open the address yourself.")
