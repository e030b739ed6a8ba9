"""The retrieval test collections as wikis: each document a page of a real git repository.

    python -m bench.collections TO [--collections DIR]

Writes smaller collections, for experiments: the relevant pages and some others, without very long pages, and the
queries that remain answerable. Name them with `--collections` in the other benchmarks.
"""

import gzip
import json
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.corpus import run_git
from bench.report import COLLECTIONS, make_parser

DEFAULT = COLLECTIONS
SHARED_NAMES = ("cranfield", "scifact", "wiki-dendron", "wiki-k8s-en")
RELATED = {"mdn-guides": "mdn", "mdn-extensions": "mdn"}
"""Collections of the same wiki: questions of one are not foreign to the other, and they are left out together."""
SMALL = {
    "scifact": (10**9, 220),
    "cranfield": (10**9, 10**9),
    "wiki-dendron": (9_000, 10**9),
    "wiki-k8s-en": (12_000, 300),
}
"""For each smaller collection: the maximum number of characters of a page, and of pages that no query is about."""


@dataclass(frozen=True)
class Queries:
    """Queries of one kind with their judgements and the pages to leave out of a ranking."""

    collection: str
    kind: str
    texts: dict[str, str]
    relevant: dict[str, dict[str, int]]
    exclude: dict[str, set[str]]

    @property
    def name(self) -> str:
        return f"{self.collection} ({self.kind})" if self.kind else self.collection


def get_group(name: str) -> str:
    """The name under which related collections are left out together."""
    return RELATED.get(name, name)


def get_page_path(document_id: str) -> str:
    return document_id.removesuffix(".md")


def read_documents(directory: Path) -> list[dict[str, str]]:
    plain = directory / "corpus.jsonl"
    text = (
        plain.read_text() if plain.exists() else gzip.decompress((directory / "corpus.jsonl.gz").read_bytes()).decode()
    )
    return [json.loads(line) for line in text.splitlines()]


def read_articles(directory: Path, language: str = "en") -> list[dict[str, Any]]:
    """The articles of XQuAD with their paragraphs and questions."""
    file = directory / "xquad" / f"xquad.{language}.json.gz"
    articles: list[dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes()))["data"]
    return articles


def read_queries(directory: Path) -> list[Queries]:
    """All kinds of queries of the collection."""
    return [
        _read_kind(directory, kind) for kind in ("", "oldtitle", "description") if _get_file(directory, kind).exists()
    ]


def _get_file(directory: Path, kind: str) -> Path:
    return directory / (f"queries.{kind}.jsonl" if kind else "queries.jsonl")


def _read_kind(directory: Path, kind: str) -> Queries:
    texts = {row["id"]: row["text"] for row in map(json.loads, _get_file(directory, kind).read_text().splitlines())}
    relevant: dict[str, dict[str, int]] = {}
    for line in (directory / (f"qrels.{kind}.tsv" if kind else "qrels.tsv")).read_text().splitlines():
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            relevant.setdefault(query, {})[get_page_path(document)] = int(grade)
    exclude: dict[str, set[str]] = {}
    if not kind and (directory / "exclude.tsv").exists():
        for line in (directory / "exclude.tsv").read_text().splitlines():
            query, document = line.split("\t")
            exclude.setdefault(query, set()).add(get_page_path(document))
    texts = {query: text for query, text in texts.items() if query in relevant}
    has_kinds = (directory / "queries.oldtitle.jsonl").exists()
    return Queries(directory.name, kind or ("links" if has_kinds else ""), texts, relevant, exclude)


def write_repository(directory: Path, to: Path) -> None:
    """Commit the collection's documents as pages, unless that was done before."""
    if not (to / "HEAD").exists():
        write_pages({get_page_path(each["id"]) + ".md": to_page(each) for each in read_documents(directory)}, to)


def to_page(document: dict[str, str]) -> str:
    return f"---\ntitle: {json.dumps(document['title'], ensure_ascii=False)}\n---\n\n{document['text']}\n"


def write_pages(pages: dict[str, str], to: Path) -> None:
    """Commit these pages by file name to a new repository, unless it exists."""
    if (to / "HEAD").exists():
        return
    run_git(Path(), "init", "-q", "--bare", "-b", "main", str(to))
    stream = bytearray(b"commit refs/heads/main\ncommitter Bench <bench@example.org> 1700000000 +0000\ndata 4\npage\n")
    for name, text in pages.items():
        page = text.encode()
        stream += b"M 100644 inline " + json.dumps(name, ensure_ascii=False).encode()
        stream += b"\ndata %d\n%s\n" % (len(page), page)
    subprocess.run(["git", "-C", str(to), "fast-import", "--quiet"], input=bytes(stream), check=True)


def write_small(directory: Path, to: Path) -> None:
    """Write a smaller collection."""
    to.mkdir(parents=True)
    max_chars, other_count = SMALL[directory.name]
    kinds = read_queries(directory)
    relevant = {page for kind in kinds for query in kind.texts for page in kind.relevant[query]}
    short = [each for each in read_documents(directory) if len(each["text"]) < max_chars]
    others = [each["id"] for each in short if get_page_path(each["id"]) not in relevant]
    random.Random(1).shuffle(others)
    left_out = set(others[other_count:])
    documents = [each for each in short if each["id"] not in left_out]
    (to / "corpus.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in documents))
    paths = {get_page_path(each["id"]) for each in documents}
    for file in (*directory.glob("queries*.jsonl"), *directory.glob("exclude.tsv")):
        shutil.copy(file, to / file.name)
    for file in directory.glob("qrels*.tsv"):
        rows = [row for row in file.read_text().splitlines() if get_page_path(row.split("\t")[1]) in paths]
        (to / file.name).write_text("\n".join(rows) + "\n")


def main() -> None:
    parser = make_parser(__doc__, "", "collections")
    parser.add_argument("to", type=Path)
    arguments = parser.parse_args()
    for name in SMALL:
        write_small(arguments.collections / name, arguments.to / name)


if __name__ == "__main__":
    main()
