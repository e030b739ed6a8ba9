"""Search by words in wikis of several languages, and by parts of German compounds.

    python -m bench.languages [--questions 100] [--write]

XQuAD has the same paragraphs and questions in each language. A paragraph is a page without a title. *Mixed* is one wiki
with the paragraphs of four languages; a question in one of them has one right page. *German* is a wiki in one language.
Its compounds are nouns that end with another noun after a known word: a query is the last or the first word of a
compound, alone or before the next noun of the text, and the pages that have the compound and not this word are right
(pages with a form of the word itself come first and are not counted); or it is a compound, and its pages are right (2), as are
those that have both words and not the compound (1). The wiki is indexed as English (what it was without a
setting), with `language=auto`, and with its languages set. Questions about articles with even numbers are for choosing;
the tables use the others. Nothing is embedded.
"""

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import Stemmer

from bench import collections
from bench.multilingual import LANGUAGES, LanguageCollection, is_measured
from bench.quality import make_search, run_queries
from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.wikis.handle import WikiHandle

MIXED = ("en", "de", "es", "ru")
OTHERS = ("en", "ru", "tr")
LINKS = ("", "s", "es", "n", "en", "er", "e")
WORD = re.compile(r"[^\W\d_]{4,}")
Relevant = Mapping[str, Mapping[str, int]]


def main() -> None:
    parser = make_parser(__doc__, "languages", "collections")
    parser.add_argument("--questions", type=int, default=100, help="limit per language")
    parser.add_argument("--choose", action="store_true", help="only German, with the questions for choosing")
    arguments = parser.parse_args()
    read = {code: LanguageCollection.read(arguments.collections, code) for code in {*MIXED, *OTHERS}}
    lines: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = open_service(directory / "data")
        stack.callback(service.close)

        def open_wikis(name: str, pages: dict[str, str], **settings: dict[str, str]) -> list[WikiHandle]:
            collections.write_pages(pages, directory / name)
            handles = []
            for label, values in settings.items():
                service.add(f"{name}-{label}", str(directory / name), values)
                handles.append(service.get_handle(f"{name}-{label}"))
                handles[-1].sync(words_only=True)
                handles[-1].wait_for_caches(60)
            return handles

        measured = not arguments.choose
        pages = {f"{code}/{path}": text for code in MIXED for path, text in read[code].make_pages().items()}
        named = {"language": "english", "languages": "german,russian,spanish"}
        wikis = open_wikis("mixed", pages, english={"language": "english"}, auto={}, named=named) if measured else []
        lines += ["## Mixed\n", make_head("| questions | number | english | auto | languages set |")]
        for code in MIXED if measured else ():
            asked = read[code].get_questions(arguments.questions, measured=measured)
            relevant = {each.id: {f"{code}/{path}": 1 for path in each.relevant} for each in asked}
            lines.append(format_row(code, {each.id: each.text for each in asked}, relevant, wikis))
        lines += ["\n## One language\n", make_head("| questions | number | english | auto | language set |")]
        for code in OTHERS if measured else ():
            own = {"language": LANGUAGES[code]}
            one = open_wikis(code, read[code].make_pages(), english={"language": "english"}, auto={}, named=own)
            asked = read[code].get_questions(arguments.questions, measured=measured)
            relevant = {each.id: each.relevant for each in asked}
            lines.append(format_row(code, {each.id: each.text for each in asked}, relevant, one))
        own = {"language": "german"}
        wikis = open_wikis("de", read["de"].make_pages(), english={"language": "english"}, auto={}, named=own)
        asked = read["de"].get_questions(arguments.questions, measured=measured)
        relevant = {each.id: each.relevant for each in asked}
        lines.append(format_row("de", {each.id: each.text for each in asked}, relevant, wikis))
        for kind, (found, excluded) in find_compound_queries(read["de"].texts, measured=measured).items():
            lines.append(format_row(kind, {query: query for query in found}, found, wikis, excluded))
    publish("languages", __doc__, lines, write=arguments.write)


def format_row(
    name: str,
    texts: Mapping[str, str],
    relevant: Relevant,
    wikis: Sequence[WikiHandle],
    excluded: Mapping[str, set[str]] | None = None,
) -> str:
    ways = [make_search(str(number), wiki, SearchMode.KEYWORD) for number, wiki in enumerate(wikis)]
    queries = collections.Queries("xquad", "", dict(texts), {key: dict(value) for key, value in relevant.items()}, {})
    queries = replace(queries, exclude=dict(excluded or {}))
    metrics = [run.compute_metrics() for run in run_queries(queries, ways)]
    cells = [f"{each['success@1'].mean:.3f}, {each['ndcg@10'].mean:.3f}" for each in metrics]
    return f"| {name} | {len(texts)} | {' | '.join(cells)} |"


def find_compound_queries(
    texts: Sequence[str], *, measured: bool
) -> dict[str, tuple[dict[str, dict[str, int]], dict[str, set[str]]]]:
    """Queries with their right pages and the pages that are not counted, by kind."""
    pages: defaultdict[str, set[int]] = defaultdict(set)
    spelled: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for number, text in enumerate(texts):
        for word in WORD.findall(text):
            pages[word.casefold()].add(number)
            spelled[word.casefold()][word[0].isupper()] += 1
    stem = Stemmer.Stemmer("german").stemWord
    by_stem: defaultdict[str, set[int]] = defaultdict(set)
    for word, numbers in pages.items():
        by_stem[stem(word)] |= numbers
    nouns = {word for word, counts in spelled.items() if counts[True] > counts[False]}
    kinds = ("last part", "first part", "last part, with a word", "first part, with a word", "compound")
    found: dict[str, dict[str, dict[str, int]]] = {kind: {} for kind in kinds}
    excluded: dict[str, dict[str, set[str]]] = {kind: {} for kind in kinds}
    for compound, first, last in _iter_compounds(nouns, pages):
        own = pages[compound]
        for kind, part in (("last part", last), ("first part", first)):
            exact = {str(number) for number in by_stem[stem(part)]}
            for number in own - by_stem[stem(part)]:
                if is_measured(number) != measured:
                    continue
                found[kind].setdefault(part.capitalize(), {})[str(number)] = 1
                excluded[kind][part.capitalize()] = exact
                if other := _find_next_noun(texts[number], compound, nouns):
                    query = f"{part.capitalize()} {other} "
                    found[f"{kind}, with a word"].setdefault(query, {})[str(number)] = 1
                    excluded[f"{kind}, with a word"][query] = exact
        both = pages[first] & pages[last] - own
        if any(is_measured(number) == measured for number in own):
            found["compound"][compound.capitalize()] = {str(n): 2 for n in own} | {str(n): 1 for n in both}
    return {kind: (found[kind], excluded[kind]) for kind in kinds}


def _find_next_noun(text: str, compound: str, nouns: set[str]) -> str:
    words = [word.casefold() for word in WORD.findall(text)]
    following = words[words.index(compound) + 1 :]
    return next((word.capitalize() for word in following if word in nouns and word != compound), "")


def _iter_compounds(nouns: set[str], known: Mapping[str, set[int]]) -> Iterator[tuple[str, str, str]]:
    for compound in sorted(nouns):
        for position in range(len(compound) - 4, 3, -1):
            head, last = compound[:position], compound[position:]
            parts = (head[: len(head) - len(link)] for link in LINKS if head.endswith(link))
            first = next((part for part in parts if len(part) >= 4 and part in known), None)
            if first and last in nouns:
                yield compound, first, last
                break


if __name__ == "__main__":
    main()
