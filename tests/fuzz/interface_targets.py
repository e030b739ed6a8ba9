"""Fuzz targets of interfaces: links, rendering, slugs, page paths, signatures, settings, addresses, searches."""

import hmac
import re
import tempfile
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

from starlette.requests import Request as HttpRequest

from tests.fuzz.fuzz_texts import PATHS
from tests.fuzz.text_targets import assert_storable, parse_data
from wikiholt.api.settings.definitions import SETTINGS, WIKI_SETTINGS, WikiSettings
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchMode
from wikiholt.domain.slugs import propose_slug, validate_slug
from wikiholt.errors import InvalidPage, InvalidQuery, InvalidSetting, InvalidSlug, WikiholtError
from wikiholt.git.remote_url import is_remote, redact_url
from wikiholt.git.source import GitSource
from wikiholt.git.tree_editor import validate_page_file
from wikiholt.interfaces.http.webhook import is_signed
from wikiholt.interfaces.web.renderer import render_markdown
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, fold_path, resolve_link_paths
from wikiholt.text.page_names import get_page_path
from wikiholt.text.page_parser import parse_page
from wikiholt.wikis.pages.page_reader import get_candidate_files, validate_path

_NEW_PATH = "moved/New place"
_PAGE_NAMES = PageNameIndex(PATHS)
_FORBIDDEN_TAGS = {
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
_FILE = re.compile(r"files/(?!\.{0,2}(?:/|\Z))(?!.*/\.{0,2}(?:/|\Z))")
"""A file of the wiki: no part of its path is empty or leads elsewhere."""
_HREF = re.compile(r"(?:https?:|mailto:|\?page=|#)|\Z", re.IGNORECASE)


def check_links(text: str) -> None:
    for wiki in (True, False):
        for path in resolve_link_paths((text, text[::-1]) if wiki else (text,), wiki, "dir/page.md"):
            assert path
            assert not {"", ".", ".."} & set(path.split("/"))
            assert "\0" not in path
            assert _PAGE_NAMES.find_page((path,), wiki) in (None, *PATHS)
    assert fold_path(text) == fold_path(text.upper()) or text.upper().casefold() != text.casefold()


def check_link_rewrite(text: str) -> None:
    """After a page is renamed, every link points to the same page as before."""
    data = text.encode("utf-8", "surrogatepass")
    old = "guides/restore"
    after = PageNameIndex([*(path for path in PATHS if path != old), _NEW_PATH])
    move = PageMove(old, _NEW_PATH, _PAGE_NAMES, after)
    for file, new_file in (("Home.md", "Home.md"), (f"{old}.md", f"{_NEW_PATH}.md")):
        written = rewrite_links(data, file, new_file, move)
        before, now = _resolve_links(data, file, _PAGE_NAMES), _resolve_links(written, new_file, after)
        expected = [_NEW_PATH if path == old else path for path in before]
        assert now == expected, (file, written)
        assert rewrite_links(written, new_file, new_file, PageMove(old, _NEW_PATH, after, after)) == written


def _resolve_links(data: bytes, file: str, names: PageNameIndex) -> list[str]:
    page = parse_page(file, "0" * 40, data, None)
    found = [names.find_page(link.paths, link.wiki) for link in getattr(page, "links", ())]
    return [path for path in found if path is not None]


class _ElementChecker(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in _FORBIDDEN_TAGS
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in {"style", "srcset", "action", "formaction", "ping", "target", "name"}
            if name == "src":
                assert tag == "img"
                assert _FILE.match(value or ""), value
            if name == "href":
                assert _HREF.match(value or "") or _FILE.match(value or ""), value


def check_rendering(data: bytes) -> None:
    page = parse_data(data)
    if page is None:
        return
    html = render_markdown(
        page, lambda target, wiki: _PAGE_NAMES.find_page(resolve_link_paths((target,), wiki, "dir/page.md"), wiki)
    ).html
    assert_storable(html)
    checker = _ElementChecker()
    checker.feed(html)
    checker.close()
    assert "<!--" not in html


def check_slugs(text: str) -> None:
    assert validate_slug(propose_slug(text))
    try:
        assert validate_slug(text) == text
    except InvalidSlug as error:
        assert_storable(str(error))


def check_page_paths(text: str) -> None:
    try:
        path = validate_path(text)
    except InvalidPage as error:
        assert_storable(str(error))
        return
    assert path
    for file in get_candidate_files(path):
        if file.endswith(".md"):
            assert file in (path, f"{path}.md")
            assert get_page_path(file) in (path, file, path.removesuffix(".md"))
        try:
            validate_page_file(file, _open_source()._page_files)
        except InvalidPage as error:
            error.message.encode("utf-8", "backslashreplace")
        else:
            assert not {"", ".", ".."} & set(file.split("/"))
            assert_storable(file)


def check_reading(text: str) -> None:
    """Any path returns a page or an error with a message; nothing outside the wiki is read."""
    source = _open_source()
    try:
        entry = source.find_file(text, source.get_head())
    except WikiholtError:
        return
    assert entry is None or text == "Home.md"


def check_signatures(text: str) -> None:
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
        assert is_signed(request, right, secret) == (value in (secret.encode(), right.encode()))
    proper = HttpRequest({"type": "http", "headers": [(names[0], f"sha256={right}".encode())]})
    assert is_signed(proper, right, secret)
    assert not is_signed(HttpRequest({"type": "http", "headers": []}), right, secret)


def check_settings(text: str) -> None:
    for setting in (*SETTINGS.values(), *WIKI_SETTINGS.values()):
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


def check_settings_file(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "wikiholt.toml"
        key, _, value = text.partition(" ")
        for written in (text, f"{key} = {value}", f"[chunk]\ntarget_tokens = {text}", f"serve.hosts = {text}"):
            file.write_bytes(written.encode("utf-8", "surrogatepass"))
            try:
                load_settings(Path(directory))
            except InvalidSetting as error:
                error.message.encode("utf-8", "backslashreplace")


def check_addresses(text: str) -> None:
    secret = "c0ffee5ecret"
    for address in (
        text,
        f"https://user:{secret}@{text}",
        f"https://{secret}@host/{text}",
        f"ssh://u:{secret}@h/{text}",
    ):
        is_remote(address)
        if not text[:1].isspace() and "://" not in text and "@" not in text and "/" not in text:
            assert secret not in redact_url(address), address


@cache
def _open_source() -> GitSource:
    from tests.support.git_repository import Repository

    repository = Repository(Path(tempfile.mkdtemp(prefix="wikiholt-fuzz-")))
    repository.commit({"Home.md": "# Home\n\nkettle and lantern [[Home]]\n", "secret.conf": "not a page\n"})
    return GitSource(repository.path)


@cache
def _open_wiki() -> "object":
    from tests.malformed.malformed_wiki import HEALTHY_PAGES
    from tests.support.git_repository import Repository
    from wikiholt.api.bootstrap import open_service

    directory = Path(tempfile.mkdtemp(prefix="wikiholt-fuzz-"))
    repository = Repository(directory / "wiki")
    repository.commit(
        {**HEALTHY_PAGES, "odd.md": '# C++ and naïve 漢字かな\n\nfoo_bar camelCase a.b \'s "quoted text" -dash\n'}
    )
    service = open_service(directory / "data")
    from dataclasses import replace

    embedder = FakeEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    service.add("fuzz", str(repository.path), {})
    handle = service.get_handle("fuzz")
    handle.sync()
    return handle


def check_search(text: str) -> None:
    """Any text can be searched for in any mode."""
    handle = _open_wiki()
    for mode in SearchMode:
        try:
            answer = handle.search(SearchRequest(text, 3, mode))  # type: ignore[attr-defined]
        except InvalidQuery:
            continue
        assert not answer.degraded
        for hit in answer.hits:
            assert_storable(hit.snippet.text)
            assert 0 <= hit.score <= 1


TARGETS = {
    "links": (check_links, "texts"),
    "rewriting": (check_link_rewrite, "links"),
    "rendering": (check_rendering, "data"),
    "slugs": (check_slugs, "texts"),
    "page_paths": (check_page_paths, "texts"),
    "reading": (check_reading, "texts"),
    "signatures": (check_signatures, "texts"),
    "settings": (check_settings, "texts"),
    "settings_file": (check_settings_file, "texts"),
    "addresses": (check_addresses, "texts"),
    "searching": (check_search, "texts"),
}
