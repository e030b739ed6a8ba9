"""OAuth 2.1 access tokens of other issuers.

A token gives access to the one wiki in its audience, with its scope, if a configured issuer signed it.
"""

import json
import logging
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

import jwt

from wikiholt.domain.wiki import Scope, make_author
from wikiholt.errors import Forbidden, Unauthorized
from wikiholt.interfaces.http.request_context import TokenIdentity

_log = logging.getLogger(__name__)

_CACHE_TTL_S = 300.0
_MIN_REFETCH_INTERVAL_S = 30.0
"""Minimum time between two fetches, so that unknown key ids do not cause a fetch each."""
_FETCH_TIMEOUT_S = 5.0
_MAX_KEY_SET_BYTES = 1_000_000


class KeySet:
    """A JSON Web Key Set in a file, read when it changes, or at a URL, fetched periodically.

    Not PyJWKClient: that follows redirects, has no size limit, and fetches for each unknown key id.
    Safe to use from many threads.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._is_remote = "://" in location
        self._lock = Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._file_stamp: tuple[int, int] | None = None
        self._fetched_at = -_CACHE_TTL_S
        self._is_loaded = False
        """Whether the first attempt to load the keys has ended."""

    def get_key(self, kid: str | None) -> jwt.PyJWK:
        """The key with this id, or the only key if `kid` is None. Raises ValueError.

        While one thread fetches again, others use the previous keys: an issuer that does not answer delays nobody.
        """
        if self._lock.acquire(blocking=not self._is_loaded):
            try:
                self._refresh(missing=kid not in self._keys)
            finally:
                self._is_loaded = True
                self._lock.release()
        keys = self._keys
        if kid is None and len(keys) == 1:
            return next(iter(keys.values()))
        if kid is None or kid not in keys:
            raise ValueError("there is no such key")
        return keys[kid]

    def _refresh(self, *, missing: bool) -> None:
        try:
            if self._is_remote:
                age = time.monotonic() - self._fetched_at
                if age > _CACHE_TTL_S or (missing and age > _MIN_REFETCH_INTERVAL_S):
                    self._fetched_at = time.monotonic()
                    self._keys = _parse_keys(_fetch(self._location))
            else:
                file = Path(self._location).expanduser()
                status = file.stat()
                if self._file_stamp != (status.st_mtime_ns, status.st_size):
                    self._keys = _parse_keys(file.read_bytes())
                    self._file_stamp = (status.st_mtime_ns, status.st_size)
        except (OSError, ValueError, jwt.PyJWTError) as error:
            # The previous keys stay valid.
            _log.warning("the keys of the issuers cannot be loaded: %s", error)


def _parse_keys(data: bytes) -> dict[str | None, jwt.PyJWK]:
    document: Any = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("it is not a key set")
    return {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirects: only the configured URL is trusted."""


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=_FETCH_TIMEOUT_S) as response:
        data: bytes = response.read(_MAX_KEY_SET_BYTES + 1)
    if len(data) > _MAX_KEY_SET_BYTES:
        raise ValueError("it is too large")
    return data


SCOPES_BY_NAME: Mapping[str, Scope] = {"read": Scope.READ, "write": Scope.WRITE}
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric algorithms only: the verifier must not be able to sign."""
_LEEWAY_S = 30.0


class TokenVerifier:
    """Verifies the tokens of the configured issuers. Safe to use from many threads."""

    def __init__(self, issuers: Sequence[str], base: str, keys: str) -> None:
        self.base = base
        self._issuers = tuple(issuers)
        self._keys = KeySet(keys)

    def is_token_format(self, token: str) -> bool:
        """Whether it looks like a JWT. Our own keys do not."""
        return token.count(".") == 2

    def verify(self, token: str) -> TokenIdentity:
        """The identity of a token. Raises Unauthorized if it is invalid, Forbidden if it has no known scope."""
        claims = self._decode_claims(token)
        slug = self._get_slug(claims)
        claim = claims.get("scope", claims.get("scp", ""))
        names = claim.split() if isinstance(claim, str) else [name for name in claim if isinstance(name, str)]
        scopes = {SCOPES_BY_NAME[name] for name in names if name in SCOPES_BY_NAME}
        if not scopes:
            known = ", ".join(SCOPES_BY_NAME)
            raise Forbidden("This token has no scope of this service.", hint=f"Request one of the scopes {known}.")
        scope = Scope.WRITE if Scope.WRITE in scopes else Scope.READ
        digest = blake2b(f"{claims['iss']}\0{claims['sub']}".encode("utf-8", "replace"), digest_size=8).hexdigest()
        name = next((claim for claim in (claims.get("name"), claims["sub"]) if isinstance(claim, str)), "")
        email = claims.get("email")
        author = make_author(name, email if isinstance(email, str) else "", digest, default_name="Agent")
        return TokenIdentity(slug, scope, f"oauth:{digest}", author)

    def _decode_claims(self, token: str) -> Mapping[str, Any]:
        try:
            key = self._keys.get_key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                issuer=list(self._issuers),
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_aud": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            raise _build_invalid_token_error() from None
        return claims

    def _get_slug(self, claims: Mapping[str, Any]) -> str:
        """The one wiki in the audience. Raises Unauthorized if there is none or several."""
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        pattern = re.compile(rf"{re.escape(self.base)}/w/([a-z0-9-]+)/mcp")
        slugs = {match[1] for item in audience if isinstance(item, str) and (match := pattern.fullmatch(item))}
        if len(slugs) != 1:
            raise _build_invalid_token_error()
        return slugs.pop()


def _build_invalid_token_error() -> Unauthorized:
    return Unauthorized("This token is invalid or has expired.", hint="Request a new one from its issuer.")
