"""Public keys of issuers: from a file, read again when it changes, or from an address, asked now and then."""

import json
import logging
import time
import urllib.request
from pathlib import Path
from threading import Lock
from typing import Any

import jwt

_log = logging.getLogger(__name__)

_CACHE_TTL_S = 300.0
_MIN_REFETCH_INTERVAL_S = 30.0
"""Seconds between two times that an address is asked: made-up keys must not make us ask each time."""
_FETCH_TIMEOUT_S = 5.0
_MAX_KEY_SET_BYTES = 1_000_000


class KeySet:
    """A JSON Web Key Set; safe to use from many threads."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._is_remote = "://" in location
        self._lock = Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._file_stamp: tuple[int, int] | None = None
        self._fetched_at = -_CACHE_TTL_S

    def get_key(self, kid: str | None) -> jwt.PyJWK:
        """The key of this id, or the only one where none is named; raises ValueError."""
        with self._lock:
            self._refresh(missing=kid not in self._keys)
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            if kid is None or kid not in self._keys:
                raise ValueError("there is no such key")
            return self._keys[kid]

    def _refresh(self, *, missing: bool) -> None:
        try:
            if self._is_remote:
                age = time.monotonic() - self._fetched_at
                if age > _CACHE_TTL_S or (missing and age > _MIN_REFETCH_INTERVAL_S):
                    self._fetched_at = time.monotonic()
                    self._keys = _parse_keys(_fetch(self._location))
            else:
                found = Path(self._location).expanduser().stat()
                if self._file_stamp != (found.st_mtime_ns, found.st_size):
                    self._keys = _parse_keys(Path(self._location).expanduser().read_bytes())
                    self._file_stamp = (found.st_mtime_ns, found.st_size)
        except (OSError, ValueError, jwt.PyJWTError) as error:
            # Those that were good go on being so.
            _log.warning("the issuers' keys cannot be read: %s", error)


def _parse_keys(data: bytes) -> dict[str | None, jwt.PyJWK]:
    document: Any = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("it is no key set")
    return {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the address that was set is the one that is trusted."""


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=_FETCH_TIMEOUT_S) as answer:
        data: bytes = answer.read(_MAX_KEY_SET_BYTES + 1)
    if len(data) > _MAX_KEY_SET_BYTES:
        raise ValueError("it is too large")
    return data
