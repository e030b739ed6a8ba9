"""How good a model is: questions of the wikis it was not trained on, and judged sets that it must not forget.

A file of judged sets is compressed JSON: for each set `texts`, `pages` (the page of each text), and `queries`, a list of
[query, {page: grade}, pages to leave out].
"""

import json
import lzma
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training.batches import DEVICE, Tokens, embed, score_pairs
from training.models import ROBERTA_POSITION_OFFSET, Transformer, Weights

if TYPE_CHECKING:
    from training.train import Dataset

FOLDS = (
    ("actual", "docker", "hackclub", "madetech", "nushell", "privacy", "zigbee", "paperless"),
    ("carpentries", "dtfaq", "joplin", "mastodon", "owasp", "retropie", "zulip", "klipper"),
    ("cooking", "dxw", "govuk", "mattermost", "meshtastic", "posthog", "turing"),
)
"""The wikis that a model is judged on must not be among those it was trained on."""

CHUNK_SHARE = 0.6
"""Share of the nearest chunk in the score of a page; the mean of its chunks has the rest."""


def score_pages(queries: torch.Tensor, vectors: torch.Tensor, pages: torch.Tensor, page_count: int) -> torch.Tensor:
    """The score of each page for each query: its nearest chunk, and the page as a whole."""
    means = torch.zeros(page_count, vectors.shape[1], device=DEVICE).index_add_(0, pages, vectors)
    nearest = torch.full((len(queries), page_count), -9.0, device=DEVICE)
    nearest.scatter_reduce_(1, pages.expand(len(queries), -1), queries @ vectors.T, "amax")
    return CHUNK_SHARE * nearest + (1 - CHUNK_SHARE) * queries @ functional.normalize(means, dim=-1).T


def evaluate_retriever(weights: Weights, data: "Dataset", fold: int | None, sets: Path | None, name: str) -> None:
    """Print the ranks of the right pages of questions, and nDCG@10 of each judged set."""
    model = Transformer(weights, ROBERTA_POSITION_OFFSET).to(DEVICE).eval()
    parts = [
        f"{kind} {first}/{three}/{ten} of {count}" for kind, (first, three, ten, count) in _rank(model, data, fold)
    ]
    if sets is not None:
        gains = _measure_sets(model, data.tokenizer, sets)
        mean = sum(gains.values()) / len(gains)
        parts += [f"sets {mean:.4f}:", *(f"{key} {gain:.3f}" for key, gain in gains.items())]
    print(name, *parts, flush=True)


def _rank(model: Transformer, data: "Dataset", fold: int | None) -> list[tuple[str, list[int]]]:
    vectors, queries = embed(model, data.passages), embed(model, data.queries)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for wiki in FOLDS[fold] if fold is not None else sum(FOLDS, ()):
        rows = [i for i, other in enumerate(data.passage_wikis) if other == wiki]
        items = [i for i in range(data.question_count) if data.item_wikis[i] == wiki]
        if not rows or not items:
            continue
        names: dict[str, int] = {}
        pages = torch.tensor([names.setdefault(data.passage_files[i], len(names)) for i in rows], device=DEVICE)
        scores = score_pages(queries[items], vectors[rows], pages, len(names))
        for item, row in zip(items, scores.argsort(descending=True)[:, :10].tolist(), strict=True):
            right = names[data.passage_files[data.item_passages[item][0]]]
            for kind in (data.item_kinds[item], "all"):
                count = counts[kind]
                for place, depth in enumerate((1, 3, 10)):
                    count[place] += right in row[:depth]
                count[3] += 1
    return sorted(counts.items())


def _measure_sets(model: Transformer, tokenizer_json: str, path: Path) -> dict[str, float]:
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def read(texts: list[str]) -> torch.Tensor:
        return embed(model, Tokens([encoding.ids for encoding in tokenizer.encode_batch(texts)], 320, 1))

    gains = {}
    with lzma.open(path, "rt", encoding="utf-8") as file:
        sets = json.load(file)
    for name, judged in sets.items():
        names: dict[str, int] = {}
        pages = torch.tensor([names.setdefault(page, len(names)) for page in judged["pages"]], device=DEVICE)
        vectors, order = read(judged["texts"]), list(names)
        for kind, queries in judged["queries"].items():
            scores = score_pages(read([query[0] for query in queries]), vectors, pages, len(names))
            best = scores.topk(min(60, len(names))).indices.tolist()
            found = [
                [page for number in row if (page := order[number]) not in left_out][:10]
                for row, (_, _, left_out) in zip(best, queries, strict=True)
            ]
            gains[f"{name}.{kind}"] = sum(map(_measure_gain, found, (query[1] for query in queries))) / len(queries)
    return gains


def _measure_gain(pages: list[str], grades: dict[str, float]) -> float:
    gain = sum(grades.get(page, 0) / math.log2(place + 2) for place, page in enumerate(pages))
    ideal = sorted(grades.values(), reverse=True)[:10]
    return gain / sum(grade / math.log2(place + 2) for place, grade in enumerate(ideal))


def evaluate_pairs(weights: Weights, data: "Dataset", fold: int | None, name: str) -> None:
    """Print how often a cross-encoder prefers the right page among the candidates, and how often the teacher does."""
    left_out = FOLDS[fold] if fold is not None else sum(FOLDS, ())
    items = [i for i in range(data.question_count) if data.item_wikis[i] in left_out]
    numbers = torch.tensor(items, device=DEVICE)
    candidates = data.candidates[numbers]
    flat = numbers.repeat_interleave(candidates.shape[1])
    model = Transformer(weights).to(DEVICE).eval()
    logits = score_pairs(model, data.pairs, flat, candidates.flatten()).view(candidates.shape)
    for who, scores in ((name, logits), ("teacher", data.teacher[numbers])):
        best = candidates.gather(1, scores.argmax(1, keepdim=True))[:, 0].tolist()
        right = sum(
            data.passage_files[row[0]] == data.passage_files[chosen]
            for row, chosen in zip(candidates.tolist(), best, strict=True)
        )
        print(f"{who}: right page preferred for {right} of {len(items)}", flush=True)
