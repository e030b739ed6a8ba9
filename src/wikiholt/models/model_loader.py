"""Loads a model: verifies every file, opens session and tokenizer, and chooses the device that embeds passages."""

import ctypes
import importlib.util
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import ModelCorrupt, ModelMismatch
from wikiholt.models.model_card import EMBEDDER, RERANKER, ModelCard, ModelVariant
from wikiholt.models.model_files import ModelFiles, compute_fingerprint, find_model, get_variant
from wikiholt.models.self_test import KnownPair, ReferenceVector, parse_pairs, parse_references
from wikiholt.models.tokenizer import ModelTokenizer
from wikiholt.models.weights import (
    Array,
    DenseLayer,
    NibbleTable,
    convert_to_fp32,
    load_dense_layers,
    read_initializers,
)
from wikiholt.models.word_vectors import WordTable, WordVectors

WORD_TABLE = "words"
"""The name of the table of word vectors, in fp32 or in 4 bits with `.pairs` and `.scale`."""
_MIN_SHARED_BYTES = 1 << 20

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
_DRIVERS = ("libcuda.so.1", "nvcuda.dll")

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
    mapped_graph: memoryview | None = None
    shared_tensors: tuple[onnxruntime.OrtValue, ...] = ()
    """Weights that the session reads from the mapped file. It does not own them, so they are kept here."""

    def run(self, ids: IntArray, type_ids: IntArray | None = None) -> FloatArray:
        """The model's first output for one sequence of token ids."""
        output: FloatArray = self.session.run(None, self._make_feed(ids, type_ids))[0]
        return output

    def release_memory(self) -> None:
        """Free the memory that runs keep for the next one; long texts need tens of megabytes."""
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.session.run(None, self._make_feed(self.tokenizer.encode_query("")), options)
        _release_pages(self.mapped_graph)

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
    graph = files.map_verified(variant.graph)
    words = _read_words(graph, card)
    session, shared_tensors = _open_session(files, card, variant, graph, words)
    references = files.read_verified(card.references) if card.references else b"[]"
    tokenizer = ModelTokenizer(files.read_verified(card.tokenizer), card)
    loaded = LoadedModel(
        card=card,
        variant=variant,
        fingerprint=compute_fingerprint(card, variant),
        session=session,
        inputs=_check_inputs(session, card),
        tokenizer=tokenizer,
        references=parse_references(references, card) if kind == EMBEDDER else (),
        pairs=parse_pairs(references, card) if kind == RERANKER else (),
        word_vectors=WordVectors(_make_word_table(words), tokenizer) if words else None,
        dense=load_dense_layers(files, card) if kind == EMBEDDER else (),
        device=passage_device,
        mapped_graph=graph,
        shared_tensors=shared_tensors,
    )
    _release_pages(graph)
    return loaded


def _release_pages(graph: memoryview | None) -> None:
    """Give back the mapped pages of the file. Few of them are needed later, and these are read again."""
    if graph is not None and isinstance(graph.obj, mmap.mmap):
        graph.obj.madvise(mmap.MADV_DONTNEED)


def load_tokenizer(model: str | Path) -> ModelTokenizer:
    """The tokenizer of a model, without the model. Raises ModelMissing, ModelCorrupt."""
    directory, card = find_model(model, EMBEDDER)
    return ModelTokenizer(ModelFiles(directory, card).read_verified(card.tokenizer), card)


def read_encoder_tensors(model: str | Path, precision: str) -> dict[str, Array]:
    """The weights of one of our encoders in fp32, for a GPU. Raises ModelMissing, ModelCorrupt."""
    directory, card = find_model(model, EMBEDDER)
    graph = ModelFiles(directory, card).map_verified(get_variant(card, precision).graph)
    tensors = convert_to_fp32(read_initializers(graph)) if card.heads else {}
    words = _read_words(graph, card)
    return {**tensors, WORD_TABLE: _make_word_table(words)[:]} if words else tensors


def _read_words(graph: memoryview, card: ModelCard) -> dict[str, Array]:
    """The table of words, not copied, of an encoder whose weights have our names; empty for another model."""
    tensors = read_initializers(graph) if card.heads else {}
    return {name: tensor for name, tensor in tensors.items() if name.partition(".")[0] == WORD_TABLE}


def _make_word_table(words: Mapping[str, Array]) -> WordTable:
    """The table of words in fp32, or in 4 bits. It stays in the mapped file, so that only rows in use are loaded."""
    return (
        words[WORD_TABLE]
        if WORD_TABLE in words
        else NibbleTable(words[f"{WORD_TABLE}.pairs"], words[f"{WORD_TABLE}.scale"])
    )


def _open_session(
    files: ModelFiles, card: ModelCard, variant: ModelVariant, graph: memoryview, words: Mapping[str, Array]
) -> tuple[onnxruntime.InferenceSession, tuple[onnxruntime.OrtValue, ...]]:
    """A session, and the values that it reads from the mapped file.

    It copies all weights but the largest, the table of words: a process needs few of its rows, and other processes have
    them in memory already.
    """
    options = _make_options()
    shared = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor)
        for name, tensor in words.items()
        if tensor.nbytes > _MIN_SHARED_BYTES and tensor.flags.aligned
    }
    for name, value in shared.items():
        options.add_initializer(name, value)
    weights = b""
    if variant.weights is not None:  # must stay alive until the session exists
        weights = files.read_verified(variant.weights)
        options.add_external_initializers_from_files_in_memory([Path(variant.weights).name], [weights], [len(weights)])
    return _start_session(bytes(graph), options, card), tuple(shared.values())


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
        session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=["LayerNormFusion"]
        )
    except Exception as error:  # onnxruntime's exceptions have no common base class
        hint = "the file is not a model that onnxruntime can run on the CPU; export it again"
        raise ModelCorrupt(f"The graph of {card.name} cannot be loaded: {error}", hint=hint) from error
    session._model_bytes = None  # the file as a whole, which the session keeps only to start again with other providers
    return session


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


# Where passages are embedded: on the CPU, or on a GPU with CUDA if PyTorch is installed.


def choose_device(device: str, card: ModelCard) -> str:
    """The device that embeds passages for a device setting. Raises ModelMismatch if `cuda` is impossible.

    PyTorch is not imported: that takes seconds, and a process that only searches does not need it.
    """
    if device == CPU:
        return CPU
    problem = _find_problem(card)
    if problem and device == CUDA:
        raise ModelMismatch(f"device = cuda, but {problem[0]}", hint=problem[1])
    return CPU if problem else CUDA


def _find_problem(card: ModelCard) -> tuple[str, str] | None:
    """Why this model cannot run on a GPU here, and a hint."""
    if not card.heads:
        hint = "set device to auto or cpu, or run the model on a server (model = openai:NAME)"
        return f"{card.name} is an ONNX file, which runs on the CPU only", hint
    if not _has_pytorch():
        return "PyTorch is not installed", "install the extra gpu, or set device to auto or cpu"
    if not _has_driver():
        return "there is no CUDA driver", "install the driver of the GPU, or set device to auto or cpu"
    return None


def _has_pytorch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _has_driver() -> bool:
    for library in _DRIVERS:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False
