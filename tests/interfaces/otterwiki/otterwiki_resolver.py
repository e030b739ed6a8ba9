"""Answers, in a process of its own, which file Otterwiki opens for each link of a text; one JSON line per question."""

import json
import sys
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup
from otterwiki.plugins import plugin_manager

plugin_manager.unregister(name="wikiholt")

from otterwiki.server import app, app_renderer  # noqa: E402
from otterwiki.wiki import Page  # noqa: E402

_ORIGIN = "http://wiki.example"


def find_opened_files(text: str, page_url: str) -> list[str | None]:
    """The file that each link of the text opens, or None for a link to another site or to no page."""
    html = app_renderer.markdown(text)[0]
    return [open_url(urljoin(_ORIGIN + page_url, link["href"])) for link in BeautifulSoup(html, "html.parser")("a")]


def open_url(url: str) -> str | None:
    parts = urlsplit(url)
    path = unquote(parts.path).strip("/")
    if f"{parts.scheme}://{parts.netloc}" != _ORIGIN or not path:
        return None
    try:
        page = Page(path)
    except IndexError:  # Otterwiki fails if no name is left
        return None
    return page.filename if page.pagepath else None


if __name__ == "__main__":
    for line in sys.stdin:
        question = json.loads(line)
        app.config.update(question["config"])
        with app.test_request_context("/"):
            sys.stdout.write(json.dumps(find_opened_files(question["text"], question["page_url"])) + "\n")
            sys.stdout.flush()
