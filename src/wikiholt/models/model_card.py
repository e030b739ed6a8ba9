"""A model's card: the TOML file that describes a model and lists its files with their digests."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from wikiholt.domain.index import CosineScale
from wikiholt.errors import ModelCorrupt

CARD_FILE = "card.toml"
POOLINGS = ("mean", "cls", "none")
ACTIVATIONS = ("identity", "tanh")
EMBEDDER, RERANKER = MODEL_KINDS = ("embedder", "reranker")
_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
_CARD_HINT = "docs/models.md shows a card field by field"


@dataclass(frozen=True, slots=True)
class WeightsPackage:
    """An installed package that contains model files; its code is never run."""

    distribution: str
    version: str
    package: str
    directory: str
    extra: str = ""
    """The extra of Wikiholt that installs it; empty if it is always installed."""

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True)
class ModelVariant:
    """One precision of a model. `weights` is a second file with the weights of the graph."""

    precision: str
    graph: str
    weights: str | None
    fidelity: float
    tolerance: float

    @property
    def files(self) -> tuple[str, ...]:
        return (self.graph,) if self.weights is None else (self.graph, self.weights)


@dataclass(frozen=True, slots=True)
class DenseFile:
    """A layer after the pooling, in a file of its own."""

    file: str
    activation: str


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The description of a model. `window` is the maximum number of tokens of one call, with special tokens.

    A reranker takes a query and a text in one call and returns one number: how well the text answers the query.
    """

    name: str
    kind: str
    dimensions: int
    window: int
    pooling: str
    normalise: bool
    query_prefix: str
    passage_prefix: str
    scale: CosineScale
    precision: str
    licence: str
    tokenizer: str
    references: str | None
    variants: Mapping[str, ModelVariant]
    digests: Mapping[str, str]
    weights_package: WeightsPackage | None
    dense: tuple[DenseFile, ...] = ()
    width: int = 0
    """The dimension of the graph's output; that of the vectors unless dense layers change it."""
    heads: int = 0
    """The attention heads of an encoder whose weights have our names, so that a GPU can run it; else 0."""


def read_card(path: Path) -> ModelCard:
    """Read the card in this file. Raises ModelCorrupt, naming the field, if it is invalid."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelCorrupt(f"The model card {path} is not TOML: {error}", hint=_CARD_HINT) from error
    return _CardReader(path).parse_card(table)


class _CardReader:
    """Parses one card; errors name its path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def parse_card(self, table: dict[str, Any]) -> ModelCard:
        digests = self._parse_digests(self._get_field(table, "files", dict))
        variants = {
            name: self._parse_variant(name, value) for name, value in self._get_field(table, "variants", dict).items()
        }
        kind = self._get_field(table, "kind", str, EMBEDDER)
        is_reranker = kind == RERANKER
        dimensions = 1 if is_reranker else self._get_positive(table, "dimensions")
        card = ModelCard(
            name=self._get_field(table, "name", str),
            kind=kind,
            dimensions=dimensions,
            window=self._get_positive(table, "window"),
            pooling="none" if is_reranker else self._get_field(table, "pooling", str),
            normalise=self._get_field(table, "normalise", bool, True),
            query_prefix=self._get_field(table, "query_prefix", str, ""),
            passage_prefix=self._get_field(table, "passage_prefix", str, ""),
            scale=CosineScale(self._get_number(table, "unrelated", 0.0), self._get_number(table, "alike", 1.0)),
            precision=self._get_field(table, "precision", str),
            licence=self._get_field(table, "licence", str),
            tokenizer=self._get_field(table, "tokenizer", str),
            references=self._get_optional(table, "references"),
            variants=variants,
            digests=digests,
            weights_package=self._parse_weights_package(table),
            dense=self._parse_dense(table),
            width=self._get_positive(table, "width") if "width" in table else dimensions,
            heads=self._get_positive(table, "heads") if "heads" in table else 0,
        )
        self._validate(card)
        return card

    def _validate(self, card: ModelCard) -> None:
        if card.kind not in MODEL_KINDS:
            raise self._make_error(f"kind is {card.kind!r}, not one of {', '.join(MODEL_KINDS)}")
        if not -1 <= card.scale.unrelated < card.scale.related <= 1:
            raise self._make_error("unrelated and alike are not two cosines in ascending order")
        if card.pooling not in POOLINGS:
            raise self._make_error(f"pooling is {card.pooling!r}, not one of {', '.join(POOLINGS)}")
        if card.precision not in card.variants:
            raise self._make_error(f"precision is {card.precision!r}, but there is no [variants.{card.precision}]")
        required = {card.tokenizer, *(file for variant in card.variants.values() for file in variant.files)}
        required.update(layer.file for layer in card.dense)
        if card.references is not None:
            required.add(card.references)
        if missing := sorted(required - card.digests.keys()):
            raise self._make_error(f"[files] has no sha256 for {', '.join(missing)}")

    def _parse_variant(self, precision: str, table: Any) -> ModelVariant:
        if not isinstance(table, dict):
            raise self._make_error(f"[variants.{precision}] is not a table")
        fidelity, tolerance = self._get_number(table, "fidelity", 0.999), self._get_number(table, "tolerance", 0.1)
        if not 0 < fidelity <= 1:
            raise self._make_error(f"fidelity of [variants.{precision}] is not a cosine between 0 and 1")
        if tolerance <= 0:
            raise self._make_error(f"tolerance of [variants.{precision}] is not a positive number")
        return ModelVariant(
            precision=precision,
            graph=self._get_field(table, "graph", str),
            weights=self._get_optional(table, "weights"),
            fidelity=fidelity,
            tolerance=tolerance,
        )

    def _parse_dense(self, table: dict[str, Any]) -> tuple[DenseFile, ...]:
        layers = []
        for row in self._get_field(table, "dense", list, []):
            if not isinstance(row, dict):
                raise self._make_error("dense is not a list of tables")
            activation = self._get_field(row, "activation", str, "identity")
            if activation not in ACTIVATIONS:
                raise self._make_error(f"activation is {activation!r}, not one of {', '.join(ACTIVATIONS)}")
            layers.append(DenseFile(self._get_field(row, "file", str), activation))
        return tuple(layers)

    def _parse_weights_package(self, table: dict[str, Any]) -> WeightsPackage | None:
        if "carrier" not in table:
            return None
        package = self._get_field(table, "carrier", dict)
        values = {
            key: self._get_field(package, key, str) for key in ("distribution", "version", "package", "directory")
        }
        return WeightsPackage(**values, extra=self._get_field(package, "extra", str, ""))

    def _parse_digests(self, table: dict[str, Any]) -> dict[str, str]:
        for file, digest in table.items():
            parts = PurePosixPath(file).parts
            if PurePosixPath(file).is_absolute() or ".." in parts or "\\" in file:
                raise self._make_error(f"the file {file!r} is outside the model's directory")
            if not isinstance(digest, str) or not _SHA256_PATTERN.fullmatch(digest):
                raise self._make_error(f"the digest of {file} is not 64 lower-case hexadecimal digits")
        return table

    def _get_field(self, table: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
        value = table.get(key, default)
        if value is None:
            raise self._make_error(f"{key} is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._make_error(f"{key} is {value!r}, not a {kind.__name__}")
        return value

    def _get_positive(self, table: dict[str, Any], key: str) -> int:
        value: int = self._get_field(table, key, int)
        if value < 1:
            raise self._make_error(f"{key} is {value}, not a positive number")
        return value

    def _get_number(self, table: dict[str, Any], key: str, default: float) -> float:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._make_error(f"{key} is {value!r}, not a number")
        return float(value)

    def _get_optional(self, table: dict[str, Any], key: str) -> str | None:
        value: str | None = self._get_field(table, key, str) if key in table else None
        return value

    def _make_error(self, problem: str) -> ModelCorrupt:
        return ModelCorrupt(f"The model card {self._path} is invalid: {problem}", hint=_CARD_HINT)
