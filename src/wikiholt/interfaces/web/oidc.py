"""Sign-in with an OpenID provider: authorization code with PKCE, state and nonce.

Between start and callback the browser keeps state, nonce and verifier in a cookie: the service stores nothing for
strangers.
"""

import base64
import importlib.util
import json
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from math import inf
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from wikiholt.api.settings.definitions import Settings
from wikiholt.domain.wiki import MAX_NAME_CHARS, Person, PersonOrigin
from wikiholt.errors import Forbidden, MissingDependency, SignInUnavailable, make_extra_hint

_log = logging.getLogger(__name__)

_METADATA_TTL_S = 3600.0
_MIN_REFETCH_INTERVAL_S = 30.0
"""Minimum time between two fetches of a document, also after one that failed."""
_TIMEOUT_S = 10.0
_MAX_DOCUMENT_BYTES = 1_000_000
_LEEWAY_S = 60
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Asymmetric algorithms only."""
_MAX_GROUPS = 500
_RETRY_HINT = "Start again from the sign-in page."


class OidcClient:
    """This service as a client of one OpenID provider. Safe to use from many threads."""

    def __init__(self, settings: Settings) -> None:
        """Raises MissingDependency unless the extra is installed."""
        if importlib.util.find_spec("authlib") is None or importlib.util.find_spec("httpx2") is None:
            raise MissingDependency(
                "The setting people.oidc_issuer names an OpenID provider, but authlib is not installed.",
                hint=make_extra_hint("oidc"),
            )
        self._settings = settings
        self._issuer = settings.people_oidc_issuer
        self._lock = Lock()
        self._fetches: dict[str, _Fetch] = {}
        """The last fetch of each document."""

    def start(self, redirect_url: str, next_url: str) -> tuple[str, str]:
        """The address at the provider to send the browser to, and the value of the cookie for the way back."""
        metadata = self._get_metadata()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._open_session(redirect_url) as session:
            url, _ = session.create_authorization_url(
                metadata["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        pending = json.dumps([state, nonce, verifier, next_url])
        return str(url), base64.urlsafe_b64encode(pending.encode()).decode()

    def finish(self, redirect_url: str, parameters: Mapping[str, str], cookie: str) -> tuple[Person, str]:
        """The person of a callback, and the page to return to. Raises Forbidden or SignInUnavailable."""
        state, nonce, verifier, next_url = _parse_pending(cookie)
        is_other_issuer = parameters.get("iss", self._issuer) != self._issuer
        if not state or is_other_issuer or not secrets.compare_digest(parameters.get("state", "").encode(), state):
            raise Forbidden("This sign-in was not started in this browser, or took too long.", hint=_RETRY_HINT)
        if "error" in parameters:
            _log.info("the OpenID provider refused a sign-in: %r", parameters["error"][:100])
            raise Forbidden("The provider did not sign you in.", hint=_RETRY_HINT)
        token = self._fetch_token(redirect_url, parameters.get("code", ""), verifier)
        claims = self._verify_id_token(token, nonce)
        if self._settings.people_oidc_groups_claim not in claims:
            claims = {**self._fetch_userinfo(token, claims["sub"]), **claims}
        return self._make_person(claims), next_url

    def make_sign_out_url(self, return_url: str) -> str:
        """The address at which the person signs out at the provider; empty if it has none or does not answer."""
        try:
            endpoint = self._get_metadata().get("end_session_endpoint", "")
        except SignInUnavailable:
            return ""
        values = {"client_id": self._settings.people_oidc_client_id, "post_logout_redirect_uri": return_url}
        return f"{endpoint}?{urlencode(values)}" if endpoint else ""

    def _fetch_token(self, redirect_url: str, code: str, verifier: str) -> dict[str, Any]:
        from authlib.integrations.httpx_client import OAuthError  # noqa: PLC0415

        try:
            with _translate_errors(), self._open_session(redirect_url) as session:
                token = session.fetch_token(self._get_metadata()["token_endpoint"], code=code, code_verifier=verifier)
        except OAuthError as error:
            _log.warning("the OpenID provider refused a code: %s", error)
            raise Forbidden("The provider did not accept the sign-in.", hint=_RETRY_HINT) from error
        return dict(token)

    def _verify_id_token(self, token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        from authlib.oidc.core import CodeIDToken  # noqa: PLC0415
        from joserfc import jwt  # noqa: PLC0415
        from joserfc.errors import JoseError  # noqa: PLC0415

        parameters = {"nonce": nonce, "client_id": self._settings.people_oidc_client_id}
        options = {
            "iss": {"essential": True, "value": self._issuer},
            "aud": {"essential": True, "value": self._settings.people_oidc_client_id},
        }
        try:
            decoded = jwt.decode(str(token.get("id_token", "")), self._find_keys(token), algorithms=list(_ALGORITHMS))
            parameters["access_token"] = str(token.get("access_token", ""))
            claims = CodeIDToken(decoded.claims, decoded.header, options, parameters)
            claims.validate(leeway=_LEEWAY_S)
            if not isinstance(claims["sub"], str) or not claims["sub"].strip():
                raise ValueError("it names nobody")
        except (JoseError, ValueError, KeyError, TypeError) as error:
            _log.warning("the ID token of the OpenID provider is invalid: %s", error)
            raise Forbidden("The provider's answer could not be verified.", hint=_RETRY_HINT) from error
        return dict(claims)

    def _find_keys(self, token: Mapping[str, Any]) -> Any:
        """The provider's keys, fetched again if the token names an unknown one."""
        from joserfc.jwk import KeySet  # noqa: PLC0415
        from joserfc.jws import extract_compact  # noqa: PLC0415

        url = self._get_metadata()["jwks_uri"]
        kid = extract_compact(str(token.get("id_token", "")).encode()).headers().get("kid")
        document = self._fetch_document(url, _METADATA_TTL_S)
        if kid is not None and all(key.get("kid") != kid for key in document.get("keys", ())):
            document = self._fetch_document(url, _MIN_REFETCH_INTERVAL_S)
        return KeySet.import_key_set({"keys": list(document.get("keys", ()))})

    def _fetch_userinfo(self, token: Mapping[str, Any], subject: str) -> dict[str, Any]:
        endpoint = self._get_metadata().get("userinfo_endpoint")
        if not endpoint:
            return {}
        claims = _fetch_json(endpoint, {"Authorization": f"Bearer {token.get('access_token', '')}"})
        return claims if claims.get("sub") == subject else {}

    def _make_person(self, claims: Mapping[str, Any]) -> Person:
        groups = claims.get(self._settings.people_oidc_groups_claim)
        groups = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        names = (claims.get("name"), claims.get("preferred_username"), claims.get("email"), claims["sub"])
        email = claims.get("email") if claims.get("email_verified", True) is True else ""
        return Person(
            PersonOrigin.OIDC,
            f"{self._issuer} {claims['sub']}",
            next((name for name in names if isinstance(name, str) and name.strip()), "")[:MAX_NAME_CHARS],
            email if isinstance(email, str) else "",
            tuple(str(group) for group in groups)[:_MAX_GROUPS],
        )

    def _get_metadata(self) -> dict[str, Any]:
        """The discovery document. Raises SignInUnavailable."""
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = self._fetch_document(url, _METADATA_TTL_S)
        required = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if metadata.get("issuer") != self._issuer or not all(isinstance(metadata.get(name), str) for name in required):
            _log.error("%s does not describe the issuer %s", url, self._issuer)
            raise _make_unavailable_error()
        return metadata

    def _fetch_document(self, url: str, ttl_s: float) -> dict[str, Any]:
        """A document that is at most this old. One thread fetches it, and others wait. Raises SignInUnavailable."""
        with self._lock:
            fetch = self._fetches.get(url)
            is_own = fetch is None or not fetch.is_usable(ttl_s)
            if fetch is None or is_own:
                fetch = self._fetches[url] = _Fetch()
        if is_own:
            fetch.run(url)
        return fetch.wait()

    def _open_session(self, redirect_url: str) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client  # noqa: PLC0415

        secret = self._settings.people_oidc_client_secret
        return OAuth2Client(
            self._settings.people_oidc_client_id,
            secret or None,
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            scope=" ".join(dict.fromkeys(("openid", *self._settings.people_oidc_scopes))),
            redirect_uri=redirect_url,
            code_challenge_method="S256",
            timeout=_TIMEOUT_S,
        )


class _Fetch:
    """One fetch of a document, which a thread runs and others wait for."""

    def __init__(self) -> None:
        self._document: Future[dict[str, Any]] = Future()
        """Empty if the fetch failed."""
        self._ended_at = inf

    def is_usable(self, ttl_s: float) -> bool:
        """Whether it is running, or has ended so recently that it is not repeated."""
        age = time.monotonic() - self._ended_at
        return age <= (ttl_s if age < 0 or self._document.result() else _MIN_REFETCH_INTERVAL_S)

    def run(self, url: str) -> None:
        document: dict[str, Any] = {}
        try:
            document = _fetch_json(url, {})
        finally:
            self._document.set_result(document)
            self._ended_at = time.monotonic()

    def wait(self) -> dict[str, Any]:
        """The document. Raises SignInUnavailable if it could not be fetched, or takes too long."""
        try:
            document = self._document.result(_TIMEOUT_S)
        except TimeoutError:
            document = {}
        if not document:
            raise _make_unavailable_error()
        return document


def _parse_pending(cookie: str) -> tuple[bytes, str, str, str]:
    try:
        state, nonce, verifier, next_url = map(str, json.loads(base64.urlsafe_b64decode(cookie)))
    except ValueError:
        return b"", "", "", ""
    return state.encode(), nonce, verifier, next_url


def _fetch_json(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Fetch a JSON object, without redirects. Raises SignInUnavailable."""
    import httpx2  # noqa: PLC0415

    data, deadline = bytearray(), time.monotonic() + _TIMEOUT_S
    with (
        _translate_errors(),
        httpx2.Client(timeout=_TIMEOUT_S) as client,
        client.stream("GET", url, headers=dict(headers)) as response,
    ):
        if response.status_code != 200:
            raise ValueError(f"{url} answers with status {response.status_code}")
        for part in response.iter_bytes():
            data += part
            if len(data) > _MAX_DOCUMENT_BYTES:
                raise ValueError(f"{url} is too large")
            if time.monotonic() > deadline:
                raise ValueError(f"{url} takes too long")
        document = json.loads(bytes(data))
        if not isinstance(document, dict):
            raise ValueError(f"{url} is not a JSON object")
        return document


@contextmanager
def _translate_errors() -> Iterator[None]:
    import httpx2  # noqa: PLC0415

    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        _log.warning("the OpenID provider cannot be used: %s", error)
        raise _make_unavailable_error() from error


def _make_unavailable_error() -> SignInUnavailable:
    return SignInUnavailable(
        "The OpenID provider does not answer correctly.", hint="Try again later, or use a key. The log has the reason."
    )
