"""How a remote model is reached, and its reference vectors: stored at first use, compared with every reply."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.errors import ModelCorrupt, StorageError
from wikiholt.models.self_test import QUESTIONS_AND_ANSWERS, compute_cosine, estimate_scale

REMOTE_PREFIX = "openai:"


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The address of a server, and what the server does not say about its model."""

    url: str = ""
    key_variable: str = ""
    timeout_s: float = 30.0
    query_timeout_s: float = 5.0
    batch: int = 32
    max_tokens: int = 512
    query_prefix: str = ""
    passage_prefix: str = ""
    local_model: str = ""
    directory: Path = Path()
    """Where the references are stored."""

    @property
    def prefixes(self) -> tuple[str, str]:
        return self.query_prefix, self.passage_prefix


def is_remote_model(model: str | Path) -> bool:
    return isinstance(model, str) and model.startswith(REMOTE_PREFIX)


TextKind = Literal["passage", "query"]
ReferenceKey = tuple[TextKind, str]
CANARY_TEXT = "The cat sleeps on the sofa."
"""A passage that every request contains: its vector tells whether the server still runs the same model."""
_FORMAT_VERSION = 1
_ROUNDED_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class RemoteReferences:
    """What is known of a remote model: the vectors of the reference texts, by kind and text."""

    model: str
    prefixes: tuple[str, str]
    """The prefixes of queries and of passages."""
    vectors: Mapping[ReferenceKey, FloatArray]

    @property
    def dimensions(self) -> int:
        return len(self.canary)

    @property
    def canary(self) -> FloatArray:
        return self.vectors["passage", CANARY_TEXT]

    @property
    def fingerprint(self) -> str:
        """Changes with the model, its vectors and the prefixes. Rounded, so that a repeated measurement is equal."""
        digest = hashlib.sha256(json.dumps([self.model, *self.prefixes]).encode())
        for (kind, text), vector in sorted(self.vectors.items()):
            rounded = np.round(vector.astype(np.float64), _ROUNDED_DECIMALS) + 0.0  # no negative zero
            digest.update(f"{kind}:{text}".encode() + rounded.tobytes())
        return f"{re.sub(r'[^A-Za-z0-9._-]', '-', self.model)}/remote/{digest.hexdigest()[:8]}"

    @property
    def scale(self) -> CosineScale:
        questions = [self.vectors["query", question] for question, _ in QUESTIONS_AND_ANSWERS]
        return estimate_scale(questions, [self.vectors["passage", answer] for _, answer in QUESTIONS_AND_ANSWERS])

    def find_lowest_cosine(self, vectors: Mapping[ReferenceKey, FloatArray]) -> float:
        """The lowest cosine between a reference and the vector of the same text; -1 for another dimension."""
        pairs = [(vectors[key], known) for key, known in self.vectors.items()]
        return min(compute_cosine(new, known) if new.shape == known.shape else -1.0 for new, known in pairs)


def list_reference_texts() -> list[ReferenceKey]:
    """Every reference text with its kind, the canary first."""
    questions: list[ReferenceKey] = [("query", question) for question, _ in QUESTIONS_AND_ANSWERS]
    return [("passage", CANARY_TEXT), *questions, *(("passage", answer) for _, answer in QUESTIONS_AND_ANSWERS)]


def get_references_path(directory: Path, model: str, prefixes: tuple[str, str]) -> Path:
    """The file of a remote model's references; another one for other prefixes."""
    digest = hashlib.sha256(json.dumps([model, *prefixes]).encode()).hexdigest()[:8]
    return directory / f"openai--{re.sub(r'[^A-Za-z0-9._-]', '-', model)[:80]}--{digest}.json"


def find_references(model: str, options: RemoteOptions) -> RemoteReferences | None:
    """The stored references of `openai:NAME`; None before its first use. Raises ModelCorrupt."""
    return read_references(get_references_path(options.directory, model.removeprefix(REMOTE_PREFIX), options.prefixes))


def list_references(directory: Path) -> Iterator[tuple[Path, RemoteReferences]]:
    """The references of every remote model that was used, by file. Unreadable ones are left out."""
    for path in sorted(directory.glob("openai--*.json")) if directory.is_dir() else ():
        with suppress(ModelCorrupt):
            references = read_references(path)
            if references is not None:
                yield path, references


def read_references(path: Path) -> RemoteReferences | None:
    """The stored references; None if there are none. Raises ModelCorrupt."""
    try:
        document = json.loads(path.read_text("utf-8"))
        if document["version"] != _FORMAT_VERSION:
            raise ValueError(f"version {document['version']}")
        rows = {(row["kind"], row["text"]): np.array(row["vector"], np.float32) for row in document["references"]}
        references = RemoteReferences(document["model"], (document["prefixes"][0], document["prefixes"][1]), rows)
        if rows.keys() != set(list_reference_texts()):
            raise ValueError("other texts")
        if any(vector.shape != (references.dimensions,) for vector in rows.values()):
            raise ValueError("vectors of different lengths")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        hint = "delete the file to store the vectors of the server again; every index is then built again"
        raise ModelCorrupt(f"The references {path} cannot be read: {error}", hint=hint) from error
    return references


def write_references(path: Path, references: RemoteReferences) -> None:
    """Store the references, unless another process has. Raises StorageError."""
    rows = [
        {"kind": kind, "text": text, "vector": [round(float(number), 7) for number in vector]}
        for (kind, text), vector in references.vectors.items()
    ]
    document = {
        "version": _FORMAT_VERSION,
        "model": references.model,
        "prefixes": list(references.prefixes),
        "references": rows,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".references-", delete=False) as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            pass  # another process was first
        finally:
            Path(file.name).unlink()
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}", hint="check disk and permissions") from error
