"""Make a finished model from trained weights: one int8 ONNX file with its words in 4 bits, tokenizer, references and card.

    python -m training.export wikiholt-1 --state STATE.npz --tokenizer tokenizer.json --calibrate FILE… --base TEXT
    python -m training.export wikiholt-rerank-1 --reranker --state … (the same options)

The number of layers and their sizes are read from the weights. Calibration files are Markdown, or JSON lists of texts, of
the kind to be embedded. Prints what the rounding costs. The vectors for the test of the file go to `--vectors`.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from tokenizers import Tokenizer

from training.encoder_graph import EncoderShape, build_encoder, fill_weights
from training.quantization import (
    WORD_BLOCK,
    compute_smoothing,
    create_session,
    find_largest_inputs,
    quantize,
    quantize_words,
)
from training.state import read_state

MODELS = Path("src/wikiholt/models/models")
TESTS = Path("tests/models/model")
REFERENCE_TEXTS = TESTS / "reference_texts.txt"
WINDOW = 512
MAX_CALIBRATION_TEXTS = 400
PAIR_TOKENS = 192
"""What the reranker reads of a pair."""
WORDS_PER_TEXT = 120
_SENTENCE_END = re.compile(r"(?<=[.?])\s|\n")
_SENTENCE_LENGTHS = range(5, 120)
_SELF_TEST_TEXTS = 4
"""The first of the reference texts are checked before each sync, all of them in the test of the file."""
PAIRS = (
    ("how do I get the old version of a page back", "# History\n\nOpen the page's history and choose Revert."),
    ("how do I get the old version of a page back", "# Coffee machine\n\nDescale it once a month with vinegar."),
    ("restart the web server", "Runbook > Web\nAfter changing the configuration, restart the server with systemctl."),
    ("restart the web server", "Kitchen rules\nWhoever empties the coffee pot makes the next one."),
    ("vacation", "Absence > Holidays\nEveryone has thirty days of leave a year. Ask your team lead two weeks before."),
    ("vacation", "The deployment pipeline builds an image and copies it to both sites."),
)
"""Queries with texts: one that answers, and one that does not."""
Ids = list[tuple[list[int], list[int]]]
"""Token ids and type ids of each text or pair."""


def read_texts(files: Sequence[Path]) -> Iterator[str]:
    """Texts of the size of a chunk, and sentences and headings: queries are short, and their inputs differ."""
    for file in files:
        if file.suffix == ".json":
            yield from json.loads(file.read_text())
            continue
        text = file.read_text()
        yield from (
            short for part in _SENTENCE_END.split(text) if len(short := part.strip("# \n")) in _SENTENCE_LENGTHS
        )
        words = text.split(" ")
        yield from (" ".join(words[at : at + WORDS_PER_TEXT]) for at in range(0, len(words), WORDS_PER_TEXT))


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Ids:
    tokenizer.enable_truncation(WINDOW)
    return [(encoding.ids, encoding.type_ids) for encoding in tokenizer.encode_batch(list(texts))]


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> Ids:
    tokenizer.enable_truncation(PAIR_TOKENS, strategy="only_second")
    return [(encoding.ids, encoding.type_ids) for encoding in tokenizer.encode_batch(list(pairs))]


def make_feeds(ids: Ids, shape: EncoderShape) -> Iterator[dict[str, np.ndarray]]:
    for tokens, types in ids:
        feed = {"input_ids": np.array([tokens], np.int64)}
        yield feed | ({"token_type_ids": np.array([types], np.int64)} if shape.scores_pairs else {})


def compute_outputs(
    model: onnx.ModelProto, tensors: Mapping[str, np.ndarray], ids: Ids, shape: EncoderShape
) -> np.ndarray:
    session = create_session(model, tensors)
    return np.stack([session.run(None, feed)[0].reshape(-1) for feed in make_feeds(ids, shape)])


def make_shape(shape: EncoderShape, block: int) -> EncoderShape:
    return EncoderShape(**{**{name: getattr(shape, name) for name in shape.__slots__}, "block": block})


def report(name: str, exact: np.ndarray, rounded: np.ndarray) -> None:
    """Print how far vectors, or scores, are from those in fp32."""
    if exact.shape[1] == 1:
        away = np.abs(exact - rounded)
        order = np.corrcoef(exact[:, 0], rounded[:, 0])[0, 1]
        print(f"{name}: scores differ by {away.mean():.3f}, at most {away.max():.3f}; correlation {order:.5f}")
        return
    cosines = (exact * rounded).sum(axis=1)
    print(f"{name}: cosine to fp32 {cosines.mean():.5f}, lowest {cosines.min():.5f}")


def format_references(texts: Sequence[str], outputs: np.ndarray, pairs: Sequence[tuple[str, str]] | None) -> str:
    """The texts with their vectors, or the pairs with their scores, as the self-test reads them."""
    if pairs is not None:
        rows = [
            {"query": query, "text": text, "score": round(float(score[0]), 3)}
            for (query, text), score in zip(pairs, outputs, strict=True)
        ]
    else:
        rows = [
            {"text": text, "vector": [round(float(number), 5) for number in vector]}
            for text, vector in zip(texts, outputs, strict=True)
        ]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def format_card(arguments: argparse.Namespace, shape: EncoderShape, files: Sequence[Path]) -> str:
    kind = (
        ['kind = "reranker"']
        if arguments.reranker
        else [
            f"dimensions = {shape.width}",
            f"heads = {shape.heads}",
            'pooling = "none" # in the graph: the first token, then unit length',
            f"unrelated = {arguments.unrelated} # any two texts are that near",
            f"alike = {arguments.alike}",
        ]
    )
    check = "tolerance = 1.0" if arguments.reranker else "fidelity = 0.99 # lowest cosine to the references"
    lines = [
        f"# {arguments.base} Made by training/export.py from the weights of training/README.md.",
        f'name = "{arguments.name}"',
        'licence = "Apache-2.0"',
        f"window = {WINDOW}",
        *kind,
        'precision = "int8"',
        'tokenizer = "tokenizer.json"',
        'references = "references.json"',
        "",
        "[variants.int8]",
        'graph = "model.onnx"',
        check,
        "",
        "[files]",
        *(f'"{file.name}" = "{hashlib.sha256(file.read_bytes()).hexdigest()}"' for file in files),
    ]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--reranker", action="store_true", help="the weights are of a cross-encoder")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True)
    parser.add_argument("--base", required=True, help="what the weights were trained from, for the card: a sentence")
    parser.add_argument("--unrelated", type=float, default=0.345)
    parser.add_argument("--alike", type=float, default=1.0)
    parser.add_argument("--int8-max", type=int, default=127, help="below 127, CPUs without VNNI saturate less")
    parser.add_argument("--to", type=Path, help="default: the model's directory in the package")
    parser.add_argument("--vectors", type=Path, help="default: beside the test of the model")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    to = arguments.to or MODELS / arguments.name
    to.mkdir(parents=True, exist_ok=True)
    shape, tensors = read_state(arguments.state, is_reranker=arguments.reranker, positions=WINDOW)
    print(f"{shape.layers} layers of {shape.width}, {shape.vocabulary} tokens")
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    tokenizer.no_padding()
    texts, calibration = REFERENCE_TEXTS.read_text().splitlines(), list(read_texts(arguments.calibrate))
    calibration = calibration[:: -(-len(calibration) // MAX_CALIBRATION_TEXTS)]
    if arguments.reranker:
        ids = encode_pairs(tokenizer, PAIRS)
        pairs = list(zip(calibration, calibration[1:] + calibration[:1], strict=True))
        calibration_ids = encode_pairs(tokenizer, [(query[:200], text) for query, text in pairs])
    else:
        ids, calibration_ids = encode_texts(tokenizer, texts), encode_texts(tokenizer, calibration)

    fp32 = build_encoder(shape, int8=False)
    exact = compute_outputs(fp32, tensors, ids, shape)
    largest = find_largest_inputs(fp32, tensors, make_feeds(calibration_ids, shape))
    smoothing = {name: compute_smoothing(name, seen) for name, seen in largest.items()}
    rounded = quantize(tensors, smoothing, arguments.int8_max)
    report("int8", exact, compute_outputs(build_encoder(shape, int8=True), rounded, ids, shape))
    rounded["words.pairs"], rounded["words.scale"] = quantize_words(rounded.pop("words"))
    in_blocks = make_shape(shape, WORD_BLOCK)
    model = build_encoder(in_blocks, int8=True)
    report("int8, words in 4 bits", exact, compute_outputs(model, rounded, ids, shape))

    (to / "model.onnx").write_bytes(fill_weights(model, rounded).SerializeToString())
    (to / "tokenizer.json").write_bytes(arguments.tokenizer.read_bytes())
    known = exact if arguments.reranker else exact[:_SELF_TEST_TEXTS]
    pairs_or_none = PAIRS if arguments.reranker else None
    (to / "references.json").write_text(format_references(texts[:_SELF_TEST_TEXTS], known, pairs_or_none))
    files = [to / name for name in ("model.onnx", "tokenizer.json", "references.json")]
    (to / "card.toml").write_text(format_card(arguments, shape, files))
    if not arguments.reranker:
        np.save(arguments.vectors or TESTS / f"{arguments.name}.npy", exact.astype(np.float16))
    print(f"{to}: " + ", ".join(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in files))


if __name__ == "__main__":
    main()
