"""Requests of every kind of caller, and the wikis whose content the response may contain."""

import hashlib
import hmac
import json
from dataclasses import dataclass, field, replace
from random import Random
from urllib.parse import quote, urlencode

from fastapi import FastAPI
from hypothesis import strategies as st

from tests.isolation.canaries import COMMON_TEXT
from tests.isolation.http_environment import DOMAIN, ServedEnvironment, ServedWiki
from wikiholt.interfaces.http.service_routes import build_openapi
from wikiholt.interfaces.http.sign_in import COOKIE_NAME

CALLERS = (
    *("read", "write", "admin", "other's", "other's admin", "operator", "nobody", "nobody", "wrong", "expired"),
    *("revoked", "malformed", "empty", "basic", "two", "both keys", "key and wrong key"),
    *("browser", "browser", "person", "person", "person without group", "foreign cookie"),
)
HOST_CHOICES = ("own", "own", "own", "mine", "other's", "my slug", "other's slug", "elsewhere", "odd")
PREFIX_CHOICES = ("none", "none", "mine", "mine", "mine", "other's", "other's", "odd")
READS, CHANGES = ("GET", "HEAD"), ("POST", "PUT", "PATCH", "DELETE")
SERVICE = (
    "/opensearch.xml",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/docs",
    "/api/v1/health",
    "/api/v1/me",
    "/metrics",
    "/static",
    "/favicon.ico",
    "/box.js",
    "/diagram",
    "/sign-in",
    "/owner",
)
PAGES = ("/", "/status", "/edit", "/manage")
"""Web pages without content of a wiki."""


@dataclass(frozen=True)
class ApiRoute:
    """A route of the service with the names of its parameters."""

    method: str
    path: str
    query: tuple[str, ...] = ("q", "path", "page", "n", "mode")
    body: tuple[str, ...] = ()

    @property
    def is_service_route(self) -> bool:
        return self.path.startswith(SERVICE) or self.path in PAGES

    @property
    def is_global_route(self) -> bool:
        return self.path.startswith(("/api/v1/wikis", "/api/v1/keys", "/api/v1/settings"))

    @property
    def covers_several_wikis(self) -> bool:
        """Whether an operator key or a list of keys searches all of their wikis here, if no wiki is named."""
        return self.path == "/api/v1/search"

    @property
    def needs_more_than_reading(self) -> bool:
        names = ("backup", "backups", "restore", "report", "duplicates", "past", "past/search")
        return self.path in {f"/api/v1/{name}" for name in names}


@dataclass(frozen=True)
class RequestCase:
    """The choices from which a request is built."""

    route: int
    caller: str
    host: str
    prefix: str
    me: int
    other: int
    seed: int


@dataclass(frozen=True)
class BuiltRequest:
    """An HTTP request, and the wikis whose words the response may contain."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    allowed_wikis: frozenset[str] = frozenset()
    is_open: bool = False
    caller: str = ""
    own_words: tuple[str, ...] = ()
    """Words that any page may show to this caller: the label of the key that a browser is signed in with."""

    def to_text(self) -> str:
        """The complete request as text."""
        return f"{self.method} {self.url}\n{self.headers}\n{self.body.decode('utf-8', 'replace')}"


def list_routes(app: FastAPI) -> list[ApiRoute]:
    """All routes of the application, from its OpenAPI document: new routes are tested automatically."""
    described = build_openapi(app)
    names = {name: schema.get("properties", {}) for name, schema in described["components"]["schemas"].items()}
    found = []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            query = tuple(
                parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"
            )
            found.append(ApiRoute(method.upper(), path, query, _get_body_fields(operation, names)))
            found += [ApiRoute("HEAD", path, query)] if method == "get" else []
    for route in app.routes:  # routes for browsers, which are not in the document
        path = getattr(route, "path_format", "")
        methods = set(getattr(route, "methods", None) or ()) if path and path not in described["paths"] else set()
        found += [ApiRoute(method, path) for method in sorted(methods)]
    return sorted(set(found), key=lambda route: (route.path, route.method))


def _get_body_fields(schema: dict[str, object], names: dict[str, dict[str, object]]) -> tuple[str, ...]:
    text = json.dumps(schema.get("requestBody", {}))
    return tuple(field for name, fields in names.items() if f'schemas/{name}"' in text for field in fields)


def request_cases(routes: int, wikis: int) -> st.SearchStrategy[RequestCase]:
    number = st.integers(0, wikis - 1)
    return st.builds(
        RequestCase,
        route=st.integers(0, routes - 1),
        caller=st.sampled_from(CALLERS),
        host=st.sampled_from(HOST_CHOICES),
        prefix=st.sampled_from(PREFIX_CHOICES),
        me=number,
        other=number,
        seed=st.integers(0, 2**32),
    )


def make_random_case(rng: Random, routes: int, wikis: int) -> RequestCase:
    """A case with uniformly distributed choices; Hypothesis prefers unusual ones."""
    chosen = (rng.choice(CALLERS), rng.choice(HOST_CHOICES), rng.choice(PREFIX_CHOICES))
    return RequestCase(rng.randrange(routes), *chosen, rng.randrange(wikis), rng.randrange(wikis), rng.randrange(2**32))


def make_random_address(rng: Random) -> str:
    """A random client address, because too many wrong keys from one address are rate limited."""
    return ".".join(["10", *(str(rng.randrange(256)) for _ in range(3))])


class RequestBuilder:
    """Builds requests from cases for one environment."""

    def __init__(self, env: ServedEnvironment, routes: list[ApiRoute]) -> None:
        self._env = env
        self.routes = routes
        self.read_routes = [
            number
            for number, route in enumerate(routes)
            if route.method == "GET" and not (route.is_service_route or route.is_global_route)
        ]

    def build(self, case: RequestCase) -> BuiltRequest:
        rng = Random(case.seed)
        route = self.routes[case.route]
        wikis = self._env.wikis
        me, other = wikis[case.me], wikis[case.other if case.other != case.me else case.me - 1]
        if case.caller in ("write", "admin") and case.caller not in me.keys:
            me = wikis[-1 - case.me]
            other = wikis[case.me]
        named, prefix = self._build_prefix(case, rng, me, other)
        hosted, host = self._build_host(case, rng, me, other)
        allowed = self._get_allowed(case, route, {*named, *hosted}, me, other)
        target = next((wiki for wiki in wikis if allowed == {wiki.code}), None)
        if route.method in CHANGES and case.caller == "operator" and target in self._env.read_only_wikis:
            # An operator may write everywhere; wikis that must not change get a wrong key instead.
            return self.build(replace(case, caller="wrong"))
        may_change = route.method in CHANGES and bool(allowed)
        # Written content must be of the own wiki, or later responses with it would be reported as leaks.
        about = (target or me) if may_change else other
        values = _ValueGenerator(me, about, rng, known=may_change or case.caller == "operator")
        path = self._fill_path(route, values, case)
        pairs = self._build_query(route, values, rng, sane=rng.random() < 0.7)
        headers = {
            "Host": host,
            "X-Forwarded-For": f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
        }
        headers |= self._build_headers(case, me, other)
        body = self._build_body(route, values, rng)
        if body:
            media_type = "application/x-ndjson" if route.path.endswith(":bulk") else "application/json"
            headers |= {"Content-Type": media_type} | self._sign(route, body, me, rng)
        if rng.random() < 0.2:
            headers |= {"If-Match": rng.choice(["*", f'"{other.heads[0]}"', '"abc'])}
        url = f"{prefix}{path}" + (f"?{urlencode(pairs)}" if pairs else "")
        label = (me.get_word("label"),) if case.caller == "browser" else ()
        return BuiltRequest(route.method, url, headers, body, allowed, route.is_service_route, case.caller, label)

    def _build_prefix(self, case: RequestCase, rng: Random, me: ServedWiki, other: ServedWiki) -> tuple[list[str], str]:
        if case.prefix == "none":
            return [], ""
        if case.prefix == "odd":
            odd = [
                other.slug.upper(),
                f"{other.slug}%00",
                f"%2e%2e%2f{other.slug}",
                f"{other.slug}-x",
                other.id,
                "",
                "*",
            ]
            odd += [other.slug.replace("w", "%EF%BD%97"), "wikis", f"{me.slug}%2F..%2F{other.slug}", "a" * 300]
            return ["?"], f"/w/{rng.choice(odd)}"
        slug = me.slug if case.prefix == "mine" else other.slug
        return [slug], f"/w/{slug}"

    def _build_host(self, case: RequestCase, rng: Random, me: ServedWiki, other: ServedWiki) -> tuple[list[str], str]:
        other_hosts = [other.host, other.host.upper(), f"{other.host}:8443", f"{other.host}."]
        odd = [f"{other.host}@127.0.0.1", f"x.{other.slug}.{DOMAIN}", "[::1", f"{other.slug}..{DOMAIN}", "a" * 300]
        return {
            "own": ([], "127.0.0.1"),
            "mine": (self._get_active_codes(me), me.host),
            "other's": (self._get_active_codes(other), rng.choice(other_hosts)),
            "my slug": ([me.slug], f"{me.slug}.{DOMAIN}"),
            "other's slug": ([other.slug], f"{other.slug}.{DOMAIN}"),
            "elsewhere": ([], "rebind.example"),
            "odd": ([], rng.choice(odd)),
        }[case.host]

    def _get_active_codes(self, wiki: ServedWiki) -> list[str]:
        """The slugs that the host of a wiki names: none once the wiki has been removed."""
        return [] if wiki in self._env.wikis_to_remove else [wiki.slug]

    def _get_allowed(
        self, case: RequestCase, route: ApiRoute, named_wikis: set[str], me: ServedWiki, other: ServedWiki
    ) -> frozenset[str]:
        """The wikis whose content may be returned, by the documented rules and not by the access code."""
        by_slug = {wiki.slug: wiki for wiki in self._env.wikis}
        one = by_slug.get(next(iter(named_wikis))) if len(named_wikis) == 1 else None
        if route.path.endswith("/webhook"):  # only the signature counts, and it is of `me`
            return frozenset({me.code} if named_wikis <= {me.slug} else ())
        if case.caller in ("wrong", "expired", "revoked", "malformed", "empty", "two", "key and wrong key"):
            return frozenset()
        if case.caller == "both keys":
            return frozenset({me.code, other.code} if route.covers_several_wikis and not named_wikis else ())
        public = {wiki.code for wiki in self._env.wikis if wiki.public and (wiki is one or not named_wikis)}
        own = {me.code} if named_wikis <= {me.slug} else set()
        # None of these requests proves that a page of the service started it, so none may change anything.
        if case.caller in ("nobody", "basic", "person without group", "foreign cookie"):
            return frozenset(public) if route.method not in CHANGES else frozenset()
        if case.caller in ("browser", "person"):
            # Once its wiki is removed, the cookie is that of nobody.
            others = public if case.caller == "person" or me in self._env.wikis_to_remove else set()
            return frozenset(own | others) if route.method not in CHANGES else frozenset()
        if case.caller == "operator":
            if route.is_global_route:
                return frozenset(wiki.code for wiki in self._env.wikis)
            hosted = {"mine": me, "other's": other}.get(case.host)
            if not named_wikis and route.covers_several_wikis:
                return frozenset(wiki.code for wiki in self._env.wikis)
            if not named_wikis and hosted in self._env.wikis_to_remove:
                return frozenset({hosted.code})  # its host names it until it is removed, at some moment of the test
            return frozenset({one.code} if one else ())
        key_wiki = other if case.caller.startswith("other's") else me
        fits = named_wikis <= {key_wiki.slug}
        return frozenset({key_wiki.code}) if fits else frozenset()

    def _build_headers(self, case: RequestCase, me: ServedWiki, other: ServedWiki) -> dict[str, str]:
        other_key = other.keys.get("admin") or other.keys["read"]
        tokens = {
            "other's": other.keys["read"],
            "other's admin": other_key,
            "operator": self._env.operator,
            "wrong": f"wh_{other.key_ids[0]}_{'a' * 40}",
            "expired": other.keys["expired"],
            "revoked": other.keys["revoked"],
            "malformed": f"{other_key}x",
            "empty": "",
            "two": f"{me.keys['read']}, Bearer {other_key}",
            "both keys": f"{me.keys['read']},{other.keys['read']}",
            "key and wrong key": f"{me.keys['read']},wh_{other.key_ids[0]}_{'a' * 40}",
        }
        signed_in = {
            "nobody": {},
            "browser": {"Cookie": f"theme=dark; {COOKIE_NAME}={me.sign_in}"},
            "foreign cookie": {"Cookie": f"{COOKIE_NAME}={other.sign_in[::-1]}"},
            "person": {"Remote-User": f"reader {me.number}", "Remote-Groups": f"others,{me.group}"},
            "person without group": {"Remote-User": f"reader {other.number}", "Remote-Groups": other.slug},
        }
        if case.caller in signed_in:
            return signed_in[case.caller]
        scheme = "Basic" if case.caller == "basic" else "Bearer"
        token = tokens[case.caller] if case.caller in tokens else me.keys.get(case.caller, other_key)
        return {"Authorization": f"{scheme} {token}".strip()}

    def _fill_path(self, route: ApiRoute, values: "_ValueGenerator", case: RequestCase) -> str:
        """The path with its parameters. Destructive requests use the slug of a missing wiki."""
        path = route.path
        makers = {
            "path": values.make_page,
            "slug": values.make_slug,
            "key_id": values.make_key_id,
            "filename": values.make_filename,
        }
        for name, value in ((f"{{{name}}}", make()) for name, make in makers.items()):
            path = path.replace(name, quote(value, safe="/" if name == "{path}" else ""))
        while "{" in path:
            head, _, rest = path.partition("{")
            path = head + quote(values.make_slug(), safe="") + rest.partition("}")[2]
        return path

    def _build_query(
        self, route: ApiRoute, values: "_ValueGenerator", rng: Random, *, sane: bool
    ) -> list[tuple[str, str]]:
        pairs = [
            (name, values.make_value(name))
            for name in route.query
            if name in ("q", "path", "page") or rng.random() < 0.25
        ]
        if not sane:
            odd = [
                ("wiki", values.make_slug()),
                ("slug", values.make_slug()),
                ("cursor", values.make_cursor()),
                ("key", "x"),
                ("n", "1e9"),
            ]
            pairs += rng.sample(odd, rng.randint(1, 2))
        return pairs

    def _build_body(self, route: ApiRoute, values: "_ValueGenerator", rng: Random) -> bytes:
        if route.method not in CHANGES:
            return b""
        if rng.random() < 0.1:
            return rng.choice([b"{", b"[]", b"null", f'"{values.make_word()}"'.encode(), b"\xff\xfe"])
        fields = {name: values.make_field(name) for name in route.body if rng.random() < 0.8}
        return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()

    def _sign(self, route: ApiRoute, body: bytes, me: ServedWiki, rng: Random) -> dict[str, str]:
        if "webhook" not in route.path:
            return {}
        digest = hmac.new(me.secret.encode(), body, hashlib.sha256).hexdigest()
        return rng.choice([{"X-Hub-Signature-256": f"sha256={digest}"}, {"X-Gitlab-Token": me.secret}])


class _ValueGenerator:
    """Values in a request: words of another wiki, or of the own wiki where they are stored."""

    def __init__(self, me: ServedWiki, about: ServedWiki, rng: Random, *, known: bool) -> None:
        self._me, self._about, self._rng, self._known = me, about, rng, known

    def make_word(self) -> str:
        places = ("body", "title", "tag", "category", "heading", "text", "author", "message", "label", "edit")
        return self._about.get_word(self._rng.choice(places))

    def make_page(self) -> str:
        mixed = [
            *self._about.paths,
            f"../{self._about.slug}/Home",
            "Home/../Rota",
            ".git/config",
            "a\nb",
            "",
            "nowhere",
            f"Home/{self._about.filename}",
        ]
        return self._rng.choice(mixed + ([] if self._known else self._me.paths))

    def make_slug(self) -> str:
        # Requests of an operator take effect, so they name a missing wiki.
        return "not-there" if self._known else self._rng.choice([self._about.slug, self._about.id, "not-there"])

    def make_key_id(self) -> str:
        return "aaaaaaaaaaaa" if self._known else self._rng.choice([*self._about.key_ids, "aaaaaaaaaaaa"])

    def make_filename(self) -> str:
        mixed = [self._about.filename, "nowhere.txt", f"../{self._about.get_word('path')}/Pump.md", "../../.git/config"]
        return self._rng.choice(mixed + ([] if self._known else [self._me.filename]))

    def make_cursor(self) -> str:
        return self._rng.choice([f"{self._about.id}:0", self._about.heads[0], self._about.get_word("path")])

    def make_value(self, name: str) -> str:
        rng, about = self._rng, self._about
        own = [COMMON_TEXT, "pump", self._me.get_word("body"), self._me.get_word("title")]
        pools = {
            "q": [
                *own,
                *own,
                about.get_word("body"),
                f'"{about.get_word("text")}"',
                f"pump -{about.get_word('tag')}",
                f"zq{about.code}",
            ],
            "path": [self.make_page(), "Home"],
            "page": [self.make_page(), "Home"],
            "prefix": [about.get_word("path"), "../", "%", self._me.get_word("path")],
            "tag": [about.get_word("tag"), "pump", "people"],
            "category": [about.get_word("category"), self._me.get_word("category")],
            "revision": [about.heads[0], self._me.heads[0][:8], "0" * 40],
            "mode": ["hybrid", "keyword", "semantic", "other"],
            "n": ["1", "5", "100", "0", "-1", "x"],
            "limit": ["1", "50", "0"],
            "offset": ["0", "1", "99999"],
            "fresh": ["true", "false"],
            "at": ["HEAD", about.heads[0], self._me.heads[0][:8], "today", "0" * 40],
            "at_least": [about.heads[0], self._me.heads[0], "0" * 40],
            "raw": ["true", "false"],
            "since": ["7d", "2020-01-01", "never"],
            "wiki": [self._me.slug, about.slug, "not-there"],
        }
        return rng.choice(pools.get(name, ["1", "true", self.make_word()]))

    def make_field(self, name: str) -> object:
        rng = self._rng
        pools: dict[str, list[object]] = {
            "content": [f"# Note\n\n{COMMON_TEXT} {self.make_word()}", ""],
            "old_string": ["The manual", self.make_word()],
            "new_string": [self.make_word()],
            "new_path": [f"more/{self._about.get_word('path')}{rng.randrange(9)}", "Rota"],
            "author": [{"name": self.make_word(), "email": "somebody@example.org"}],
            "commit_message": [self.make_word()],
            "revision": [None, self._about.heads[0], "0" * 40],
            "update_links": [True, False],
            "slug": [self.make_slug()],
            "source": ["/nowhere/at/all", str(self._about.repository.path) if not self._known else "/nowhere"],
            "scope": ["read", "write", "admin"],
            "label": [self.make_word()],
            "wiki": [self.make_slug(), None],
            "settings": [{"hosts": f"{self._about.host}"}] if not self._known else [{}],
        }
        return rng.choice(pools.get(name, [None, self.make_word(), 3]))
