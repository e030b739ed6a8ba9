"""The weights that a graph without weights asks for, cut from the carrier's file and, for int8, rounded to a grid.

Each matrix gets one scale a column. Its rows are first evened out against the activations they meet (`smooth`): a few
columns of the activations are many times larger than the rest and would otherwise take the whole grid for themselves.
"""

import io
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray
from wikiholt.embedding.model_card import EMBEDDER, RERANKER, ModelCard, ModelVariant
from wikiholt.embedding.model_files import ModelFiles, compute_fingerprint, find_model, get_variant
from wikiholt.embedding.self_test import KnownPair, ReferenceVector, parse_pairs, parse_references
from wikiholt.embedding.tokenizer import ModelTokenizer
from wikiholt.embedding.word_vectors import WordVectors
from wikiholt.errors import ModelCorrupt, ModelMismatch

Array = NDArray[Any]
_INT8_MAX = 127


@dataclass(frozen=True, slots=True)
class WeightsLayout:
    """Where each tensor's parts lie in the weights, which matrices int8 rounds, and which it evens out before that."""

    tensors: Mapping[str, tuple[tuple[int, ...], ...]]
    quantized: tuple[str, ...]
    smoothed: tuple[str, ...]

    @classmethod
    def parse(cls, data: bytes) -> "WeightsLayout":
        table = json.loads(data)
        tensors = {name: tuple(tuple(part) for part in parts) for name, parts in table["tensors"].items()}
        return cls(tensors, tuple(table["rounded"]), tuple(table["smoothed"]))


def extract_tensors(layout: WeightsLayout, weights: memoryview) -> dict[str, Array]:
    """Every tensor in fp32; those that lie in one piece are not copied."""
    return {name: extract_tensor(parts, weights) for name, parts in layout.tensors.items()}


def extract_int8_tensors(layout: WeightsLayout, weights: memoryview, smoothing: bytes) -> dict[str, Array]:
    """Every tensor, the rounded matrices as `.int8` and `.scale` and, for those evened out, `.smooth`."""
    tensors = extract_tensors(layout, weights)
    factors: FloatArray = np.load(io.BytesIO(smoothing), allow_pickle=False)
    start = 0
    for name in layout.quantized:
        matrix: FloatArray = tensors.pop(name)
        if name in layout.smoothed:
            smooth = factors[start : start + len(matrix)]
            start += len(matrix)
            matrix = np.divide(matrix, smooth[:, None], dtype=np.float32)
            tensors[f"{name}.smooth"] = smooth
        tensors[f"{name}.int8"], tensors[f"{name}.scale"] = _quantize(matrix)
    return tensors


def _quantize(matrix: FloatArray) -> tuple[Array, FloatArray]:
    scale = np.maximum(matrix.max(axis=0), -matrix.min(axis=0)) / np.float32(_INT8_MAX)
    scale[scale == 0] = 1
    return np.rint(matrix / scale).astype(np.int8), scale


def extract_tensor(parts: tuple[tuple[int, ...], ...], weights: memoryview) -> Array:
    """One tensor in fp32 from where its parts lie; not copied where it lies in one piece."""
    pieces = []
    for offset, *shape in parts:
        count = int(np.prod(shape))
        if offset + 4 * count > len(weights):
            raise ModelCorrupt(
                "The file of weights is shorter than its layout", hint="install the model's package again"
            )
        pieces.append(np.frombuffer(weights, np.float32, count, offset).reshape(shape))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


# Open a model: verify every file it is made of, then make its session and tokenizer.


_KNOWN_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A verified model, ready to run."""

    card: ModelCard
    variant: ModelVariant
    fingerprint: str
    session: onnxruntime.InferenceSession
    inputs: frozenset[str]
    tokenizer: ModelTokenizer
    references: tuple[ReferenceVector, ...]
    pairs: tuple[KnownPair, ...]
    word_vectors: WordVectors | None


def load_model(model: str | Path, precision: str | None, kind: str = EMBEDDER) -> LoadedModel:
    """The model with every file verified; raises ModelMissing, ModelCorrupt or ModelMismatch."""
    directory, card = find_model(model, kind)
    variant = get_variant(card, precision)
    files = ModelFiles(directory, card)
    session = _open_session(files, card, variant)
    inputs = _check_inputs(session, card)
    known = files.read_verified(card.references) if card.references else b"[]"
    tokens = ModelTokenizer(files.read_verified(card.tokenizer), card)
    return LoadedModel(
        card=card,
        variant=variant,
        fingerprint=compute_fingerprint(card, variant),
        session=session,
        inputs=inputs,
        tokenizer=tokens,
        references=parse_references(known, card) if kind == EMBEDDER else (),
        pairs=parse_pairs(known, card) if kind == RERANKER else (),
        word_vectors=_load_word_vectors(files, variant, tokens),
    )


def _load_word_vectors(files: ModelFiles, variant: ModelVariant, tokenizer: ModelTokenizer) -> WordVectors | None:
    """The table of words, where the layout says where it lies; the file was verified when the session was made.

    It is mapped anew: of this view only rows that are looked up come into memory.
    """
    if variant.weights is None or variant.layout is None:
        return None
    parts = WeightsLayout.parse(files.read_verified(variant.layout)).tensors.get("words", ())
    if len(parts) != 1:
        return None
    return WordVectors(extract_tensor(parts, files.map_file(variant.weights)), tokenizer)


def _open_session(files: ModelFiles, card: ModelCard, variant: ModelVariant) -> onnxruntime.InferenceSession:
    graph = files.read_verified(variant.graph)
    if variant.weights is None:
        return _start_session(graph, _make_options(), card)
    data = files.map_file(variant.weights)
    # Hashing the weights takes as long as preparing them (plain numbers, whatever they are): the two go side by side,
    # and no session leaves here before the digest is right. A wrong digest says more than whatever it led to.
    with ThreadPoolExecutor(1) as pool:
        verified = pool.submit(files.verify_digest, variant.weights, data)
        try:
            if variant.layout is None:
                return _start_with_weights_file(graph, bytes(data), card, Path(variant.weights).name)
            return _start_with_tensors(graph, _read_tensors(files, variant, data), card)
        finally:
            verified.result()


def _start_with_weights_file(graph: bytes, weights: bytes, card: ModelCard, name: str) -> onnxruntime.InferenceSession:
    """A session whose graph refers to a file of weights by name; `weights` must live until the session is made."""
    options = _make_options()
    options.add_external_initializers_from_files_in_memory([name], [weights], [len(weights)])
    return _start_session(graph, options, card)


def _start_with_tensors(graph: bytes, tensors: dict[str, Array], card: ModelCard) -> onnxruntime.InferenceSession:
    """A session with these weights; onnxruntime copies them when the session is made, so they must live until then."""
    options = _make_options()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    return _start_session(graph, options, card)


def _read_tensors(files: ModelFiles, variant: ModelVariant, weights: memoryview) -> dict[str, Array]:
    layout = WeightsLayout.parse(files.read_verified(variant.layout or ""))
    if variant.smoothing is None:
        return extract_tensors(layout, weights)
    return extract_int8_tensors(layout, weights, files.read_verified(variant.smoothing))


def _make_options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    # One thread a call and several calls at a time: on few cores this is the fastest way (bench/results/embed.md).
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _start_session(graph: bytes, options: onnxruntime.SessionOptions, card: ModelCard) -> onnxruntime.InferenceSession:
    try:
        # Fusing would undo the vectorised layer normalisation of our graphs.
        return onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=["LayerNormFusion"]
        )
    except Exception as error:  # onnxruntime raises its own kinds, without a common parent
        hint = "the file is not a model that onnxruntime can run on the CPU; export it again"
        raise ModelCorrupt(f"The graph of {card.name} cannot be loaded: {error}", hint=hint) from error


def _check_inputs(session: onnxruntime.InferenceSession, card: ModelCard) -> frozenset[str]:
    names = {given.name for given in session.get_inputs()}
    if "input_ids" not in names or not names <= _KNOWN_INPUTS:
        hint = (
            f"a text model takes input_ids and, if it wants them, {' and '.join(sorted(_KNOWN_INPUTS - {'input_ids'}))}"
        )
        raise ModelMismatch(f"The graph of {card.name} takes {', '.join(sorted(names))}", hint=hint)
    width = session.get_outputs()[0].shape[-1:]
    if width and isinstance(width[0], int) and width[0] != card.dimensions:
        gives = f"vectors of {width[0]} dimensions" if card.kind == EMBEDDER else f"{width[0]} numbers a pair"
        message = f"The graph of {card.name} gives {gives}, its card says {card.dimensions}"
        raise ModelMismatch(message, hint="correct the card, or use the graph that belongs to it")
    return frozenset(names)
