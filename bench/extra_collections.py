"""Further collections for benchmarks: link texts of a wiki as queries, by the rules of the shared collections.

    python -m bench.extra_collections [--corpus DIR] [--collections DIR] [--to bench/data/extra]

Writes two parts of MDN, whose link texts point to the page wanted, and the paragraphs of XQuAD as pages with their
questions. They were not used to choose the ranking before docs/adr/0049, so they show what holds elsewhere. Index them
with `python -m bench.quality --collections bench/data/extra --only mdn-guides mdn-extensions xquad`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench import collections
from bench.corpus import list_pages, open_clone, read_pages
from bench.report import make_parser
from wikiholt.text.keyword_query import get_significant_terms

PARTS = {
    "mdn-guides": re.compile(
        r"(?:glossary|learn_web_development|games|web/(?:accessibility|performance|security|privacy|media|progressive_web_apps))/"
    ),
    "mdn-extensions": re.compile(r"mozilla/"),
}
LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\(/en-US/docs/([^)\s#]+)\)", re.IGNORECASE)
FRONTMATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
MARKUP = re.compile(r"\{\{[^}]*\}\}|[`*_]")
MIN_WORDS, MAX_WORDS, MAX_TARGETS, MIN_TARGET_WORDS = 2, 12, 3, 40
QUESTION_STEP = 4
"""Every n-th question of XQuAD is used, so that it weighs about as much as the others."""


class SourcePage(NamedTuple):
    """A page of the corpus."""

    path: str
    title: str
    text: str


def main() -> None:
    parser = make_parser(__doc__, "", "collections", "corpus")
    parser.add_argument("--to", type=Path, default=Path("bench/data/extra"))
    arguments = parser.parse_args()
    pages = read_sources(open_clone(arguments.corpus, arguments.to.parent / "mdn.git").path)
    links = find_link_texts(pages)
    for name, part in PARTS.items():
        write_links(name, {path: page for path, page in pages.items() if part.match(path)}, links, arguments.to / name)
    write_paragraphs(collections.read_articles(arguments.collections), arguments.to / "xquad")


def read_sources(repository: Path) -> dict[str, SourcePage]:
    """The pages of a repository by lower-case path."""
    pages, files = {}, list_pages(repository)
    for file, text in zip(files, read_pages(repository, files), strict=True):
        head = FRONTMATTER.match(text)
        title = re.search(r"^title: *(.+)$", head[1], re.MULTILINE) if head else None
        path = file.removesuffix("/index.md").removesuffix(".md").lower()
        body = text[head.end() :] if head else text
        pages[path] = SourcePage(path, title[1].strip("\"' ") if title else path, body)
    return pages


def find_link_texts(pages: Mapping[str, SourcePage]) -> dict[str, dict[str, set[str]]]:
    """Link text → target path → paths of the pages with the link."""
    found: dict[str, dict[str, set[str]]] = {}
    for page in pages.values():
        for text, target in LINK.findall(page.text):
            words, path = " ".join(MARKUP.sub("", text).split()), target.strip("/").lower()
            if path in pages and path != page.path:
                found.setdefault(words, {}).setdefault(path, set()).add(page.path)
    return found


def select_queries(
    pages: Mapping[str, SourcePage], links: Mapping[str, Mapping[str, set[str]]]
) -> Iterator[tuple[str, str, set[str]]]:
    """Text, target and linking pages of at most one link text per target that is not part of the target's title."""
    taken: set[str] = set()
    for text in sorted(links, key=lambda text: (sum(map(len, links[text].values())), text)):
        terms, targets = get_significant_terms(text), links[text]
        if not MIN_WORDS <= len(terms) <= MAX_WORDS or len(targets) > MAX_TARGETS:
            continue
        for path, sources in sorted(targets.items()):
            page = pages.get(path)
            if page is None or path in taken or len(page.text.split()) < MIN_TARGET_WORDS:
                continue
            if not terms <= get_significant_terms(f"{page.title} {path.rsplit('/', 1)[-1]}"):
                taken.add(path)
                yield text, path, sources


def write_links(
    name: str, pages: Mapping[str, SourcePage], links: Mapping[str, Mapping[str, set[str]]], to: Path
) -> None:
    """Write the pages, and link texts to them as queries."""
    to.mkdir(parents=True, exist_ok=True)
    documents = [{"id": f"{page.path}.md", "title": page.title, "text": page.text} for page in pages.values()]
    (to / "corpus.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in documents))
    queries, judgements, excluded = [], [], []
    for number, (text, path, sources) in enumerate(select_queries(pages, links)):
        queries.append(json.dumps({"id": f"q{number}", "text": text}))
        judgements.append(f"q{number}\t{path}.md\t1")
        excluded += [f"q{number}\t{source}.md" for source in sorted(sources) if source in pages]
    for file, lines in (("queries.jsonl", queries), ("qrels.tsv", judgements), ("exclude.tsv", excluded)):
        (to / file).write_text("".join(f"{line}\n" for line in lines))
    print(name, len(documents), "pages", len(queries), "queries")


def write_paragraphs(articles: list[dict[str, Any]], to: Path) -> None:
    """Write each paragraph of XQuAD as a page, and its questions."""
    to.mkdir(parents=True, exist_ok=True)
    documents, queries, judgements = [], [], []
    number = 0
    for article in articles:
        title = article["title"].replace("_", " ")
        for part, paragraph in enumerate(article["paragraphs"], 1):
            page = f"{title} {part}"
            documents.append(json.dumps({"id": f"{page}.md", "title": title, "text": paragraph["context"]}))
            for item in paragraph["qas"]:
                number += 1
                if number % QUESTION_STEP == 0:
                    queries.append(json.dumps({"id": item["id"], "text": item["question"]}))
                    judgements.append(f"{item['id']}\t{page}.md\t1")
    for name, lines in (("corpus.jsonl", documents), ("queries.jsonl", queries), ("qrels.tsv", judgements)):
        (to / name).write_text("".join(f"{line}\n" for line in lines))
    print("xquad", len(documents), "pages", len(queries), "queries")


if __name__ == "__main__":
    main()
