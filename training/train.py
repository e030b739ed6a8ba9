"""Train the retriever and the reranker on one GPU.

    python -m training.train prepare DATA --granite FILE --cross-encoder FILE --reranker-tokenizer FILE --work DIR
    python -m training.train retriever|student|reranker --work DIR --output FILE [--fold N] [--minutes M]

`prepare` tokenizes, finds candidates for each query with granite, fine-tunes the cross-encoder on the hand-written
questions, and scores all candidates with it: the teacher. The others each train one model from that. A model of fold N
has not seen the questions and pairs of the wikis of that fold.
"""

import argparse
import json
import lzma
import random
import time
from collections import defaultdict
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training.batches import DEVICE, PairTokens, Tokens, embed, score_pairs
from training.evaluate import FOLDS, evaluate_pairs, evaluate_retriever
from training.models import (
    ROBERTA_POSITION_OFFSET,
    Transformer,
    Weights,
    choose_layers,
    mix_weights,
    read_cross_encoder,
    read_granite,
)
from training.packing import write_layers

SEED = 7
PASSAGE_TOKENS, QUERY_TOKENS, PAIR_PASSAGE_TOKENS, PAIR_QUERY_TOKENS = 256, 96, 160, 64
CANDIDATES, TRAINING_CANDIDATES = 24, 16
TEMPERATURE, TEACHER_TEMPERATURE = 0.03, 1.5
IN_BATCH_WEIGHT, VECTOR_WEIGHT = 0.3, 8.0
TUNED_TEACHER_WEIGHT = 1.5
TRAINED_SHARE = 0.8
"""Share of the trained weights in the finished retriever; granite has the rest."""
STUDENT_LAYERS = [0, 1, 3, 5]
RERANKER_LAYERS = [1, 3, 5, 7, 9, 11]


class Schedule:
    """Steps the optimizer, warms up, and lowers the rate to zero when the time is over."""

    def __init__(self, model: Transformer, rate: float, minutes: float) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.01, fused=DEVICE == "cuda")
        self._trained, self._rate, self._end = trained, rate, time.monotonic() + minutes * 60
        self._seconds, self.steps = minutes * 60, 0

    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def step(self, loss: torch.Tensor) -> None:
        left = max(0.02, (self._end - time.monotonic()) / self._seconds)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * min(1.0, (self.steps + 1) / 100) * min(1.0, left * 1.1)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimizer.step()
        self.steps += 1
        if self.steps % 200 == 0:
            print(f"  step {self.steps}, {1 - left:.0%} of the time, loss {float(loss):.3f}", flush=True)


class Dataset:
    """What `prepare` leaves: tokens, candidates and the teacher's scores."""

    def __init__(self, work: Path) -> None:
        state = torch.load(work / "dataset.pt", map_location=DEVICE, weights_only=False)
        self.__dict__.update(state)
        self.granite: Weights = state["granite"]
        self.pairs = PairTokens(self.pair_queries, self.pair_passages)

    def choose_items(self, fold: int | None, question_weight: int = 2) -> list[int]:
        """The items to train on: not those of the fold; hand-written questions several times."""
        left_out = FOLDS[fold] if fold is not None else ()
        kept = [number for number, wiki in enumerate(self.item_wikis) if wiki not in left_out]
        return kept + [number for number in kept if number < self.question_count] * (question_weight - 1)

    def draw_candidates(self, items: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Passages and teacher's scores for these items: the right passage first, then `count` - 1 others."""
        noise = torch.rand(len(items), CANDIDATES - 1, device=DEVICE)
        columns = torch.cat(
            [torch.zeros(len(items), 1, device=DEVICE, dtype=torch.long), noise.argsort()[:, : count - 1] + 1], 1
        )
        return self.candidates[items].gather(1, columns), self.teacher[items].gather(1, columns)


def prepare(arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    with lzma.open(arguments.data, "rt", encoding="utf-8") as file:
        data = json.load(file)
    granite, tokenizer_json = read_granite(arguments.granite)
    roberta, bert = Tokenizer.from_str(tokenizer_json), Tokenizer.from_file(str(arguments.reranker_tokenizer))
    for tokenizer in (roberta, bert):
        tokenizer.no_padding()
        tokenizer.no_truncation()
    texts = [passage[2] for passage in data["passages"]]
    items = data["questions"] + data["mined"]
    queries = [item[0] for item in items]
    state = {
        "passages": Tokens(_encode(roberta, texts), PASSAGE_TOKENS, 1),
        "queries": Tokens(_encode(roberta, queries), QUERY_TOKENS, 1),
        "pair_passages": Tokens(_encode(bert, texts, False), PAIR_PASSAGE_TOKENS, 0),
        "pair_queries": Tokens(_encode(bert, queries, False), PAIR_QUERY_TOKENS, 0),
        "item_wikis": [item[3] for item in items],
        "item_kinds": [item[2] for item in items],
        "item_passages": [item[1] for item in items],
        "question_count": len(data["questions"]),
        "passage_wikis": [passage[0] for passage in data["passages"]],
        "passage_files": [passage[1] for passage in data["passages"]],
        "granite": granite,
        "tokenizer": tokenizer_json,
    }
    print(f"tokenized {len(texts)} passages, {len(items)} queries: {time.monotonic() - started:.0f} s", flush=True)
    base = Transformer(granite, ROBERTA_POSITION_OFFSET).to(DEVICE).eval()
    state["candidates"] = find_candidates(base, state)
    cross_encoder = read_cross_encoder(arguments.cross_encoder)
    print(f"candidates: {time.monotonic() - started:.0f} s", flush=True)
    pairs = PairTokens(state["pair_queries"], state["pair_passages"])
    tuned = tune_cross_encoder(cross_encoder, pairs, state, arguments.minutes)
    count, width = state["candidates"].shape
    numbers = torch.arange(count, device=DEVICE).repeat_interleave(width)
    flat = state["candidates"].flatten()
    original = score_pairs(Transformer(cross_encoder).to(DEVICE).eval(), pairs, numbers, flat)
    scores = (original + TUNED_TEACHER_WEIGHT * score_pairs(tuned, pairs, numbers, flat)) / 2
    state["teacher"] = scores.view(count, width)
    original_weights, tuned_weights = cross_encoder, tuned.get_weights()
    state["cross_encoder"] = {k: (original_weights[k] + tuned_weights[k]) / 2 for k in tuned_weights}
    state["tuned"] = tuned_weights
    arguments.work.mkdir(parents=True, exist_ok=True)
    torch.save(state, arguments.work / "dataset.pt", pickle_protocol=4)
    print(f"prepared: {time.monotonic() - started:.0f} s", flush=True)


def _encode(tokenizer: Tokenizer, texts: list[str], special: bool = True) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=special)]


def find_candidates(model: Transformer, state: dict) -> torch.Tensor:
    """For each query a right passage, then the nearest other passages of its wiki, half of them drawn from further."""
    vectors, query_vectors = embed(model, state["passages"]), embed(model, state["queries"])
    by_wiki = defaultdict(list)
    for number, wiki in enumerate(state["passage_wikis"]):
        by_wiki[wiki].append(number)
    chooser = random.Random(SEED)
    rows = []
    for number, (wiki, right) in enumerate(zip(state["item_wikis"], state["item_passages"], strict=True)):
        own = (
            torch.tensor(by_wiki[wiki], device=DEVICE) if not isinstance(by_wiki[wiki], torch.Tensor) else by_wiki[wiki]
        )
        by_wiki[wiki] = own
        nearest = own[(vectors[own] @ query_vectors[number]).topk(min(60, len(own))).indices].tolist()
        others = [passage for passage in nearest if passage not in right]
        near, far = others[: CANDIDATES // 2], others[CANDIDATES // 2 :]
        chooser.shuffle(far)
        row = [chooser.choice(right), *near, *far][:CANDIDATES]
        rows.append(row + chooser.choices(others or right, k=CANDIDATES - len(row)))
    return torch.tensor(rows, device=DEVICE)


def tune_cross_encoder(weights: Weights, pairs: PairTokens, state: dict, minutes: float) -> Transformer:
    """Fine-tune on the hand-written questions: the right passage against others of other pages."""
    model = Transformer(weights).to(DEVICE).train()
    schedule = Schedule(model, 3e-5, minutes)
    files = [(w, f) for w, f in zip(state["passage_wikis"], state["passage_files"], strict=True)]
    rows = state["candidates"][: state["question_count"]].tolist()
    groups = []
    for number, row in enumerate(rows):
        wrong = [passage for passage in row[1:] if files[passage] != files[row[0]]]
        if len(wrong) >= 11:
            groups.append((number, [row[0], *wrong]))
    chooser, size = random.Random(SEED), 12
    while not schedule.is_over():
        chooser.shuffle(groups)
        for start in range(0, len(groups) - 31, 32):
            if schedule.is_over():
                break
            batch = groups[start : start + 32]
            chosen = [[row[0], *chooser.sample(row[1:], size - 1)] for _, row in batch]
            numbers = torch.tensor([number for number, _ in batch], device=DEVICE).repeat_interleave(size)
            with torch.autocast(DEVICE, torch.bfloat16):
                logits = model(*pairs.take(numbers, torch.tensor(chosen, device=DEVICE).flatten()))
            target = torch.zeros(len(batch), dtype=torch.long, device=DEVICE)
            schedule.step(functional.cross_entropy(logits.view(-1, size), target))
    print(f"teacher: {schedule.steps} steps over {len(groups)} questions", flush=True)
    return model.eval()


def distil_retriever(
    data: Dataset, weights: Weights, fold: int | None, minutes: float, rate: float, guide: float
) -> Weights:
    """Train a retriever to order candidates as the teacher does; with a guide, also to stay near granite's vectors."""
    model = Transformer(weights, ROBERTA_POSITION_OFFSET).to(DEVICE).train()
    schedule, items, batch = Schedule(model, rate, minutes), data.choose_items(fold), 48
    if guide:
        base = Transformer(data.granite, ROBERTA_POSITION_OFFSET).to(DEVICE).eval()
        passage_vectors, query_vectors = embed(base, data.passages), embed(base, data.queries)
    while not schedule.is_over():
        random.shuffle(items)
        for start in range(0, len(items) - batch + 1, batch):
            if schedule.is_over():
                break
            numbers = torch.tensor(items[start : start + batch], device=DEVICE)
            passages, teacher = data.draw_candidates(numbers, TRAINING_CANDIDATES)
            with torch.autocast(DEVICE, torch.bfloat16):
                queries = model(*data.queries.take(numbers))
                vectors = model(*data.passages.take(passages.flatten())).view(batch, TRAINING_CANDIDATES, -1)
            own = torch.einsum("qd,qcd->qc", queries, vectors) / TEMPERATURE
            wanted = functional.softmax(teacher / TEACHER_TEMPERATURE, -1)
            loss = functional.kl_div(functional.log_softmax(own, -1), wanted, reduction="batchmean")
            others = queries @ vectors[:, 0].T / TEMPERATURE
            loss = loss + IN_BATCH_WEIGHT * functional.cross_entropy(others, torch.arange(batch, device=DEVICE))
            if guide:
                near = (vectors * passage_vectors[passages]).sum(-1).mean() + (queries * query_vectors[numbers]).sum(
                    -1
                ).mean()
                loss = loss + guide * (2 - near)
            schedule.step(loss)
    print(f"retriever: {schedule.steps} steps", flush=True)
    return model.get_weights()


def distil_reranker(data: Dataset, fold: int | None, minutes: float) -> Weights:
    """Train a cross-encoder of half the layers to score candidates as the teacher does."""
    model = Transformer(choose_layers(data.cross_encoder, RERANKER_LAYERS)).to(DEVICE).train()
    schedule, items, batch, size = Schedule(model, 1e-4, minutes), data.choose_items(fold), 48, 12
    while not schedule.is_over():
        random.shuffle(items)
        for start in range(0, len(items) - batch + 1, batch):
            if schedule.is_over():
                break
            numbers = torch.tensor(items[start : start + batch], device=DEVICE)
            passages, teacher = data.draw_candidates(numbers, size)
            with torch.autocast(DEVICE, torch.bfloat16):
                logits = model(*data.pairs.take(numbers.repeat_interleave(size), passages.flatten())).view(batch, size)
            wanted = functional.softmax(teacher / TEACHER_TEMPERATURE, -1)
            order = functional.kl_div(
                functional.log_softmax(logits / TEACHER_TEMPERATURE, -1), wanted, reduction="batchmean"
            )
            schedule.step(order + 0.05 * functional.mse_loss(logits, teacher))
    print(f"reranker: {schedule.steps} steps", flush=True)
    return model.get_weights()


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(SEED)
    random.seed(SEED)
    data = Dataset(arguments.work)
    fold = arguments.fold
    if arguments.command == "reranker":
        weights = distil_reranker(data, fold, arguments.minutes)
    elif arguments.command == "student":
        first = choose_layers(data.granite, STUDENT_LAYERS)
        weights = distil_retriever(data, first, fold, arguments.minutes, 1.5e-4, VECTOR_WEIGHT)
    else:
        trained = distil_retriever(data, data.granite, fold, arguments.minutes, 5e-5, 0.0)
        for share in (1.0, 0.6):
            mixed = mix_weights(trained, data.granite, share)
            evaluate_retriever(mixed, data, fold, arguments.evaluation, f"{arguments.output.stem}, share {share}")
        weights = mix_weights(trained, data.granite, TRAINED_SHARE)
    name = arguments.output.stem
    if arguments.command == "reranker":
        evaluate_pairs(weights, data, fold, name)
    else:
        evaluate_retriever(weights, data, fold, arguments.evaluation, name)
    write_layers(arguments.output, weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("data", type=Path)
    for option in ("--granite", "--cross-encoder", "--reranker-tokenizer", "--work"):
        first.add_argument(option, type=Path, required=True)
    first.add_argument("--minutes", type=float, default=0.75, help="time to fine-tune the teacher")
    for name in ("retriever", "student", "reranker"):
        command = commands.add_parser(name)
        command.add_argument("--work", type=Path, required=True)
        command.add_argument("--output", type=Path, required=True)
        command.add_argument("--fold", type=int, choices=range(len(FOLDS)))
        command.add_argument("--minutes", type=float, default=3.0)
        command.add_argument("--evaluation", type=Path, help="judged sets, as training.evaluate describes")
    arguments = parser.parse_args()
    prepare(arguments) if arguments.command == "prepare" else train(arguments)


if __name__ == "__main__":
    main()
