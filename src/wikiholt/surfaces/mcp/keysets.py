"""Public keys of issuers: from a file, read again when it changes, or from an address, asked now and then."""

import json
import logging
import time
import urllib.request
from pathlib import Path
from threading import Lock
from typing import Any

import jwt

_LOG = logging.getLogger(__name__)

_KEPT = 300.0
_SOONEST = 30.0
"""Seconds between two times that an address is asked: made-up keys must not make us ask each time."""
_PATIENCE = 5.0
_LARGEST = 1_000_000


class KeySet:
    """A JSON Web Key Set; safe to use from many threads."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._remote = "://" in place
        self._lock = Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read: tuple[int, int] | None = None
        self._asked = -_KEPT

    def key(self, kid: str | None) -> jwt.PyJWK:
        """The key of this id, or the only one where none is named; raises ValueError."""
        with self._lock:
            self._follow(missing=kid not in self._keys)
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            if kid is None or kid not in self._keys:
                raise ValueError("there is no such key")
            return self._keys[kid]

    def _follow(self, *, missing: bool) -> None:
        try:
            if self._remote:
                age = time.monotonic() - self._asked
                if age > _KEPT or (missing and age > _SOONEST):
                    self._asked = time.monotonic()
                    self._keys = _parsed(_fetched(self._place))
            else:
                found = Path(self._place).expanduser().stat()
                if self._read != (found.st_mtime_ns, found.st_size):
                    self._keys = _parsed(Path(self._place).expanduser().read_bytes())
                    self._read = (found.st_mtime_ns, found.st_size)
        except (OSError, ValueError, jwt.PyJWTError) as error:
            # Those that were good go on being so.
            _LOG.warning("the issuers' keys cannot be read: %s", error)


def _parsed(data: bytes) -> dict[str | None, jwt.PyJWK]:
    document: Any = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("it is no key set")
    return {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys}


class _NoDetours(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the address that was set is the one that is trusted."""


def _fetched(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoDetours)
    with opener.open(url, timeout=_PATIENCE) as answer:
        data: bytes = answer.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("it is too large")
    return data
