"""Train a model that reads a question with a passage and scores each sentence of it: whether it answers.

    python -m training.sentences data.json.xz --reranker MODEL_DIRECTORY --output FILE.npz [--layers 0,1,2,3,4,5]
        [--minutes M] [--seed N]

The data has `passages` (the headings and then the sentences of each) and `questions`: the `part` (`train`, or a set to measure), the six
best `passages` of a search, which sentences of them are `right`, the `rank` that the features of `search/answers.py` give each, and whether
the right page is `first` and among `three`. A question that is not the wiki's `own` has no right sentence. The model begins as the
reranker, its int8 weights made float again; a sentence's score is the mean of the scores of its tokens.
"""

import argparse
import json
import lzma
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from training.batches import DEVICE
from training.models import Transformer, Weights, choose_layers
from training.packing import write_layers

MAX_QUESTION_TOKENS, MAX_PAIR_TOKENS = 48, 288
BATCH_QUESTIONS = 16
RATE = 5e-5
MAX_WORDS, MAX_SENTENCES = 80, 6
"""The limits of an answer, as in `search/answers.py`."""
CLS, SEP, PADDING = 101, 102, 0
Question = dict[str, Any]


def read_reranker(path: Path) -> Weights:
    """The weights of an exported reranker in fp32, under the names that training uses."""
    raw = {each.name: numpy_helper.to_array(each) for each in onnx.load(str(path / "model.onnx")).graph.initializer}

    def matrix(name: str) -> np.ndarray:
        smooth = raw.get(f"{name}.smooth", np.ones(1, np.float32))
        return np.ascontiguousarray((raw[f"{name}.int8"] * raw[f"{name}.scale"] * smooth[:, None]).T.astype(np.float32))

    pairs = raw["words.pairs"]
    numbers = np.concatenate([pairs & 15, pairs >> 4], axis=-1).astype(np.float32) - 8
    words = numbers * raw["words.scale"].astype(np.float32)
    weights = {
        "word_emb": words.reshape(len(words), -1),
        "pos_emb": raw["positions"],
        "type_emb": raw["segment"],
        "emb_ln_w": raw["embedding_norm.scale"],
        "emb_ln_b": raw["embedding_norm.shift"],
        "pooler_w": raw["pooler"].T.copy(),
        "pooler_b": raw["pooler.bias"],
        "classifier_w": raw["classifier"].T.copy(),
        "classifier_b": raw["classifier.bias"],
    }
    layer = 0
    while f"layers.{layer}.out.int8" in raw:
        at, own = f"layers.{layer}.", f"l{layer}_"
        parts = ["qkv"] if f"{at}qkv.int8" in raw else ["q", "kv"]
        weights[f"{own}qkv_w"] = np.concatenate([matrix(at + part) for part in parts])
        weights[f"{own}qkv_b"] = np.concatenate([raw[f"{at}{part}.bias"] for part in parts])
        for ours, name in (("ao", "out"), ("f1", "up"), ("f2", "down")):
            weights[f"{own}{ours}_w"], weights[f"{own}{ours}_b"] = matrix(at + name), raw[f"{at}{name}.bias"]
        for ours, name in (("aln", "attention_norm"), ("fln", "norm")):
            weights[f"{own}{ours}_w"], weights[f"{own}{ours}_b"] = raw[f"{at}{name}.scale"], raw[f"{at}{name}.shift"]
        layer += 1
    return {name: np.array(array, np.float32) for name, array in weights.items()}


class SentenceScorer(nn.Module):
    """The encoder, and a score for each of its tokens."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.encoder = Transformer(weights)
        self.head = nn.Linear(weights["emb_ln_w"].shape[0], 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.constant_(self.head.bias, -3.0)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, sentences: torch.Tensor, count: int) -> torch.Tensor:
        """The scores of `count` sentences; `sentences` has the number of each token's, 0 for none."""
        tokens = self.head(self.encoder.encode(ids, ids != PADDING, types))[..., 0].float()
        sums = torch.zeros(count + 1, device=DEVICE).index_add_(0, sentences.flatten(), tokens.flatten())
        sizes = torch.bincount(sentences.flatten(), minlength=count + 1).clamp(min=1)
        return (sums / sizes)[1:]


class Pairs:
    """Questions and passages as token ids, joined when they are read."""

    def __init__(self, data: dict[str, Any], tokenizer: Tokenizer) -> None:
        flat = [text for passage in data["passages"] for text in passage]
        ids = iter([each.ids for each in tokenizer.encode_batch(flat, add_special_tokens=False)])
        self.passages = [[next(ids) for _ in passage] for passage in data["passages"]]
        texts = [each["q"] for each in data["questions"]]
        self.questions = [e.ids[:MAX_QUESTION_TOKENS] for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def join(
        self, numbers: Sequence[int], questions: Sequence[Question]
    ) -> tuple[list[torch.Tensor], list[tuple[int, int, int]]]:
        """The inputs of the model for all passages of these questions, and the question, passage and place of each sentence."""
        rows, keys = [], []
        for at, (number, question) in enumerate(zip(numbers, questions, strict=True)):
            for rank, passage in enumerate(question["passages"]):
                head, *sentences = self.passages[passage]
                start = [CLS, *self.questions[number], SEP]
                ids, owner = [*start, *head[:32]], [0] * (len(start) + min(len(head), 32))
                for place, sentence in enumerate(sentences):
                    room = MAX_PAIR_TOKENS - 1 - len(ids)
                    if room <= 0 or not sentence:
                        break
                    keys.append((at, rank, place))
                    ids += sentence[:room]
                    owner += [len(keys)] * len(sentence[:room])
                rows.append(([*ids, SEP], [0] * len(start) + [1] * (len(ids) + 1 - len(start)), [*owner, 0]))
        longest = max(len(ids) for ids, _, _ in rows)
        table = np.zeros((3, len(rows), longest), np.int64)
        for number, row in enumerate(rows):
            for kind, values in enumerate(row):
                table[kind, number, : len(values)] = values
        return [torch.from_numpy(each).to(DEVICE) for each in table], keys


def train(model: SentenceScorer, pairs: Pairs, questions: Sequence[Question], minutes: float) -> None:
    """Each sentence is judged alone, and against the others of its question if one of them answers."""
    items = [n for n, each in enumerate(questions) if each["part"] == "train" and each["passages"]]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.01)
    end, begin, steps = time.monotonic() + 60 * minutes, time.monotonic(), 0
    while time.monotonic() < end:
        random.shuffle(items)
        for start in range(0, len(items) - BATCH_QUESTIONS + 1, BATCH_QUESTIONS):
            done = (time.monotonic() - begin) / (60 * minutes)
            if done >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, 20 * done + 0.02) * (1 - done)
            batch = items[start : start + BATCH_QUESTIONS]
            asked = [questions[n] for n in batch]
            inputs, keys = pairs.join(batch, asked)
            right = [{tuple(place) for place in each["right"]} for each in asked]
            target = torch.tensor([float((r, p) in right[q]) for q, r, p in keys], device=DEVICE)
            owner = torch.tensor([q for q, _, _ in keys], device=DEVICE)
            with torch.autocast(DEVICE, torch.bfloat16):
                scores = model(*inputs, len(keys))
            loss = functional.binary_cross_entropy_with_logits(scores, target) * 4
            shares = torch.exp(scores - scores.max())
            whole = torch.zeros(len(batch), device=DEVICE).index_add_(0, owner, shares)
            good = torch.zeros(len(batch), device=DEVICE).index_add_(0, owner, shares * target)
            answered = good > 0
            if answered.any():
                loss = loss - torch.log(good[answered] / whole[answered]).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            steps += 1
    print(f"{steps} steps over {len(items)} questions", flush=True)


@torch.no_grad()
def measure(model: SentenceScorer, pairs: Pairs, questions: Sequence[Question], part: str) -> Iterator[str]:
    """How often six sentences of 80 words have the answer, by the weight of the score beside the rank of the features."""
    items = [n for n, each in enumerate(questions) if each["part"] == part and each["passages"]]
    scored: list[tuple[Question, list[tuple[int, int]], np.ndarray, list[int]]] = []
    for start in range(0, len(items), 2 * BATCH_QUESTIONS):
        batch = items[start : start + 2 * BATCH_QUESTIONS]
        asked = [questions[n] for n in batch]
        inputs, keys = pairs.join(batch, asked)
        with torch.autocast(DEVICE, torch.bfloat16):
            scores = model(*inputs, len(keys)).cpu().numpy()
        for at, question in enumerate(asked):
            rows = [n for n, (q, _, _) in enumerate(keys) if q == at]
            places = [keys[n][1:] for n in rows]
            sizes = [len(pairs.passages[question["passages"][r]][1 + p]) for r, p in places]
            scored.append((question, places, scores[rows], sizes))
    for weight in (0.0, 0.5, 1.0, 2.0, 1e3):
        found = np.array(
            [(contains(each, weight), each[0]["first"], each[0]["three"]) for each in scored if each[0]["own"]], bool
        )
        yield f"{part} weight {weight:g}: all {found[:, 0].mean():.3f} first {found[found[:, 1], 0].mean():.3f} three {found[found[:, 2], 0].mean():.3f} of {len(found)}"
    foreign = [each for each in scored if not each[0]["own"]]
    if not foreign:
        return
    for name, judge in (
        ("features", lambda each: 0.397 * max(each[0]["rank"].values()) + 1.6 * each[0]["score"]),
        ("score", lambda each: each[2].max()),
        (
            "score + .3 features",
            lambda each: each[2].max() + 0.3 * (0.397 * max(each[0]["rank"].values()) + 1.6 * each[0]["score"]),
        ),
    ):
        own = np.array([judge(each) for each in scored if each[0]["own"]])
        limit = np.quantile([judge(each) for each in foreign], 0.95)
        right = np.array([contains(each, 1.0) for each in scored if each[0]["own"]])
        yield f"{part} by {name}: {np.mean(own > limit):.3f} of own answered at 5 % foreign, {right[own > limit].mean():.3f} of these right"


def contains(scored: tuple[Question, list[tuple[int, int]], np.ndarray, list[int]], weight: float) -> bool:
    """Whether the chosen sentences have a right one."""
    question, places, scores, sizes = scored
    ranks = [weight * s + question["rank"].get(f"{r},{p}", -99.0) for (r, p), s in zip(places, scores, strict=True)]
    right, left, count = {tuple(place) for place in question["right"]}, MAX_WORDS, 0
    for n in np.argsort(ranks)[::-1]:
        words = max(1, round(sizes[n] / 1.35))
        if words > left and count:
            continue
        if places[n] in right:
            return True
        left, count = left - words, count + 1
        if left <= 5 or count == MAX_SENTENCES:
            break
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--reranker", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--layers", default="")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    with lzma.open(arguments.data, "rt") as file:
        data = json.load(file)
    tokenizer = Tokenizer.from_file(str(arguments.reranker / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    pairs, questions = Pairs(data, tokenizer), data["questions"]
    weights = read_reranker(arguments.reranker)
    if arguments.layers:
        weights = choose_layers(weights, list(map(int, arguments.layers.split(","))))
    model = SentenceScorer(weights).to(DEVICE)
    train(model, pairs, questions, arguments.minutes)
    model.eval()
    for part in dict.fromkeys(each["part"] for each in questions):
        if part != "train":
            print("\n".join(measure(model, pairs, questions, part)), flush=True)
    trained = model.encoder.get_weights()
    trained["sentence_w"], trained["sentence_b"] = (p.detach().float().cpu().numpy() for p in model.head.parameters())
    write_layers(arguments.output, trained)


if __name__ == "__main__":
    main()
