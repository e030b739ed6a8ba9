"""How a wiki is described to agents, so that one with several servers can choose: name, size and subjects."""

import re
from collections.abc import Iterable

from wikiholt.domain.search import Facet, PageFilter
from wikiholt.errors import WikiholtError
from wikiholt.wikis.session import WikiSession

_MAX_NAMES = 6
_MAIN_SHARE = 0.8
_PLAIN_NAME = re.compile(r"\w[\w &+.-]{0,23}")
"""Only such names are shown: writers of pages choose them, and a description must not carry their sentences."""


def describe_wiki(wiki: WikiSession) -> str:
    """One line, such as `handbook: 249 pages; folders: Benefits, Hiring; tags: pay, leave`."""
    slug, subject = wiki.wiki.slug, wiki.wiki.settings.get("description", "")
    try:
        with wiki.open_snapshot() as snapshot:
            facets = snapshot.pages.get_facets(PageFilter())
            folders = facets.folders
            if folders and folders[0].count > _MAIN_SHARE * facets.pages:  # everything is in `docs`
                folders = snapshot.pages.get_facets(PageFilter(path_prefix=folders[0].value)).folders or folders
    except WikiholtError:  # not indexed yet
        return f"{slug}: {subject}" if subject else slug
    parts = [f"{facets.pages:,} pages"]
    if subject:
        parts.append(subject)
    else:
        named = (("folders", folders), ("categories", facets.categories), ("tags", facets.tags))
        for label, values in named:
            names = _get_names(facet for facet in values if facet.count > facets.pages // 100)
            parts += [f"{label}: {', '.join(names)}"] if names else []
    return f"{slug}: {'; '.join(parts)}"


def _get_names(facets: Iterable[Facet]) -> list[str]:
    """The most frequent values that are plain names."""
    names = (facet.value.rpartition("/")[2] for facet in facets)
    return [name for name in names if _PLAIN_NAME.fullmatch(name)][:_MAX_NAMES]
