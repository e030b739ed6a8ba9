"""BM25 and nothing else (bm25s): k1 1.5, b .75, English stems and stop words, whole pages with their titles.

    PEER bench/peers/bm25_peer.py TEXTS STATE [paths]

With `paths` the path of a page is one more line of its text. It is quick to build, so nothing is kept.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import bm25s
import Stemmer
from lines import read_texts, run_peer


def main(file: Path, paths: bool) -> None:
    rows = [(page, f"{page}\n{text}" if paths else text) for page, text in read_texts(file)]
    stemmer = Stemmer.Stemmer("english")

    def tokenize(each: list[str]) -> object:
        return bm25s.tokenize(each, stopwords="en", stemmer=stemmer, show_progress=False)

    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index(tokenize([text for _, text in rows]), show_progress=False)

    def search(query: str, n: int) -> Iterable[str]:
        found, scores = index.retrieve(tokenize([query]), k=min(n, len(rows)), show_progress=False)
        return [rows[at][0] for at, score in zip(found[0].tolist(), scores[0].tolist(), strict=True) if score > 0]

    run_peer(search)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:] == ["paths"])
