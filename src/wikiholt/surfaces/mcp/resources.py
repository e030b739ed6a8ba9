"""Pages as resources: listed, read by their address, and their paths completed."""

import re
from collections.abc import Sequence
from urllib.parse import parse_qs, quote, unquote

from mcp_types import Completion, Resource, ResourceTemplate, TextResourceContents

from wikiholt.errors import InvalidPage, InvalidQuery, TooLarge
from wikiholt.model import Filter
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.mcp.answers import NOTICE

SCHEME = "wiki://page/"
TEMPLATE = f"{SCHEME}{{+path}}{{?revision}}"
_MARKDOWN = "text/markdown"
_A_PAGE = 100
_MOST_COMPLETIONS = 100
_LOOKED_AT = 5000
_LARGEST = 1_000_000
_META = {"wikiholt/notice": NOTICE}


def templates() -> list[ResourceTemplate]:
    return [
        ResourceTemplate(
            name="page",
            title="A page of the wiki",
            uri_template=TEMPLATE,
            description=f"A page by its path, as it is or as it was at a revision. {NOTICE}",
            mime_type=_MARKDOWN,
        )
    ]


def listed(wiki: OpenWiki, cursor: str | None) -> tuple[list[Resource], str | None]:
    """Some of the pages by path, and the cursor of the next ones."""
    offset = _offset(cursor)
    with wiki.answering() as handle:
        found = handle.contents.list(Filter(), _A_PAGE, offset)
    resources = [
        Resource(
            name=wiki.names.shown(page.path),
            title=wiki.names.titled(page.name, page.path),
            uri=address(wiki.names.shown(page.path)),
            mime_type=_MARKDOWN,
        )
        for page in found.pages
    ]
    done = offset + len(resources)
    return resources, f"from-{done}" if resources and done < found.total else None


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    found = re.fullmatch(r"from-([0-9]{1,9})", cursor)
    if found is None:
        raise InvalidQuery("That is no cursor of this list.", hint="Begin without one.")
    return int(found[1])


def address(path: str) -> str:
    return f"{SCHEME}{quote(path)}"


def read(wiki: OpenWiki, uri: str) -> TextResourceContents:
    path, revision = _meant(uri)
    page = wiki.handle.contents.read(wiki.names.meant(path), revision)
    if len(page.content) > _LARGEST:
        raise TooLarge(
            f"The page has {len(page.content):,} characters.", hint="Read it in parts with the tool read_page."
        )
    return TextResourceContents(
        uri=uri, mime_type=_MARKDOWN, text=page.content, _meta={**_META, "wikiholt/revision": page.revision}
    )


def _meant(uri: str) -> tuple[str, str | None]:
    """Path and revision that an address names; raises InvalidPage."""
    if not uri.startswith(SCHEME) or "#" in uri:
        raise InvalidPage("That is no address of a page.", hint=f"Addresses are {TEMPLATE}.")
    named, _, query = uri.removeprefix(SCHEME).partition("?")
    values = parse_qs(query, keep_blank_values=True) if query else {}
    revision = values.pop("revision", [""])[0] or None
    if values or (revision and not re.fullmatch(r"[0-9a-fA-F]{7,64}", revision)):
        raise InvalidPage("That is no address of a page.", hint=f"Addresses are {TEMPLATE}.")
    return unquote(named), revision


def completed(wiki: OpenWiki, name: str, value: str, path: str | None) -> Completion:
    """What an argument of the template may go on as: paths that begin with it, then paths that hold it."""
    if name == "revision":
        if not path:
            return Completion(values=[])
        commits = wiki.handle.contents.history(wiki.names.meant(path), _MOST_COMPLETIONS)
        return _some([each.revision for each in commits if each.revision.startswith(value.lower())])
    if name != "path":
        return Completion(values=[])
    with wiki.answering() as handle:
        pages = handle.contents.list(Filter(), _LOOKED_AT).pages
    wanted = value.casefold()
    paths = [wiki.names.shown(page.path) for page in pages]
    first = [each for each in paths if each.casefold().startswith(wanted)]
    return _some([*first, *(each for each in paths if wanted in each.casefold() and each not in set(first))])


def topics(wiki: OpenWiki, value: str) -> Completion:
    """Categories and tags that begin with this."""
    with wiki.answering() as handle:
        facets = handle.contents.facets(Filter())
    known = dict.fromkeys(each.value for each in (*facets.categories, *facets.tags))
    return _some([each for each in known if each.casefold().startswith(value.casefold())])


def _some(values: Sequence[str]) -> Completion:
    more = len(values) > _MOST_COMPLETIONS
    return Completion(values=list(values[:_MOST_COMPLETIONS]), total=len(values), has_more=more)
