"""Make the training data: passages of wikis, hand-written questions, and pairs mined from the wikis themselves.

    python -m training.collect WIKIS QUESTIONS OUTPUT

WIKIS is a directory with one directory of Markdown pages per wiki. QUESTIONS has one JSON object per line: `wiki`, `q`,
`kind`, `page`, `line` and `last_line` of the answer. OUTPUT is a compressed JSON file that `training.train` reads.
"""

import argparse
import json
import lzma
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from wikiholt.domain.git import Blob
from wikiholt.domain.protocols import PageTokenizer
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.models.model_loader import load_tokenizer

MAX_PAGES = 1500
"""Pages read of one wiki; of a larger one, a random sample."""
MAX_TEXT_CHARACTERS = 1300
QUERY_CHARACTERS = range(8, 300)
MIN_SENTENCE_WORDS, MIN_ANCHOR_WORDS, MIN_HEADING_WORDS = 7, 2, 4

_QUESTION = re.compile(
    r"(how|what|why|when|where|which|who|can|could|do|does|is|are|should|will|my|i)\b.*", re.IGNORECASE
)
_LINK = re.compile(r"(?<!!)\[([^\]\[]{3,80})\]\(([^)\s]+)\)")
_MARKUP = re.compile(r"\{#[^}]*\}|<[^>]*>?|[{}*_`>#|]")
_PAGE_ENDINGS = ("", ".md", ".mdx", "/index.md", "/index.mdx", "/_index.md", "/README.md")


class Pair(NamedTuple):
    """A query and the passage that answers it, by number."""

    query: str
    passages: list[int]
    kind: str
    wiki: str


class Wiki:
    """The prepared pages of one wiki; `first` is the number of its first passage."""

    def __init__(self, name: str, directory: Path, tokenizer: PageTokenizer, first: int) -> None:
        self.name = name
        self.pages: dict[str, PreparedPage] = {}
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self._by_stem: dict[str, list[str]] = {}
        pipeline, count = TextPipeline(), first
        for file in _choose_files(directory):
            data = (directory / file).read_bytes()
            page = pipeline.prepare(PageTask(file, Blob(sha1(data).hexdigest(), len(data), data), None), tokenizer)
            if isinstance(page, PreparedPage) and page.chunks:
                self.pages[file], self.numbers[file] = page, count
                self.texts[file] = data.decode("utf-8", "replace")
                self._by_stem.setdefault(PurePosixPath(file).stem.lower(), []).append(file)
                count += len(page.chunks)
        self.last = count

    def passages(self) -> Iterator[tuple[str, str, str]]:
        for file, page in self.pages.items():
            for text in page.texts:
                yield self.name, file, text[:MAX_TEXT_CHARACTERS]

    def find_passages(self, file: str, first_line: int, last_line: int) -> list[int]:
        """The passages with all of these lines, else those with the first one."""
        start, chunks = self.numbers[file], self.pages[file].chunks
        whole = [start + i for i, c in enumerate(chunks) if c.first_line <= first_line and last_line <= c.last_line]
        return whole or [start + i for i, c in enumerate(chunks) if c.first_line <= first_line <= c.last_line]

    def mine_pairs(self) -> Iterator[Pair]:
        """Descriptions, headings that are questions, and the sentences around links to other pages."""
        for file, page in self.pages.items():
            if description := page.page.metadata.description:
                yield Pair(description, [self.numbers[file]], "description", self.name)
            for heading in page.page.headings:
                if _QUESTION.fullmatch(heading.text) and len(heading.text.split()) >= MIN_HEADING_WORDS:
                    found = self.find_passages(file, heading.line + 1, heading.line + 1)
                    yield Pair(heading.text, found[:1] or [self.numbers[file]], "heading", self.name)
            yield from self._mine_links(file)

    def _mine_links(self, file: str) -> Iterator[Pair]:
        text = self.texts[file]
        for match in _LINK.finditer(text):
            target, _, anchor = match[2].partition("#")
            page = self._find_target(file, target)
            if page is None:
                continue
            number = self._find_section(page, anchor)
            sentence = _read_sentence(text, match)
            if len(sentence.split()) >= MIN_SENTENCE_WORDS:
                yield Pair(sentence, [number], "link", self.name)
            elif len(match[1].split()) >= MIN_ANCHOR_WORDS:
                yield Pair(match[1], [number], "anchor", self.name)

    def _find_target(self, file: str, target: str) -> str | None:
        if not target or target.startswith(("http", "mailto:")):
            return None
        joined = target.strip("/") if target.startswith("/") else os.path.normpath(PurePosixPath(file).parent / target)
        found = next((joined + ending for ending in _PAGE_ENDINGS if joined + ending in self.pages), None)
        same_stem = self._by_stem.get(PurePosixPath(target).stem.lower(), [])
        found = found or (same_stem[0] if len(same_stem) == 1 else None)
        return found if found != file else None

    def _find_section(self, file: str, anchor: str) -> int:
        for heading in self.pages[file].page.headings:
            if anchor and heading.anchor == anchor:
                return (self.find_passages(file, heading.line + 1, heading.line + 1) or [self.numbers[file]])[0]
        return self.numbers[file]


def _choose_files(directory: Path) -> list[str]:
    files = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.suffix in (".md", ".mdx", ".markdown") and path.is_file() and not path.is_symlink()
    )
    return files if len(files) <= MAX_PAGES else sorted(random.Random(1).sample(files, MAX_PAGES))


def _read_sentence(text: str, match: re.Match[str]) -> str:
    start = max(text.rfind(end, 0, match.start()) for end in ("\n", ". ", "? ", "! "))
    ends = [found for end in ("\n", ". ", "? ", "! ") if (found := text.find(end, match.end())) > 0]
    return _LINK.sub(r"\1", text[start + 1 : min(ends, default=len(text))])


def read_questions(path: Path, wikis: dict[str, Wiki]) -> Iterator[Pair]:
    """The questions whose lines are in a passage."""
    for line in path.read_text("utf-8").splitlines():
        item = json.loads(line)
        wiki = wikis.get(item["wiki"])
        if wiki and item["page"] in wiki.pages:
            found = wiki.find_passages(item["page"], item["line"], item["last_line"])
            if found:
                yield Pair(item["q"], found, item["kind"], item["wiki"])


def clean_pair(pair: Pair) -> Pair | None:
    """The pair without markup in its query, or None if the query is too short or too long."""
    query = " ".join(_MARKUP.sub("", pair.query).split())
    return pair._replace(query=query) if len(query) in QUERY_CHARACTERS else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wikis", type=Path)
    parser.add_argument("questions", type=Path, nargs="+")
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", default="granite-embedding-30m-english", help="the model whose tokens are counted")
    arguments = parser.parse_args()
    tokenizer = load_tokenizer(arguments.model)
    wikis: dict[str, Wiki] = {}
    first = 0
    for directory in sorted(path for path in arguments.wikis.iterdir() if path.is_dir()):
        wiki = Wiki(directory.name, directory, tokenizer, first)
        wikis[wiki.name], first = wiki, wiki.last
        print(wiki.name, len(wiki.pages), "pages", wiki.last, "passages", flush=True)
    questions = [pair for path in arguments.questions for pair in read_questions(path, wikis)]
    mined = [pair for wiki in wikis.values() for raw in wiki.mine_pairs() if (pair := clean_pair(raw))]
    passages = [passage for wiki in wikis.values() for passage in wiki.passages()]
    print(len(passages), "passages", Counter(pair.kind for pair in [*questions, *mined]))
    with lzma.open(arguments.output, "wt", preset=6, encoding="utf-8") as file:
        json.dump({"passages": passages, "questions": questions, "mined": mined}, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
