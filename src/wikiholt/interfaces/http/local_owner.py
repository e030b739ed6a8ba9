"""The client at the Unix socket in the data directory: a command of the user to whom the data belongs.

It may read all wikis, as an operator may. Only the server's own protocol says that a connection came through that
socket, and only a command with the same version and settings is served: its search would have the same result.
"""

import json
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from wikiholt import __version__
from wikiholt.domain.wiki import Key, Scope
from wikiholt.errors import Forbidden

if TYPE_CHECKING:
    from starlette.requests import Request

    from wikiholt.api.settings.definitions import Settings

SOCKET_NAME = "search.sock"
SETTINGS_HEADER = "Wikiholt-Settings"
"""The request header with the fingerprint of the command's settings."""
INTERFACE_HEADER = "Wikiholt-Interface"
"""The request header with the interface for which the owner's process searches, if it is not the command line."""
OWNER_KEY = "wikiholt.owner"
"""The key in the state of the ASGI scope, which the server sets for connections of the owner."""
OWNER = Key("owner", None, Scope.READ, "the owner of the data directory", datetime.min.replace(tzinfo=UTC), None)


def is_owner(request: "Request", settings: "Settings") -> bool:
    """Whether a request comes from a command of the owner. Raises Forbidden for one with other settings."""
    if request.scope.get("state", {}).get(OWNER_KEY) is not True:
        return False
    if request.headers.get(SETTINGS_HEADER) != fingerprint_settings(settings):
        raise Forbidden("This command has another version or other settings.", hint="It can search by itself.")
    return True


def fingerprint_settings(settings: "Settings") -> str:
    """Identifies version and settings on which a search depends."""
    values = {item.name: str(getattr(settings, item.name)) for item in fields(settings)}
    irrelevant = ("serve_", "log_", "search_keep_warm")
    relevant = {name: value for name, value in values.items() if not name.startswith(irrelevant)}
    return sha256(json.dumps([__version__, relevant]).encode()).hexdigest()
