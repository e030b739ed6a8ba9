"""Loads a model: verifies every file, extracts the weights (quantized for int8), and opens session and tokenizer.

For int8 each matrix gets one scale per column. Its rows are first balanced against the activations (smoothing): a few
activation columns are many times larger than the rest and would otherwise use up the int8 range. A weights file may
contain tensors in blocks: int8 or 4-bit numbers with one scale per block. Such matrices are converted; the table of
words stays as it is.
"""

import io
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.embedding.dense import DenseLayer, load_dense_layers
from wikiholt.embedding.device import CPU, choose_device
from wikiholt.embedding.model_card import EMBEDDER, INT8_MAX, RERANKER, ModelCard, ModelVariant
from wikiholt.embedding.model_files import ModelFiles, compute_fingerprint, find_model, get_variant
from wikiholt.embedding.nibbles import NibbleTable
from wikiholt.embedding.self_test import KnownPair, ReferenceVector, parse_pairs, parse_references
from wikiholt.embedding.tokenizer import ModelTokenizer
from wikiholt.embedding.word_vectors import BlockTable, WordVectors
from wikiholt.errors import ModelCorrupt, ModelMismatch

Array = NDArray[Any]
_BLOCK_SIZE = 64
WORD_TABLE = "words"
"""The name of the table of word vectors in a layout."""


@dataclass(frozen=True, slots=True)
class WeightsLayout:
    """Offsets of each tensor's parts in the weights, the matrices that int8 quantizes, and those it smooths first.

    `blocks` locates the tensors in blocks of `block_size`: offset of the numbers, offset of the scales, rows, columns.
    `nibbles` locates the parts of tensors of 4-bit numbers: offset, rows, columns. Such a matrix has a row per output.
    """

    tensors: Mapping[str, tuple[tuple[int, ...], ...]]
    quantized: tuple[str, ...]
    smoothed: tuple[str, ...]
    blocks: Mapping[str, tuple[int, int, int, int]]
    block_size: int
    transposed: frozenset[str] = frozenset()
    """The fp32 matrices that the file stores with a row per output."""
    nibbles: Mapping[str, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> "WeightsLayout":
        table = json.loads(data)
        tensors = {name: tuple(tuple(part) for part in parts) for name, parts in table["tensors"].items()}
        blocks = {name: tuple(location) for name, location in table.get("blocks", {}).items()}
        nibbles = {name: tuple(tuple(part) for part in parts) for name, parts in table.get("nibbles", {}).items()}
        return cls(
            tensors,
            tuple(table["rounded"]),
            tuple(table["smoothed"]),
            blocks,
            table.get("block_size", _BLOCK_SIZE),
            frozenset(table.get("transposed", ())),
            nibbles,
        )


def extract_tensors(layout: WeightsLayout, weights: memoryview) -> dict[str, Array]:
    """Every tensor in fp32, except tables in blocks: as `.int8` or `.pairs`, and `.scale`.

    An fp32 tensor of one part is not copied.
    """
    tensors: dict[str, Array] = {
        name: extract_tensor(parts, weights, is_transposed=name in layout.transposed)
        for name, parts in layout.tensors.items()
    }
    for name in layout.blocks:
        numbers, scales = extract_blocks(layout, name, weights)
        if name in layout.quantized:
            tensors[name] = np.ascontiguousarray((numbers * scales).reshape(len(numbers), -1).T)
        else:
            tensors[f"{name}.int8"], tensors[f"{name}.scale"] = numbers, scales
    for name, parts in layout.nibbles.items():
        tables = [NibbleTable.read(weights, *part) for part in parts]
        if name in layout.quantized:
            tensors[name] = np.ascontiguousarray(np.concatenate([table[:] for table in tables]).T)
        else:
            tensors[f"{name}.pairs"], tensors[f"{name}.scale"] = tables[0].pairs, tables[0].scales
    return tensors


def extract_int8_tensors(
    layout: WeightsLayout, weights: memoryview, smoothing: bytes, int8_max: int = INT8_MAX
) -> dict[str, Array]:
    """Every tensor; quantized matrices as `.int8` and `.scale` and, if smoothed, `.smooth`."""
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
        tensors[f"{name}.int8"], tensors[f"{name}.scale"] = _quantize(matrix, int8_max)
    return tensors


def _quantize(matrix: FloatArray, int8_max: int) -> tuple[Array, FloatArray]:
    scale = np.maximum(matrix.max(axis=0), -matrix.min(axis=0)) / np.float32(int8_max)
    scale[scale == 0] = 1
    return np.rint(matrix / scale).astype(np.int8), scale


def extract_tensor(
    parts: tuple[tuple[int, ...], ...], weights: memoryview, *, is_transposed: bool = False
) -> FloatArray:
    """One tensor in fp32 from its parts; not copied if there is only one part, unless it is transposed."""
    pieces: list[FloatArray] = [_read_array(weights, np.float32, offset, shape) for offset, *shape in parts]
    if is_transposed:
        pieces = [np.ascontiguousarray(piece.T) for piece in pieces]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


def extract_blocks(layout: WeightsLayout, name: str, weights: memoryview) -> tuple[Array, FloatArray]:
    """The numbers (rows × blocks × block size) and scales (rows × blocks × 1) of a tensor in blocks, not copied."""
    offset, scale_offset, rows, columns = layout.blocks[name]
    blocks = columns // layout.block_size
    numbers = _read_array(weights, np.int8, offset, [rows, blocks, layout.block_size])
    return numbers, _read_array(weights, np.float32, scale_offset, [rows, blocks, 1])


def _read_array(weights: memoryview, kind: type[np.generic], offset: int, shape: Sequence[int]) -> Array:
    count = int(np.prod(shape))
    if offset + count * np.dtype(kind).itemsize > len(weights):
        raise ModelCorrupt("The weights file is shorter than its layout", hint="reinstall the model's package")
    return np.frombuffer(weights, kind, count, offset).reshape(shape)


# Sessions.

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
    dense: tuple[DenseLayer, ...] = ()
    device: str = CPU
    """Where passages are embedded; queries are always embedded on the CPU."""

    def run(self, ids: IntArray, type_ids: IntArray | None = None) -> FloatArray:
        """The model's first output for one sequence of token ids."""
        output: FloatArray = self.session.run(None, self._make_feed(ids, type_ids))[0]
        return output

    def release_memory(self) -> None:
        """Free the memory that runs keep for the next one; long texts need tens of megabytes."""
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.session.run(None, self._make_feed(self.tokenizer.encode_query("")), options)

    def _make_feed(self, ids: IntArray, type_ids: IntArray | None = None) -> dict[str, IntArray]:
        feed = {"input_ids": ids[None, :]}
        if "attention_mask" in self.inputs:
            feed["attention_mask"] = np.ones((1, len(ids)), np.int64)
        if "token_type_ids" in self.inputs:
            feed["token_type_ids"] = np.zeros((1, len(ids)), np.int64) if type_ids is None else type_ids[None, :]
        return feed


def load_model(model: str | Path, precision: str | None, kind: str = EMBEDDER, *, device: str = CPU) -> LoadedModel:
    """Load a model, with every file verified. Raises ModelMissing, ModelCorrupt, ModelMismatch."""
    directory, card = find_model(model, kind)
    variant = get_variant(card, precision)
    files = ModelFiles(directory, card)
    passage_device = choose_device(device, card) if kind == EMBEDDER else CPU
    session = _open_session(files, card, variant)
    inputs = _check_inputs(session, card)
    references = files.read_verified(card.references) if card.references else b"[]"
    tokenizer = _read_tokenizer(files, card)
    return LoadedModel(
        card=card,
        variant=variant,
        fingerprint=compute_fingerprint(card, variant),
        session=session,
        inputs=inputs,
        tokenizer=tokenizer,
        references=parse_references(references, card) if kind == EMBEDDER else (),
        pairs=parse_pairs(references, card) if kind == RERANKER else (),
        word_vectors=_load_word_vectors(files, variant, tokenizer),
        dense=load_dense_layers(files, card) if kind == EMBEDDER else (),
        device=passage_device,
    )


def load_tokenizer(model: str | Path) -> ModelTokenizer:
    """The tokenizer of a model, without the model. Raises ModelMissing, ModelCorrupt."""
    directory, card = find_model(model, EMBEDDER)
    return _read_tokenizer(ModelFiles(directory, card), card)


def _read_tokenizer(files: ModelFiles, card: ModelCard) -> ModelTokenizer:
    return ModelTokenizer(files.read_verified(card.tokenizer, card.tokenizer_bytes), card)


def read_encoder_tensors(model: str | Path, precision: str) -> dict[str, Array]:
    """Every tensor of a built-in encoder in fp32, for a GPU. Raises ModelMissing, ModelCorrupt."""
    directory, card = find_model(model, EMBEDDER)
    variant, files = get_variant(card, precision), ModelFiles(directory, card)
    layout = WeightsLayout.parse(files.read_verified(variant.layout or ""))
    weights = memoryview(files.read_verified(variant.weights or ""))
    tensors = extract_tensors(layout, weights)
    if WORD_TABLE in layout.blocks:
        numbers, scales = tensors.pop(f"{WORD_TABLE}.int8"), tensors.pop(f"{WORD_TABLE}.scale")
        tensors[WORD_TABLE] = (numbers * scales).reshape(len(numbers), -1)
    elif WORD_TABLE in layout.nibbles:
        del tensors[f"{WORD_TABLE}.pairs"], tensors[f"{WORD_TABLE}.scale"]
        tensors[WORD_TABLE] = NibbleTable.read(weights, *layout.nibbles[WORD_TABLE][0])[:]
    return tensors


def _load_word_vectors(files: ModelFiles, variant: ModelVariant, tokenizer: ModelTokenizer) -> WordVectors | None:
    """The table of word vectors if the layout lists it; the weights were verified when the session was opened.

    The file is mapped again, so that only the rows in use are loaded into memory.
    """
    if variant.weights is None or variant.layout is None:
        return None
    layout = WeightsLayout.parse(files.read_verified(variant.layout))
    if WORD_TABLE in layout.blocks:
        numbers, scales = extract_blocks(layout, WORD_TABLE, files.map_file(variant.weights))
        return WordVectors(BlockTable(numbers, scales), tokenizer)
    if WORD_TABLE in layout.nibbles:
        return WordVectors(NibbleTable.read(files.map_file(variant.weights), *layout.nibbles[WORD_TABLE][0]), tokenizer)
    if len(parts := layout.tensors.get(WORD_TABLE, ())) != 1:
        return None
    return WordVectors(extract_tensor(parts, files.map_file(variant.weights)), tokenizer)


def _open_session(files: ModelFiles, card: ModelCard, variant: ModelVariant) -> onnxruntime.InferenceSession:
    graph = files.read_verified(variant.graph)
    if variant.weights is None:
        return _start_session(graph, _make_options(), card)
    data = files.map_file(variant.weights)
    # Hashing the weights takes as long as preparing them (plain numbers, whatever their values), so both run in
    # parallel. No session is returned before the digest is verified; a wrong digest overrides any error it caused.
    with ThreadPoolExecutor(1) as pool:
        verified = pool.submit(files.verify_digest, variant.weights, data)
        try:
            if variant.layout is None:
                return _start_with_weights_file(graph, bytes(data), card, Path(variant.weights).name)
            return _start_with_tensors(graph, _read_tensors(files, variant, data), card)
        finally:
            verified.result()


def _start_with_weights_file(graph: bytes, weights: bytes, card: ModelCard, name: str) -> onnxruntime.InferenceSession:
    """A session whose graph refers to a weights file by name; `weights` must stay alive until the session exists."""
    options = _make_options()
    options.add_external_initializers_from_files_in_memory([name], [weights], [len(weights)])
    return _start_session(graph, options, card)


def _start_with_tensors(graph: bytes, tensors: dict[str, Array], card: ModelCard) -> onnxruntime.InferenceSession:
    """A session with these weights; onnxruntime copies them, so they must stay alive until the session exists."""
    options = _make_options()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    return _start_session(graph, options, card)


def _read_tensors(files: ModelFiles, variant: ModelVariant, weights: memoryview) -> dict[str, Array]:
    layout = WeightsLayout.parse(files.read_verified(variant.layout or ""))
    if variant.smoothing is None:
        return extract_tensors(layout, weights)
    return extract_int8_tensors(layout, weights, files.read_verified(variant.smoothing), variant.int8_max)


def _make_options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    # One thread per call and several calls in parallel is fastest on few cores (bench/results/embed.md).
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _start_session(graph: bytes, options: onnxruntime.SessionOptions, card: ModelCard) -> onnxruntime.InferenceSession:
    try:
        # This fusion would undo the vectorized layer normalization of the built-in graphs.
        return onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=["LayerNormFusion"]
        )
    except Exception as error:  # onnxruntime's exceptions have no common base class
        hint = "the file is not a model that onnxruntime can run on the CPU; export it again"
        raise ModelCorrupt(f"The graph of {card.name} cannot be loaded: {error}", hint=hint) from error


def _check_inputs(session: onnxruntime.InferenceSession, card: ModelCard) -> frozenset[str]:
    names = {model_input.name for model_input in session.get_inputs()}
    if "input_ids" not in names or not names <= _KNOWN_INPUTS:
        optional = " and ".join(sorted(_KNOWN_INPUTS - {"input_ids"}))
        hint = f"a text model takes input_ids and optionally {optional}"
        raise ModelMismatch(f"The graph of {card.name} takes {', '.join(sorted(names))}", hint=hint)
    width = session.get_outputs()[0].shape[-1:]
    if width and isinstance(width[0], int) and width[0] != card.width:
        output = f"vectors of {width[0]} dimensions" if card.kind == EMBEDDER else f"{width[0]} numbers per pair"
        message = f"The graph of {card.name} returns {output}, its card says {card.width}"
        raise ModelMismatch(message, hint="correct the card, or use the graph that belongs to it")
    return frozenset(names)
