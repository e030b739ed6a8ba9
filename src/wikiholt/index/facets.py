"""Facets: how many pages have each category, tag, folder and value of a property."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from wikiholt.domain.page import Facets
from wikiholt.domain.search import ALL_PROPERTIES, Facet, PropertyFacets
from wikiholt.index.rows import Row, decode_strings, translate_damage
from wikiholt.text.properties import fold_property_name, fold_tag


def count_groups(pages: Iterable[tuple[str, str | None, Sequence[str]]], prefix: str) -> Facets:
    """The facets of pages without properties, given as (path, category, tags); folders are directly below `prefix`."""
    start = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    count, categories, tags, folders = 0, Counter[str](), Counter[str](), Counter[str]()
    for path, category, page_tags in pages:
        count += 1
        if category is not None:
            categories[category] += 1
        # A page counts once for a tag that it has in two spellings.
        tags.update({fold_tag(tag): tag for tag in page_tags}.values())
        folder, slash, _ = path[len(start) :].partition("/") if path.startswith(start) else ("", "", "")
        if slash:
            folders[start + folder] += 1
    return Facets(count, _merge_spellings(categories), _merge_spellings(tags, fold_tag), _sort_facets(folders.items()))


def count_facets(pages: Iterable[Row], properties: Sequence[str], prefix: str) -> Facets:
    """The facets of pages, given as (path, category, encoded tags, encoded properties)."""
    rows = list(pages)
    groups = count_groups(((path, category, decode_strings(tags)) for path, category, tags, _ in rows), prefix)
    values = _count_property_values([row[3] for row in rows], properties) if properties else ()
    return replace(groups, properties=values)


@translate_damage
def _count_property_values(encoded: Iterable[str], names: Sequence[str]) -> tuple[PropertyFacets, ...]:
    """The facets of these properties, from the column `properties` of pages."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for text in encoded:
        properties = json.loads(text)
        for name, spellings in counts.items():
            if name == ALL_PROPERTIES:
                spellings.update(properties.keys())
                continue
            kinds = properties.get(fold_property_name(name), {"t": (), "s": ()})
            # A page counts once for a value that it has twice.
            spellings.update(dict(zip(kinds["t"], kinds["s"], strict=True)).values())
    return tuple(PropertyFacets(name, _merge_spellings(counts[name])) for name in counts)


def _merge_spellings(counts: Counter[str], fold: Callable[[str], str] = str.casefold) -> tuple[Facet, ...]:
    """Merge values that filters do not tell apart under their most frequent spelling."""
    spellings: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for value, count in counts.items():
        spellings[fold(value)].append((-count, value))
    return _sort_facets((min(same)[1], -sum(count for count, _ in same)) for same in spellings.values())


def _sort_facets(counts: Iterable[tuple[str, int]]) -> tuple[Facet, ...]:
    return tuple(Facet(value, count) for value, count in sorted(counts, key=lambda item: (-item[1], item[0])))
