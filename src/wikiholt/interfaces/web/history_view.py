"""The history of a page and the changes of one commit. Needs no script."""

from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from wikiholt.domain.git import Commit
from wikiholt.domain.wiki import Scope
from wikiholt.errors import PageNotFound, WikiholtError
from wikiholt.interfaces.http.request_context import RequestContext
from wikiholt.interfaces.web.line_diff import render_changes
from wikiholt.interfaces.web.page_frame import PageContext, render_page, render_view_error
from wikiholt.interfaces.web.page_view import render_crumbs, render_page_link
from wikiholt.interfaces.web.result_view import render_form
from wikiholt.wikis.session import WikiSession

_MAX_COMMITS = 100


def handle_history(request: Request) -> Response:
    """Render the commits that changed a page, newest first."""
    try:
        wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
        path = request.query_params.get("page", "")
        commits = wiki.handle.pages.read_history(path, _MAX_COMMITS)
    except WikiholtError as error:
        return render_view_error(request, error, render_form())
    items = "".join(f"<li>{_render_commit(path, commit)}</li>" for commit in commits)
    more = '<p class="hint">These are the latest 100 changes.</p>' if len(commits) == _MAX_COMMITS else ""
    return _render_history_page(request, path, "History", f'<ol class="commits">{items}</ol>{more}')


def handle_diff(request: Request) -> Response:
    """Render what one commit changed on a page; by default the latest."""
    path, revision = request.query_params.get("page", ""), request.query_params.get("revision", "")
    try:
        wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
        commits = wiki.handle.pages.read_history(path, _MAX_COMMITS)
        position = _find_commit(commits, revision)
        new, old = (_read_version(wiki, path, commits[index : index + 1]) for index in (position, position + 1))
    except WikiholtError as error:
        return render_view_error(request, error, render_form())
    main = f"<p>{_render_commit(path, commits[position])}</p>{render_changes(old, new)}"
    return _render_history_page(request, path, "Changes", main)


def _find_commit(commits: Sequence[Commit], revision: str) -> int:
    for position, commit in enumerate(commits):
        if commit.revision.startswith(revision):
            return position
    raise PageNotFound("This commit did not change the page.", hint="The history lists the commits that did.")


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
    heading = f"<h1>{title}: {render_page_link('read', path, name)}</h1>"
    main = f'<main id="app.main" class="plain">{render_form()}{render_crumbs(path)}{heading}{content}</main>'
    return render_page("plain", PageContext.from_request(request), main, current="search", title=f"{title}: {name}")


def _render_commit(path: str, commit: Commit) -> str:
    date = f'<time datetime="{commit.date.isoformat()}">{commit.date.date().isoformat()}</time>'
    subject = commit.message.partition("\n")[0] or "No message"
    href = "diff?" + urlencode({"page": path, "revision": commit.revision[:12]})
    return (
        f'<a class="message-line" href="{escape(href)}">{escape(subject)}</a>'
        f'<span class="facts"><span>{escape(commit.author)}</span>{date}'
        f"<code>{commit.revision[:10]}</code></span>"
    )
