"""Public keys of issuers: from a file, read again when it changes, or from an address, asked now and then."""

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
from typing_extensions import TypedDict

from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Forbidden, Unauthorized
from wikiholt.interfaces.http.request_context import TokenIdentity

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


# Access tokens that others issue (OAuth 2.1): this service is a resource, it issues none itself. A token opens the
# one wiki that its audience names, for what its scope says, if one of the issuers signed it.


SCOPES_BY_NAME: Mapping[str, Scope] = {"read": Scope.READ, "write": Scope.WRITE}
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Only those where who verifies cannot sign."""
_LEEWAY_S = 30.0
_EMAIL_PATTERN = re.compile(r"[^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+")


class ResourceMetadata(TypedDict):
    """A protected resource (RFC 9728)."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


class TokenVerifier:
    """Those whose tokens count here; safe to use from many threads."""

    def __init__(self, issuers: Sequence[str], base: str, keys: str) -> None:
        self.base = base
        self._issuers = tuple(issuers)
        self._keys = KeySet(keys)

    def build_metadata(self, slug: str) -> ResourceMetadata:
        return {
            "resource": self._format_resource(slug),
            "authorization_servers": list(self._issuers),
            "scopes_supported": list(SCOPES_BY_NAME),
            "bearer_methods_supported": ["header"],
            "resource_name": "Wikiholt",
        }

    def is_token_format(self, token: str) -> bool:
        """Whether it has the form of such a token; a key of ours has not."""
        return token.count(".") == 2

    def verify(self, token: str) -> TokenIdentity:
        """Whom and what a token speaks for; raises Unauthorized where it does not count, Forbidden without scope."""
        claims = self._decode_claims(token)
        slug = self._get_slug(claims)
        given = claims.get("scope", claims.get("scp", ""))
        named = given.split() if isinstance(given, str) else [each for each in given if isinstance(each, str)]
        scopes = {SCOPES_BY_NAME[each] for each in named if each in SCOPES_BY_NAME}
        if not scopes:
            raise Forbidden(
                "This token allows nothing here.", hint=f"Ask for one of the scopes {', '.join(SCOPES_BY_NAME)}."
            )
        scope = Scope.WRITE if Scope.WRITE in scopes else Scope.READ
        digest = blake2b(f"{claims['iss']}\0{claims['sub']}".encode("utf-8", "replace"), digest_size=8).hexdigest()
        return TokenIdentity(slug, scope, f"oauth:{digest}", _build_author(claims, digest))

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
            raise _build_unknown_token_error() from None
        return claims

    def _get_slug(self, claims: Mapping[str, Any]) -> str:
        """The wiki that the audience names, and no other; raises Unauthorized."""
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        pattern = re.compile(rf"{re.escape(self.base)}/w/([a-z0-9-]+)/mcp")
        found = {match[1] for each in audience if isinstance(each, str) and (match := pattern.fullmatch(each))}
        if len(found) != 1:
            raise _build_unknown_token_error()
        return found.pop()

    def _format_resource(self, slug: str) -> str:
        return f"{self.base}/w/{slug}/mcp"


def _build_unknown_token_error() -> Unauthorized:
    return Unauthorized("This token does not count here; it may have expired.", hint="Ask its issuer for another.")


def _build_author(claims: Mapping[str, Any], digest: str) -> Author:
    """Who commits are by, as the issuer knows them."""
    name = next((each for each in (claims.get("name"), claims["sub"]) if isinstance(each, str)), "")
    shown = re.sub(r"[<>\x00-\x1f\x7f]", "", name).strip()[:200]
    email = claims.get("email")
    address = email if isinstance(email, str) and len(email) < 255 and _EMAIL_PATTERN.fullmatch(email) else ""
    return Author(shown if any(map(str.isalnum, shown)) else "Agent", address or f"{digest}@wikiholt.invalid")
