"""Loads a model: verifies every file, opens session and tokenizer, and chooses the device that embeds passages."""

import ctypes
import importlib.util
import mmap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import ModelCorrupt, ModelMismatch
from wikiholt.models.model_card import EMBEDDER, RERANKER, ModelCard, ModelVariant
from wikiholt.models.model_files import (
    WEIGHTS_PLACEHOLDER,
    ModelFiles,
    compute_fingerprint,
    find_model,
    get_variant,
)
from wikiholt.models.self_test import KnownPair, ReferenceVector, parse_pairs, parse_references
from wikiholt.models.tokenizer import ModelTokenizer
from wikiholt.models.weights import (
    Array,
    DenseLayer,
    NibbleTable,
    WeightsLayout,
    convert_to_fp32,
    extract_int8_tensors,
    extract_tensor,
    extract_tensors,
    load_dense_layers,
    read_initializers,
)
from wikiholt.models.word_vectors import WordTable, WordVectors

WORD_TABLE = "words"
"""The name of the table of word vectors in a layout."""

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
    mapped_weights: memoryview | None = None
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
        _release_pages(self.mapped_weights)

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
    weights = files.map_file(variant.weights or variant.graph)
    session, shared_tensors = _open_session(files, card, variant, weights)
    inputs = _check_inputs(session, card)
    references = files.read_verified(card.references) if card.references else b"[]"
    tokenizer = _read_tokenizer(files, card)
    loaded = LoadedModel(
        card=card,
        variant=variant,
        fingerprint=compute_fingerprint(card, variant),
        session=session,
        inputs=inputs,
        tokenizer=tokenizer,
        references=parse_references(references, card) if kind == EMBEDDER else (),
        pairs=parse_pairs(references, card) if kind == RERANKER else (),
        word_vectors=_load_word_vectors(files, card, variant, tokenizer, weights),
        dense=load_dense_layers(files, card) if kind == EMBEDDER else (),
        device=passage_device,
        mapped_weights=weights,
        shared_tensors=shared_tensors,
    )
    _release_pages(weights)
    return loaded


def _release_pages(weights: memoryview | None) -> None:
    """Give back the mapped pages of the weights. Few of them are needed later, and these are read again."""
    if weights is not None and isinstance(weights.obj, mmap.mmap):
        weights.obj.madvise(mmap.MADV_DONTNEED)


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
    weights = memoryview(files.read_verified(variant.weights or variant.graph))
    layout = _read_layout(files, variant)
    table = _find_word_table(layout, card, weights)
    tensors = convert_to_fp32(_read_finished(card, weights)) if layout is None else extract_tensors(layout, weights)
    return tensors if table is None else {**tensors, WORD_TABLE: table[:]}


def _read_finished(card: ModelCard, weights: memoryview) -> dict[str, Array]:
    """The weights in the file of a finished model of our own; none of another one, whose names mean something else."""
    return read_initializers(weights) if card.heads else {}


def _read_layout(files: ModelFiles, variant: ModelVariant) -> WeightsLayout | None:
    return None if variant.layout is None else WeightsLayout.parse(files.read_verified(variant.layout))


def _find_word_table(layout: WeightsLayout | None, card: ModelCard, weights: memoryview) -> WordTable | None:
    if layout is None:
        tensors = _read_finished(card, weights)
        return NibbleTable(tensors[f"{WORD_TABLE}.pairs"], tensors[f"{WORD_TABLE}.scale"]) if tensors else None
    if WORD_TABLE in layout.nibbles:
        return NibbleTable.read(weights, *layout.nibbles[WORD_TABLE][0])
    parts = layout.tensors.get(WORD_TABLE, ())
    return extract_tensor(parts, weights) if len(parts) == 1 else None


def _load_word_vectors(
    files: ModelFiles, card: ModelCard, variant: ModelVariant, tokenizer: ModelTokenizer, weights: memoryview
) -> WordVectors | None:
    """The table of word vectors of a built-in encoder; the weights were verified when the session was opened.

    It stays in the mapped file, so that only the rows in use are loaded into memory.
    """
    table = _find_word_table(_read_layout(files, variant), card, weights)
    return None if table is None else WordVectors(table, tokenizer)


_Session = tuple[onnxruntime.InferenceSession, tuple[onnxruntime.OrtValue, ...]]
"""A session, and the weights that it reads from the mapped file."""


def _open_session(files: ModelFiles, card: ModelCard, variant: ModelVariant, weights: memoryview) -> _Session:
    if variant.weights is None:
        files.verify_digest(variant.graph, weights)
        words = {
            name: tensor for name, tensor in _read_finished(card, weights).items() if name == f"{WORD_TABLE}.pairs"
        }
        return _start_with_tensors(bytes(weights), words, weights, card)
    graph = files.read_verified(variant.graph)
    # Hashing the weights takes as long as preparing them (plain numbers, whatever their values), so both run in
    # parallel. No session is returned before the digest is verified; a wrong digest overrides any error it caused.
    with ThreadPoolExecutor(1) as pool:
        verified = pool.submit(files.verify_digest, variant.weights, weights)
        try:
            if variant.layout is None:
                name = Path(variant.weights).name
                return _start_with_weights_file(graph, bytes(weights), card, name), ()
            return _start_with_tensors(graph, _read_tensors(files, variant, weights), weights, card)
        finally:
            verified.result()


def _start_with_weights_file(graph: bytes, weights: bytes, card: ModelCard, name: str) -> onnxruntime.InferenceSession:
    """A session whose graph refers to a weights file by name; `weights` must stay alive until the session exists."""
    options = _make_options()
    options.add_external_initializers_from_files_in_memory([name], [weights], [len(weights)])
    return _start_session(graph, options, card)


def _start_with_tensors(graph: bytes, tensors: dict[str, Array], weights: memoryview, card: ModelCard) -> _Session:
    """A session with these tensors. It copies them, except those that are parts of the mapped weights.

    A process needs few rows of the largest one, the table of words, and other processes have them in memory already.
    """
    mapped = np.frombuffer(weights, np.uint8) if weights else np.empty(0, np.uint8)
    options = _make_options()
    # The graphs of weights in other packages name a file, which must exist, even if all weights come from here.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(WEIGHTS_PLACEHOLDER))
    shared: dict[str, onnxruntime.OrtValue] = {}
    copied: dict[str, onnxruntime.OrtValue] = {}
    for name, tensor in tensors.items():
        is_mapped = tensor.flags.aligned and np.may_share_memory(tensor, mapped)
        (shared if is_mapped else copied)[name] = onnxruntime.OrtValue.ortvalue_from_numpy(tensor)
    for name, value in shared.items():
        options.add_initializer(name, value)
    if copied:
        options.add_external_initializers(list(copied), list(copied.values()))
    return _start_session(graph, options, card), tuple(shared.values())


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
