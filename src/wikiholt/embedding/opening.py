"""Open a model: verify every file it is made of, then make its session and tokenizer."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from wikiholt.embedding.card import EMBEDDER, RERANKER, Card, Variant
from wikiholt.embedding.files import ModelFiles, find_model
from wikiholt.embedding.identity import fingerprint, variant_of
from wikiholt.embedding.proof import KnownPair, Reference, parse_pairs, parse_references
from wikiholt.embedding.senses import WordSenses
from wikiholt.embedding.tokens import Tokens
from wikiholt.embedding.weights import Array, Layout, cut, cut_int8, tensor
from wikiholt.errors import ModelCorrupt, ModelMismatch

_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A verified model, ready to run."""

    card: Card
    variant: Variant
    fingerprint: str
    session: onnxruntime.InferenceSession
    inputs: frozenset[str]
    tokens: Tokens
    references: tuple[Reference, ...]
    pairs: tuple[KnownPair, ...]
    senses: WordSenses | None


def open_model(model: str | Path, precision: str | None, kind: str = EMBEDDER) -> OpenModel:
    """The model with every file verified; raises ModelMissing, ModelCorrupt or ModelMismatch."""
    directory, card = find_model(model, kind)
    variant = variant_of(card, precision)
    files = ModelFiles(directory, card)
    session = _session(files, card, variant)
    inputs = _checked_inputs(session, card)
    known = files.read(card.references) if card.references else b"[]"
    tokens = Tokens(files.read(card.tokenizer), card)
    return OpenModel(
        card=card,
        variant=variant,
        fingerprint=fingerprint(card, variant),
        session=session,
        inputs=inputs,
        tokens=tokens,
        references=parse_references(known, card) if kind == EMBEDDER else (),
        pairs=parse_pairs(known, card) if kind == RERANKER else (),
        senses=_senses(files, variant, tokens),
    )


def _senses(files: ModelFiles, variant: Variant, tokens: Tokens) -> WordSenses | None:
    """The table of words, where the layout says where it lies; the file was verified when the session was made.

    It is mapped anew: of this view only rows that are looked up come into memory.
    """
    if variant.weights is None or variant.layout is None:
        return None
    parts = Layout.parse(files.read(variant.layout)).tensors.get("words", ())
    if len(parts) != 1:
        return None
    return WordSenses(tensor(parts, files.view(variant.weights)), tokens)


def _session(files: ModelFiles, card: Card, variant: Variant) -> onnxruntime.InferenceSession:
    graph = files.read(variant.graph)
    if variant.weights is None:
        return _start(graph, _options(), card)
    data = files.view(variant.weights)
    # Hashing the weights takes as long as preparing them (plain numbers, whatever they are): the two go side by side,
    # and no session leaves here before the digest is right. A wrong digest says more than whatever it led to.
    with ThreadPoolExecutor(1) as pool:
        verified = pool.submit(files.verify, variant.weights, data)
        try:
            if variant.layout is None:
                return _started_beside(graph, bytes(data), card, Path(variant.weights).name)
            return _started_with(graph, _tensors(files, variant, data), card)
        finally:
            verified.result()


def _started_beside(graph: bytes, weights: bytes, card: Card, name: str) -> onnxruntime.InferenceSession:
    """A session whose graph refers to a file of weights by name; `weights` must live until the session is made."""
    options = _options()
    options.add_external_initializers_from_files_in_memory([name], [weights], [len(weights)])
    return _start(graph, options, card)


def _started_with(graph: bytes, tensors: dict[str, Array], card: Card) -> onnxruntime.InferenceSession:
    """A session with these weights; onnxruntime copies them when the session is made, so they must live until then."""
    options = _options()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    return _start(graph, options, card)


def _tensors(files: ModelFiles, variant: Variant, weights: memoryview) -> dict[str, Array]:
    layout = Layout.parse(files.read(variant.layout or ""))
    if variant.smoothing is None:
        return cut(layout, weights)
    return cut_int8(layout, weights, files.read(variant.smoothing))


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    # One thread a call and several calls at a time: on few cores this is the fastest way (bench/results/embed.md).
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _start(graph: bytes, options: onnxruntime.SessionOptions, card: Card) -> onnxruntime.InferenceSession:
    try:
        # Fusing would undo the vectorised layer normalisation of our graphs.
        return onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=["LayerNormFusion"]
        )
    except Exception as error:  # onnxruntime raises its own kinds, without a common parent
        hint = "the file is not a model that onnxruntime can run on the CPU; export it again"
        raise ModelCorrupt(f"The graph of {card.name} cannot be loaded: {error}", hint=hint) from error


def _checked_inputs(session: onnxruntime.InferenceSession, card: Card) -> frozenset[str]:
    names = {given.name for given in session.get_inputs()}
    if "input_ids" not in names or not names <= _INPUTS:
        hint = f"a text model takes input_ids and, if it wants them, {' and '.join(sorted(_INPUTS - {'input_ids'}))}"
        raise ModelMismatch(f"The graph of {card.name} takes {', '.join(sorted(names))}", hint=hint)
    width = session.get_outputs()[0].shape[-1:]
    if width and isinstance(width[0], int) and width[0] != card.dimensions:
        gives = f"vectors of {width[0]} dimensions" if card.kind == EMBEDDER else f"{width[0]} numbers a pair"
        message = f"The graph of {card.name} gives {gives}, its card says {card.dimensions}"
        raise ModelMismatch(message, hint="correct the card, or use the graph that belongs to it")
    return frozenset(names)
