"""Models fetched from a hub: directories with a card in the data directory, named by repository and commit."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wikiholt.embedding.model_card import CARD_FILE, ModelCard, read_card
from wikiholt.errors import InvalidInput, ModelError, ModelMissing

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
