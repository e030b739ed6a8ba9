"""The quality loss of a precision: nDCG@10 of semantic search, on test collections with relevance judgements."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import collections
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.wikis.evaluation.quality_metrics import compute_ndcg

DEPTH = 10


@dataclass(frozen=True, slots=True)
class PrecisionRanking:
    """How one precision ranks a collection: nDCG by kind of query, the best documents of each query, all vectors."""

    scores: dict[str, float]
    best: dict[str, list[list[str]]]
    vectors: np.ndarray


def rank_documents(embedder: OnnxEmbedder, directory: Path) -> PrecisionRanking:
    """Rank every document of the collection for every query by cosine; a document is as much as fits one vector."""
    documents = collections.read_documents(directory)
    names = [collections.get_page_path(document["id"]) for document in documents]
    texts = [truncate(embedder, f"{document['title']} {document['text']}".strip()) for document in documents]
    vectors = embedder.embed_passages(texts)
    scores, best = {}, {}
    for queries in collections.read_queries(directory):
        found = {query: _get_best(embedder.embed_query(text) @ vectors.T, names, queries.exclude.get(query, set()))
                 for query, text in queries.texts.items()}  # fmt: skip
        scores[queries.name] = float(
            np.mean([compute_ndcg(pages, queries.relevant[query]) for query, pages in found.items()])
        )
        best[queries.name] = list(found.values())
    return PrecisionRanking(scores, best, vectors)


def _get_best(scores: np.ndarray, names: list[str], excluded: set[str]) -> list[str]:
    order = np.argsort(-scores, kind="stable")[: DEPTH + len(excluded)]
    return [names[i] for i in order if names[i] not in excluded][:DEPTH]


def truncate(embedder: OnnxEmbedder, text: str) -> str:
    """The beginning of the text, as long as one vector can represent."""
    spans = embedder.get_token_spans(text)
    return text if len(spans) <= embedder.max_tokens else text[: spans[embedder.max_tokens - 1][1]]


def format_rows(name: str, exact: PrecisionRanking, rounded: PrecisionRanking) -> list[str]:
    """A table row for each kind of query: nDCG of both, the loss, the share of the best ten in common, the cosine."""
    cosine = float((exact.vectors * rounded.vectors).sum(axis=1).mean())
    rows = []
    for kind, score in exact.scores.items():
        pairs = list(zip(exact.best[kind], rounded.best[kind], strict=True))
        common = np.mean([len(set(a) & set(b)) / len(a) for a, b in pairs])
        other = rounded.scores[kind]
        rows.append(
            f"| {kind or name} | {score:.4f} | {other:.4f} | {score - other:+.4f} | {common:.1%} | {cosine:.4f} |"
        )
    return rows
