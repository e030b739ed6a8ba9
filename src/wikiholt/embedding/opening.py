"""Open a model: verify every file it is made of, then make its session and tokenizer."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from wikiholt.embedding.card import EMBEDDER, RERANKER, ModelCard, ModelVariant
from wikiholt.embedding.files import ModelFiles, find_model
from wikiholt.embedding.identity import compute_fingerprint, get_variant
from wikiholt.embedding.proof import KnownPair, ReferenceVector, parse_pairs, parse_references
from wikiholt.embedding.senses import WordVectors
from wikiholt.embedding.tokens import ModelTokenizer
from wikiholt.embedding.weights import Array, WeightsLayout, extract_tensors, extract_int8_tensors, extract_tensor
from wikiholt.errors import ModelCorrupt, ModelMismatch

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
        hint = f"a text model takes input_ids and, if it wants them, {' and '.join(sorted(_KNOWN_INPUTS - {'input_ids'}))}"
        raise ModelMismatch(f"The graph of {card.name} takes {', '.join(sorted(names))}", hint=hint)
    width = session.get_outputs()[0].shape[-1:]
    if width and isinstance(width[0], int) and width[0] != card.dimensions:
        gives = f"vectors of {width[0]} dimensions" if card.kind == EMBEDDER else f"{width[0]} numbers a pair"
        message = f"The graph of {card.name} gives {gives}, its card says {card.dimensions}"
        raise ModelMismatch(message, hint="correct the card, or use the graph that belongs to it")
    return frozenset(names)
