"""A model's card: the small TOML file that says what a model is and which files, by digest, it is made of."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from wikiholt.errors import ModelCorrupt
from wikiholt.model import Scale

CARD = "card.toml"
POOLINGS = ("mean", "cls", "none")
EMBEDDER, RERANKER = KINDS = ("embedder", "reranker")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HINT = "docs/models.md shows a card field by field"


@dataclass(frozen=True, slots=True)
class Carrier:
    """An installed package whose files are read and whose code is never run."""

    distribution: str
    version: str
    package: str
    directory: str
    extra: str = ""
    """The extra of Wikiholt that brings it, where it does not come along anyway."""

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One precision of a model. With a layout, the graph's weights are cut from `weights` as the layout says."""

    precision: str
    graph: str
    weights: str | None
    layout: str | None
    smoothing: str | None
    fidelity: float
    tolerance: float

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for file in (self.graph, self.weights, self.layout, self.smoothing) if file is not None)


@dataclass(frozen=True, slots=True)
class Card:
    """What a model is. `window` counts the tokens of one call, special tokens included.

    A reranker reads a query and a text in one call and gives one number: how well the text answers the query.
    """

    name: str
    kind: str
    dimensions: int
    window: int
    pooling: str
    normalise: bool
    query_prefix: str
    passage_prefix: str
    scale: Scale
    precision: str
    licence: str
    tokenizer: str
    references: str | None
    variants: Mapping[str, Variant]
    digests: Mapping[str, str]
    carrier: Carrier | None


def read_card(path: Path) -> Card:
    """The card in this file; raises ModelCorrupt, naming the field, when it is not one."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelCorrupt(f"The model card {path} is not TOML: {error}", hint=_HINT) from error
    return _Reader(path).card(table)


class _Reader:
    """Reads one card and knows its path, so that every complaint names it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def card(self, table: dict[str, Any]) -> Card:
        digests = self._digests(self._field(table, "files", dict))
        variants = {name: self._variant(name, value) for name, value in self._field(table, "variants", dict).items()}
        kind = self._field(table, "kind", str, EMBEDDER)
        one_number = kind == RERANKER
        card = Card(
            name=self._field(table, "name", str),
            kind=kind,
            dimensions=1 if one_number else self._positive(table, "dimensions"),
            window=self._positive(table, "window"),
            pooling="none" if one_number else self._field(table, "pooling", str),
            normalise=self._field(table, "normalise", bool, True),
            query_prefix=self._field(table, "query_prefix", str, ""),
            passage_prefix=self._field(table, "passage_prefix", str, ""),
            scale=Scale(self._number(table, "unrelated", 0.0), self._number(table, "alike", 1.0)),
            precision=self._field(table, "precision", str),
            licence=self._field(table, "licence", str),
            tokenizer=self._field(table, "tokenizer", str),
            references=self._optional(table, "references"),
            variants=variants,
            digests=digests,
            carrier=self._carrier(table),
        )
        self._check(card)
        return card

    def _check(self, card: Card) -> None:
        if card.kind not in KINDS:
            raise self._wrong(f"kind is {card.kind!r}, not one of {', '.join(KINDS)}")
        if not -1 <= card.scale.unrelated < card.scale.alike <= 1:
            raise self._wrong("unrelated and alike are not two cosines, the second larger")
        if card.pooling not in POOLINGS:
            raise self._wrong(f"pooling is {card.pooling!r}, not one of {', '.join(POOLINGS)}")
        if card.precision not in card.variants:
            raise self._wrong(f"precision is {card.precision!r}, but there is no [variants.{card.precision}]")
        named = {card.tokenizer, *(file for variant in card.variants.values() for file in variant.files)}
        if card.references is not None:
            named.add(card.references)
        if missing := sorted(named - card.digests.keys()):
            raise self._wrong(f"[files] gives no sha256 for {', '.join(missing)}")

    def _variant(self, precision: str, table: Any) -> Variant:
        if not isinstance(table, dict):
            raise self._wrong(f"[variants.{precision}] is not a table")
        fidelity, tolerance = self._number(table, "fidelity", 0.999), self._number(table, "tolerance", 0.1)
        if not 0 < fidelity <= 1:
            raise self._wrong(f"fidelity of [variants.{precision}] is not a cosine between 0 and 1")
        if tolerance <= 0:
            raise self._wrong(f"tolerance of [variants.{precision}] is not a positive number")
        return Variant(
            precision=precision,
            graph=self._field(table, "graph", str),
            weights=self._optional(table, "weights"),
            layout=self._optional(table, "layout"),
            smoothing=self._optional(table, "smoothing"),
            fidelity=fidelity,
            tolerance=tolerance,
        )

    def _carrier(self, table: dict[str, Any]) -> Carrier | None:
        if "carrier" not in table:
            return None
        carrier = self._field(table, "carrier", dict)
        values = {key: self._field(carrier, key, str) for key in ("distribution", "version", "package", "directory")}
        return Carrier(**values, extra=self._field(carrier, "extra", str, ""))

    def _digests(self, table: dict[str, Any]) -> dict[str, str]:
        for file, digest in table.items():
            parts = PurePosixPath(file).parts
            if PurePosixPath(file).is_absolute() or ".." in parts or "\\" in file:
                raise self._wrong(f"the file {file!r} lies outside the model's directory")
            if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
                raise self._wrong(f"the digest of {file} is not 64 lower-case hexadecimal digits")
        return table

    def _field(self, table: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
        value = table.get(key, default)
        if value is None:
            raise self._wrong(f"{key} is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._wrong(f"{key} is {value!r}, not a {kind.__name__}")
        return value

    def _positive(self, table: dict[str, Any], key: str) -> int:
        value: int = self._field(table, key, int)
        if value < 1:
            raise self._wrong(f"{key} is {value}, not a positive number")
        return value

    def _number(self, table: dict[str, Any], key: str, default: float) -> float:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(f"{key} is {value!r}, not a number")
        return float(value)

    def _optional(self, table: dict[str, Any], key: str) -> str | None:
        value: str | None = self._field(table, key, str) if key in table else None
        return value

    def _wrong(self, what: str) -> ModelCorrupt:
        return ModelCorrupt(f"The model card {self._path} is wrong: {what}", hint=_HINT)
