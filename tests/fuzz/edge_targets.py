"""What must hold at the edges: links, rendering, slugs, page paths, signatures, settings, addresses, searches."""

import hmac
import re
import tempfile
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

from fuzz_texts import PATHS
from starlette.requests import Request as HttpRequest
from text_targets import read, storable

from wikiholt.contents.locating import checked_path, files_of
from wikiholt.errors import InvalidPage, InvalidQuery, InvalidSetting, InvalidSlug, WikiholtError
from wikiholt.model import Mode
from wikiholt.registry.slugs import propose_slug, validate_slug
from wikiholt.search import Request
from wikiholt.settings import SETTINGS, WikiSettings, load
from wikiholt.settings.table import WIKI_SETTINGS
from wikiholt.sources.address import is_remote, shown
from wikiholt.sources.git import GitSource
from wikiholt.sources.naming import require_name
from wikiholt.surfaces.http.webhook import signed
from wikiholt.surfaces.web.render import render
from wikiholt.text.links import Names, folded, paths_of
from wikiholt.text.page import page_path, parse_page
from wikiholt.text.rewriting import Move, rewritten

_NEW = "moved/New place"
_BEFORE = Names(PATHS)
_REFUSED = {
    "script",
    "style",
    "iframe",
    "img",
    "svg",
    "math",
    "form",
    "input",
    "meta",
    "base",
    "link",
    "object",
    "embed",
}
_HREF = re.compile(r"(?:https?:|mailto:|\?page=|#)|\Z", re.IGNORECASE)


def links(text: str) -> None:
    for wiki in (True, False):
        for path in paths_of((text, text[::-1]) if wiki else (text,), wiki, "dir/page.md"):
            assert path
            assert not {"", ".", ".."} & set(path.split("/"))
            assert "\0" not in path
            assert _BEFORE.page((path,), wiki) in (None, *PATHS)
    assert folded(text) == folded(text.upper()) or text.upper().casefold() != text.casefold()


def rewriting(text: str) -> None:
    """After a page got another path, every link means the page it meant before."""
    data = text.encode("utf-8", "surrogatepass")
    old = "guides/restore"
    after = Names([*(path for path in PATHS if path != old), _NEW])
    move = Move(old, _NEW, _BEFORE, after)
    for file, new_file in (("Home.md", "Home.md"), (f"{old}.md", f"{_NEW}.md")):
        written = rewritten(data, file, new_file, move)
        before, now = _meant(data, file, _BEFORE), _meant(written, new_file, after)
        wanted = [_NEW if each == old else each for each in before]
        assert now == wanted, (file, written)
        assert rewritten(written, new_file, new_file, Move(old, _NEW, after, after)) == written


def _meant(data: bytes, file: str, names: Names) -> list[str]:
    page = parse_page(file, "0" * 40, data, None)
    found = [names.page(link.paths, link.wiki) for link in getattr(page, "links", ())]
    return [each for each in found if each is not None]


class _Elements(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in _REFUSED
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in {"style", "src", "srcset", "action", "formaction", "ping", "target", "name"}
            if name == "href":
                assert _HREF.match(value or ""), value


def rendering(data: bytes) -> None:
    page = read(data)
    if page is None:
        return
    html = render(page, lambda target, wiki: _BEFORE.page(paths_of((target,), wiki, "dir/page.md"), wiki)).html
    storable(html)
    seen = _Elements()
    seen.feed(html)
    seen.close()
    assert "<!--" not in html


def slugs(text: str) -> None:
    assert validate_slug(propose_slug(text))
    try:
        assert validate_slug(text) == text
    except InvalidSlug as error:
        storable(str(error))


def page_paths(text: str) -> None:
    try:
        path = checked_path(text)
    except InvalidPage as error:
        storable(str(error))
        return
    assert path
    for file in files_of(path):
        if file.endswith(".md"):
            assert file in (path, f"{path}.md")
            assert page_path(file) in (path, file, path.removesuffix(".md"))
        try:
            require_name(file, _notebook()._pages)
        except InvalidPage as error:
            error.message.encode("utf-8", "backslashreplace")
        else:
            assert not {"", ".", ".."} & set(file.split("/"))
            storable(file)


def reading(text: str) -> None:
    """Whatever path is asked for, the answer is a page or an error in words; nothing outside the wiki is read."""
    source = _notebook()
    try:
        entry = source.find(text, source.head())
    except WikiholtError:
        return
    assert entry is None or text == "Home.md"


def signatures(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    cut = len(data) // 3
    body, secret, given = data[:cut], data[cut : 2 * cut].hex() or "s", data[2 * cut :]
    right = hmac.new(secret.encode(), body, sha256).hexdigest()
    names = (
        b"x-hub-signature-256",
        b"x-gitea-signature",
        b"x-forgejo-signature",
        b"x-gogs-signature",
        b"x-gitlab-token",
    )
    for name in names:
        value = bytes(byte for byte in given if byte not in b"\r\n\0").strip()
        request = HttpRequest({"type": "http", "headers": [(name, value)]})
        assert signed(request, right, secret) == (value in (secret.encode(), right.encode()))
    proper = HttpRequest({"type": "http", "headers": [(names[0], f"sha256={right}".encode())]})
    assert signed(proper, right, secret)
    assert not signed(HttpRequest({"type": "http", "headers": []}), right, secret)


def settings(text: str) -> None:
    for setting in (*SETTINGS, *WIKI_SETTINGS):
        for raw in (text, text.strip(), text[:3]):
            try:
                setting.parse(raw, "here")
            except InvalidSetting as error:
                error.message.encode("utf-8", "backslashreplace")
    for name in ("ignore", "hosts", "url", "interval", text[:20]):
        try:
            WikiSettings.parse({name: text})
        except InvalidSetting:
            continue


def settings_file(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "wikiholt.toml"
        key, _, value = text.partition(" ")
        for written in (text, f"{key} = {value}", f"[chunk]\ntarget_tokens = {text}", f"serve.hosts = {text}"):
            file.write_bytes(written.encode("utf-8", "surrogatepass"))
            try:
                load(Path(directory))
            except InvalidSetting as error:
                error.message.encode("utf-8", "backslashreplace")


def addresses(text: str) -> None:
    secret = "c0ffee5ecret"
    for address in (
        text,
        f"https://user:{secret}@{text}",
        f"https://{secret}@host/{text}",
        f"ssh://u:{secret}@h/{text}",
    ):
        is_remote(address)
        if not text[:1].isspace() and "://" not in text and "@" not in text and "/" not in text:
            assert secret not in shown(address), address


@cache
def _notebook() -> GitSource:
    from git_repository import Repository

    repository = Repository(Path(tempfile.mkdtemp(prefix="wikiholt-fuzz-")))
    repository.commit({"Home.md": "# Home\n\nkettle and lantern [[Home]]\n", "secret.txt": "not a page\n"})
    return GitSource(repository.path)


@cache
def _searched() -> "object":
    from git_repository import Repository
    from nasty_wiki import HEALTHY, QuickEmbedder

    from wikiholt.wiring import open_service

    place = Path(tempfile.mkdtemp(prefix="wikiholt-fuzz-"))
    repository = Repository(place / "wiki")
    repository.commit(
        {**HEALTHY, "odd.md": '# C++ and naïve 漢字かな\n\nfoo_bar camelCase a.b \'s "quoted text" -dash\n'}
    )
    service = open_service(place / "data")
    from dataclasses import replace

    embedder = QuickEmbedder()
    service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None)
    service.add("fuzz", str(repository.path), {})
    handle = service.wiki("fuzz")
    handle.sync()
    return handle


def searching(text: str) -> None:
    """Any text may be searched for, in any mode."""
    handle = _searched()
    for mode in Mode:
        try:
            answer = handle.search(Request(text, 3, mode))  # type: ignore[attr-defined]
        except InvalidQuery:
            continue
        assert not answer.degraded
        for hit in answer.hits:
            storable(hit.snippet.text)
            assert 0 <= hit.score <= 1


TARGETS = {
    "links": (links, "texts"),
    "rewriting": (rewriting, "links"),
    "rendering": (rendering, "data"),
    "slugs": (slugs, "texts"),
    "page_paths": (page_paths, "texts"),
    "reading": (reading, "texts"),
    "signatures": (signatures, "texts"),
    "settings": (settings, "texts"),
    "settings_file": (settings_file, "texts"),
    "addresses": (addresses, "texts"),
    "searching": (searching, "texts"),
}
