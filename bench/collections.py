"""The retrieval test collections as wikis: each document a page of a real git repository."""

import gzip
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

DEFAULT = Path("../shared/collections")


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


def page_path(document_id: str) -> str:
    return document_id.removesuffix(".md")


def documents(directory: Path) -> list[dict[str, str]]:
    plain = directory / "corpus.jsonl"
    text = (
        plain.read_text() if plain.exists() else gzip.decompress((directory / "corpus.jsonl.gz").read_bytes()).decode()
    )
    return [json.loads(line) for line in text.splitlines()]


def queries(directory: Path) -> list[Queries]:
    """Every kind of queries the collection has."""
    return [_queries(directory, kind) for kind in ("", "oldtitle", "description") if _file(directory, kind).exists()]


def _file(directory: Path, kind: str) -> Path:
    return directory / (f"queries.{kind}.jsonl" if kind else "queries.jsonl")


def _queries(directory: Path, kind: str) -> Queries:
    texts = {row["id"]: row["text"] for row in map(json.loads, _file(directory, kind).read_text().splitlines())}
    relevant: dict[str, dict[str, int]] = {}
    for line in (directory / (f"qrels.{kind}.tsv" if kind else "qrels.tsv")).read_text().splitlines():
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            relevant.setdefault(query, {})[page_path(document)] = int(grade)
    exclude: dict[str, set[str]] = {}
    if not kind and (directory / "exclude.tsv").exists():
        for line in (directory / "exclude.tsv").read_text().splitlines():
            query, document = line.split("\t")
            exclude.setdefault(query, set()).add(page_path(document))
    texts = {query: text for query, text in texts.items() if query in relevant}
    has_kinds = (directory / "queries.oldtitle.jsonl").exists()
    return Queries(directory.name, kind or ("links" if has_kinds else ""), texts, relevant, exclude)


def write_repository(directory: Path, to: Path) -> None:
    """Commit the collection's documents as pages, unless that was done before."""
    if not (to / "HEAD").exists():
        write_pages({page_path(each["id"]) + ".md": _to_page(each) for each in documents(directory)}, to)


def _to_page(document: dict[str, str]) -> str:
    return f"---\ntitle: {json.dumps(document['title'], ensure_ascii=False)}\n---\n\n{document['text']}\n"


def write_pages(pages: dict[str, str], to: Path) -> None:
    """Commit these pages by file name to a new repository, unless it exists."""
    if (to / "HEAD").exists():
        return
    to.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(to)], check=True)
    stream = bytearray(b"commit refs/heads/main\ncommitter Bench <bench@example.org> 1700000000 +0000\ndata 4\npage\n")
    for name, text in pages.items():
        page = text.encode()
        stream += b"M 100644 inline " + json.dumps(name, ensure_ascii=False).encode()
        stream += b"\ndata %d\n%s\n" % (len(page), page)
    subprocess.run(["git", "-C", str(to), "fast-import", "--quiet"], input=bytes(stream), check=True)
