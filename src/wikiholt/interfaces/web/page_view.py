"""Pages at their own addresses: the page with contents, backlinks and similar pages; its source, history and files.

They need no script.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from wikiholt.domain.git import Commit
from wikiholt.domain.wiki import Scope
from wikiholt.errors import PageNotFound, WikiholtError
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, matches_etag
from wikiholt.interfaces.web.browse_view import load_folder_of_page, render_crumbs, render_neighbours, render_tree
from wikiholt.interfaces.web.page_frame import PageContext, render_page, render_view_error
from wikiholt.interfaces.web.preview import PreviewDocument, build_preview_document
from wikiholt.interfaces.web.renderer import render_changes
from wikiholt.interfaces.web.search_view import render_form
from wikiholt.text.page_names import is_document
from wikiholt.wikis.session import WikiSession

_FIRST_TITLE = re.compile(r'\s*<h1(?: id="([^"]*)")?>(.*?)</h1>\s*', re.DOTALL)
_NO_TEXT = '<p class="hint">This page has no text.</p>'
_MIN_HEADINGS = 3
"""Pages with fewer headings have no table of contents."""
_MAX_SIMILAR = 5
_MAX_BACKLINKS = 50
_MAX_COMMITS = 100
PDF_MEDIA_TYPE = "application/pdf"
_SHOWN_MEDIA_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml", PDF_MEDIA_TYPE}
)
"""Media types that a browser may show. All other files are downloads."""
_SANDBOX_CSP = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
"""Nothing runs and nothing is loaded if a file, such as an SVG image, is opened directly."""
_PDF_CSP = "default-src 'none'; style-src 'unsafe-inline'; object-src 'self'; frame-ancestors 'none'"
"""A browser shows a PDF in its own viewer, which does not work in a sandbox."""


def _make_handler(view: Callable[[Request, WikiSession], Response]) -> Callable[[Request], Response]:
    """The handler of a view, which gets the wiki of the request. Its errors are shown in the frame of the page."""

    def handle(request: Request) -> Response:
        try:
            return view(request, get_request_context(request).open_wiki(Scope.READ))
        except WikiholtError as error:
            return render_view_error(request, error, render_form(request.query_params.get("q", "")))

    return handle


@_make_handler
def handle_page(request: Request, wiki: WikiSession) -> Response:
    """Render one page. The parameter `q` is the query whose words are marked."""
    query = request.query_params.get("q", "")
    content = wiki.handle.pages.read(request.query_params.get("page", ""))
    page = build_preview_document(wiki, content, query)
    contents, related = _render_contents(page), "".join(_render_related(wiki, page))
    folder = load_folder_of_page(wiki, page["path"])
    neighbours = render_neighbours(folder, page["path"])
    kind = " data-document" if is_document(page["file"]) else ""
    main = (
        f'<main id="app.main" class="read">{render_form(query)}{render_tree(folder, page["path"])}'
        f'<article class="document" data-page="{escape(page["path"])}" data-revision="{page["revision"]}"{kind}>'
        f"{_render_text(page, folder.path, contents)}{neighbours}{related}</article></main>"
    )
    return render_page("plain", PageContext.from_request(request), main, current="browse", title=page["name"])


@_make_handler
def handle_source(request: Request, wiki: WikiSession) -> Response:
    """The Markdown of a page as plain text."""
    content = wiki.handle.pages.read(request.query_params.get("page", ""))
    headers = {"Content-Security-Policy": _SANDBOX_CSP, "Cache-Control": "no-cache"}
    return Response(content.content, 200, headers, media_type="text/plain")


def handle_file(request: Request) -> Response:
    """A file of the wiki: an image to show, or a download."""
    wiki = get_request_context(request).open_wiki(Scope.READ)
    file = wiki.handle.pages.read_file(request.path_params["path"])
    is_shown = file.media_type in _SHOWN_MEDIA_TYPES
    headers = {
        "Cache-Control": PRIVATE_CACHE_CONTROL,
        "Content-Security-Policy": _PDF_CSP if file.media_type == PDF_MEDIA_TYPE else _SANDBOX_CSP,
        "ETag": f'"{file.blob}"',
    }
    if matches_etag(request.headers.get("if-none-match", ""), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    disposition = "inline" if is_shown else "attachment"
    headers["Content-Disposition"] = f"{disposition}; filename*=UTF-8''{quote(file.name, safe='')}"
    return Response(file.data, 200, headers, media_type=file.media_type if is_shown else "application/octet-stream")


def _render_page_link(view: str, path: str, text: str) -> str:
    """Render a link to a view of a page."""
    return f'<a href="{view}?page={quote(path)}">{escape(text)}</a>'


def _render_text(page: PreviewDocument, folder: str, contents: str) -> str:
    """Render the way to the folder, the title, the facts, the links, the table of contents and the text of a page."""
    title = None if _has_several_titles(page) else _FIRST_TITLE.match(page["html"])
    body = (page["html"][title.end() :] if title else page["html"]).strip()
    anchor = f' id="{title[1]}"' if title and title[1] else ""
    heading = f"<h1{anchor}>{title[2] if title else escape(page['name'])}</h1>"
    cut = (
        '<p class="note">This page is long and is truncated here. The source has all of it.</p>' if page["cut"] else ""
    )
    crumbs = render_crumbs(f"{folder}/." if folder else ".")
    return (
        f"<header>{crumbs}{heading}{_render_facts(page)}{_render_actions(page)}</header>{contents}"
        f'<div class="page" dir="auto">{body or _NO_TEXT}</div>{cut}'
    )


def _has_several_titles(page: PreviewDocument) -> bool:
    """Whether the headings of level 1 are sections, so that none of them is the title."""
    return sum(heading["level"] == 1 for heading in page["headings"]) > 1


def _render_facts(page: PreviewDocument) -> str:
    updated = page["last_updated"]
    date = f'<time datetime="{escape(updated)}">{escape(updated[:10])}</time>' if updated else ""
    # The link to the folder above the title says the same.
    folder = page["path"].rpartition("/")[0].rpartition("/")[2]
    has_category = page["category"] and page["category"].casefold() != folder.casefold()
    category = f"<span>{escape(page['category'] or '')}</span>" if has_category else ""
    links = (f'<a class="tag" href="./?{urlencode({"tag": tag})}">{escape(tag)}</a>' for tag in page["tags"])
    tags = f'<span class="tags">{"".join(links)}</span>' if page["tags"] else ""
    return f'<p class="facts">{category}{date}{tags}</p>' if category or date or tags else ""


def _render_actions(page: PreviewDocument) -> str:
    links = [_render_page_link("history", page["path"], "History"), _render_page_link("source", page["path"], "Source")]
    if is_document(page["file"]):
        links = [f'<a href="files/{quote(page["path"])}">Original</a>', links[0]]
    for address, text in ((page["edit_url"], "Edit"), (page["url"], "Open in the wiki")):
        if address.startswith(("http://", "https://")):
            links.append(f'<a href="{escape(address)}" rel="noopener">{text}</a>')
    return f'<p class="page-actions">{"".join(links)}</p>'


def _render_contents(page: PreviewDocument) -> str:
    levels = (1, 2, 3) if _has_several_titles(page) else (2, 3)
    headings = [heading for heading in page["headings"] if heading["level"] in levels and heading["anchor"]]
    if len(headings) < _MIN_HEADINGS:
        return ""
    items = (
        f'<li class="level{heading["level"]}"><a href="#{quote(heading["anchor"])}">{escape(heading["text"])}</a></li>'
        for heading in headings
    )
    return (
        '<nav class="contents" aria-label="On this page"><details open><summary>On this page</summary>'
        f"<ul>{''.join(items)}</ul></details></nav>"
    )


def _render_related(wiki: WikiSession, page: PreviewDocument) -> Iterator[str]:
    """Render the attachments, backlinks and similar pages. What the index cannot tell is left out."""
    path = page["path"]
    attachments = wiki.handle.pages.list_attachments(path).files
    links = (
        f'<a href="files/{quote(attachment.file)}">{escape(attachment.filename)}</a>' for attachment in attachments
    )
    backlinks = (_render_page_link("read", ref["path"], ref["name"]) for ref in page["linked_from"][:_MAX_BACKLINKS])
    similar: list[str] = []
    with suppress(WikiholtError):
        hits = wiki.handle.find_similar(path, _MAX_SIMILAR).hits
        similar = [_render_page_link("read", hit.path, hit.name) for hit in hits]
    yield '<footer class="related">'
    yield _render_list("Attachments", links)
    yield _render_list("Linked from", backlinks)
    yield _render_list("Similar pages", similar)
    yield "</footer>"


def _render_list(title: str, links: Iterable[str]) -> str:
    items = "".join(f"<li>{link}</li>" for link in links)
    return f"<section><h2>{title}</h2><ul>{items}</ul></section>" if items else ""


# The history of a page and the changes of one commit


@_make_handler
def handle_history(request: Request, wiki: WikiSession) -> Response:
    """Render the commits that changed a page, newest first."""
    path = request.query_params.get("page", "")
    commits = wiki.handle.pages.read_history(path, _MAX_COMMITS)
    items = "".join(f"<li>{_render_commit(path, commit)}</li>" for commit in commits)
    more = '<p class="hint">These are the latest 100 changes.</p>' if len(commits) == _MAX_COMMITS else ""
    return _render_history_page(request, path, "History", f'<ol class="commits">{items}</ol>{more}')


@_make_handler
def handle_diff(request: Request, wiki: WikiSession) -> Response:
    """Render what one commit changed on a page; by default the latest."""
    path, revision = request.query_params.get("page", ""), request.query_params.get("revision", "")
    commits = wiki.handle.pages.read_history(path, _MAX_COMMITS)
    position = next((at for at, commit in enumerate(commits) if commit.revision.startswith(revision)), None)
    if position is None:
        raise PageNotFound("This commit did not change the page.", hint="The history lists the commits that did.")
    new, old = (_read_version(wiki, path, commits[index : index + 1]) for index in (position, position + 1))
    main = f"<p>{_render_commit(path, commits[position])}</p>{render_changes(old, new)}"
    return _render_history_page(request, path, "Changes", main)


def _read_version(wiki: WikiSession, path: str, commits: Sequence[Commit]) -> str:
    """The page at the first commit; empty if the page did not exist. Raises PageNotFound for a former name."""
    try:
        return wiki.handle.pages.read(path, commits[0].revision).content if commits else ""
    except PageNotFound as error:
        if error.current_path:
            raise
        return ""


def _render_history_page(request: Request, path: str, title: str, content: str) -> Response:
    name = path.rpartition("/")[2]
    heading = f"<h1>{title}: {_render_page_link('read', path, name)}</h1>"
    main = f'<main id="app.main" class="plain">{render_form()}{render_crumbs(path)}{heading}{content}</main>'
    return render_page("plain", PageContext.from_request(request), main, current="browse", title=f"{title}: {name}")


def _render_commit(path: str, commit: Commit) -> str:
    date = f'<time datetime="{commit.date.isoformat()}">{commit.date.date().isoformat()}</time>'
    subject = commit.message.partition("\n")[0] or "No message"
    href = "diff?" + urlencode({"page": path, "revision": commit.revision[:12]})
    return (
        f'<a class="message-line" href="{escape(href)}">{escape(subject)}</a>'
        f'<span class="facts"><span>{escape(commit.author)}</span>{date}'
        f"<code>{commit.revision[:10]}</code></span>"
    )
