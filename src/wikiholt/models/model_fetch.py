"""Fetches an embedding model from a hub into a directory with a card.

Only the files that the model needs are downloaded, of one commit, and each is compared with the checksum that the hub
lists. No code of the repository is run. The directory appears complete or not at all.

HF_ENDPOINT names another hub, HF_TOKEN gives access to private repositories. With HF_HUB_OFFLINE, repositories are read
from the cache of huggingface_hub (HF_HOME).
"""

import hashlib
import io
import json
import os
import re
import secrets
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.errors import ModelCorrupt, ModelMissing, ModelRefused, ModelUnavailable, StorageError
from wikiholt.models import load_local_embedder
from wikiholt.models.model_card import CARD_FILE, read_card
from wikiholt.models.model_files import FetchedModel, HubReference, get_directory_name, list_fetched_models
from wikiholt.models.repository_config import (
    TOKENIZER,
    DenseModule,
    FetchOptions,
    RepositoryConfig,
    read_repository,
)
from wikiholt.models.self_test import QUESTIONS_AND_ANSWERS, estimate_scale
from wikiholt.regular_files import fsync_path

# Repositories of the hub, read with huggingface_hub at one commit.

_TRUE = frozenset({"1", "true", "yes", "on"})
_SHA256_PATTERN, _GIT_PATTERN = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")
_UNKNOWN_LICENCE = "unknown"
_LOCATE_FILE = "config.json"
"""A file of every repository that can be used."""
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, with the checksum that the hub lists: sha256 for large files, else git's object id."""

    name: str
    size: int
    sha256: str
    git_digest: str


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository at one commit. `download` returns the path of a file; its checksum is not verified yet."""

    commit: str
    licence: str
    files: Mapping[str, HubFile]
    download: Callable[[str], Path]


def open_repository(reference: HubReference, cache: Path) -> HubRepository:
    """The repository at the commit that its revision names now. Downloads go to `cache`.

    Raises ModelMissing if it does not exist or is private, ModelUnavailable if the hub cannot be reached.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
        return _open_cached(reference)
    import huggingface_hub  # noqa: PLC0415 - takes a tenth of a second, and only this command needs it

    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = huggingface_hub.HfApi(endpoint=endpoint)
    revision = reference.revision or None
    with _translated_errors(reference):
        info = api.model_info(reference.repository, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
    commit = str(info.sha)
    if not _GIT_PATTERN.fullmatch(commit):
        raise ModelUnavailable("The hub did not name a commit", hint="check HF_ENDPOINT")
    files = {file.name: file for file in map(_convert_file, info.siblings or ())}

    def download(name: str) -> Path:
        with _translated_errors(reference):
            path = huggingface_hub.hf_hub_download(
                reference.repository, name, revision=commit, cache_dir=cache, endpoint=endpoint
            )
        return Path(path)

    licence = getattr(info.card_data, "license", None) if info.card_data is not None else None
    return HubRepository(commit, str(licence or _UNKNOWN_LICENCE), files, download)


def _convert_file(sibling: Any) -> HubFile:
    sha256 = sibling.lfs.sha256 if sibling.lfs is not None else ""
    return HubFile(sibling.rfilename, int(sibling.size or 0), sha256, sibling.blob_id or "")


def _open_cached(reference: HubReference) -> HubRepository:
    """A repository in the cache of huggingface_hub, which names each file by its checksum."""
    import huggingface_hub  # noqa: PLC0415

    revision = reference.revision or "main"
    found = huggingface_hub.try_to_load_from_cache(reference.repository, _LOCATE_FILE, revision=revision)
    if not isinstance(found, str):
        hint = "unset HF_HUB_OFFLINE, or copy the cache of a machine that has it (HF_HOME)"
        raise ModelMissing(f"{reference} is not in the cache of huggingface_hub, and HF_HUB_OFFLINE is set", hint=hint)
    snapshot = Path(found).parent
    files: dict[str, HubFile] = {}
    for path in snapshot.rglob("*"):
        if path.is_file():
            name, digest = path.relative_to(snapshot).as_posix(), path.resolve().name
            sha256 = digest if _SHA256_PATTERN.fullmatch(digest) else ""
            git_digest = digest if _GIT_PATTERN.fullmatch(digest) else ""
            files[name] = HubFile(name, path.stat().st_size, sha256, git_digest)
    return HubRepository(snapshot.name, _UNKNOWN_LICENCE, files, snapshot.joinpath)


@contextmanager
def _translated_errors(reference: HubReference) -> Iterator[None]:
    """Translate the errors of huggingface_hub. Messages name no URL, which may contain a signature."""
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError  # noqa: PLC0415

    try:
        yield
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        hint = "check the name and revision; a private or gated model needs HF_TOKEN"
        raise ModelMissing(f"The hub has no {reference}, or does not show it", hint=hint) from error
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "unknown")
        if status in (401, 403):
            raise ModelMissing(f"The hub does not show {reference}", hint="set HF_TOKEN to a valid token") from error
        raise ModelUnavailable(f"The hub replied with status {status}", hint="try again later") from error
    except Exception as error:  # the HTTP library of huggingface_hub differs between its versions
        hint = "check the network and HF_ENDPOINT; without network, set HF_HUB_OFFLINE=1 to use the cache"
        raise ModelUnavailable(f"The hub cannot be reached ({type(error).__name__})", hint=hint) from error


# Directories of fetched models.

_TEMPORARY_PREFIX = ".fetch-"
_TEMPORARY_TTL_S = 86_400
_MAX_CONFIG_BYTES = 64 * 1024**2
_MAX_MODEL_BYTES = 8 * 1024**3
_HASH_BLOCK_BYTES = 1 << 20
_REFERENCES_FILE = "references.json"
_DENSE_FILE = "dense-{}.npz"
_FIDELITY = {"fp32": 0.9999}
_DEFAULT_FIDELITY = 0.99


def fetch_model(text: str, directory: Path, options: FetchOptions) -> FetchedModel:
    """Fetch `hf:org/name[@revision]` into a directory below `directory`, and test it.

    A model that is there already is not fetched again. Raises ModelRefused, ModelMissing, ModelUnavailable,
    ModelCorrupt, ModelSelfTestFailed, StorageError.
    """
    reference = HubReference.parse(text)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(directory)
        temporary = directory / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        temporary.mkdir()
        try:
            return _fetch(reference, directory, temporary, options)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"The model cannot be stored in {directory}: {reason}", hint="check the disk") from error


def _fetch(reference: HubReference, directory: Path, temporary: Path, options: FetchOptions) -> FetchedModel:
    repository = open_repository(reference, temporary / "hub")
    target = directory / get_directory_name(reference.repository, repository.commit)
    if not (target / CARD_FILE).is_file():
        built = temporary / "model"
        built.mkdir()
        _build_directory(reference, repository, built, options)
        _sync_to_disk(built)
        if target.exists():  # without a card: not a model
            shutil.rmtree(target)
        built.rename(target)
        fsync_path(directory)
    read_card(target / CARD_FILE)
    return next(model for model in list_fetched_models(directory) if model.directory == target)


def _build_directory(reference: HubReference, repository: HubRepository, built: Path, options: FetchOptions) -> None:
    def read(name: str) -> bytes | None:
        file = repository.files.get(name)
        if file is None:
            return None
        if file.size > _MAX_CONFIG_BYTES:
            raise ModelRefused(f"{name} of the repository has {file.size:,} bytes", hint="choose another revision")
        return _download(repository, file).read_bytes()

    config = read_repository(list(repository.files), read, options)
    total = sum(repository.files[name].size for name in config.files)
    if total > _MAX_MODEL_BYTES:
        raise ModelRefused(f"The model has {total:,} bytes", hint="run it on a server: model = openai:NAME")
    for name in config.files:
        if name not in {layer.file for layer in config.dense}:
            shutil.copyfile(_download(repository, repository.files[name]), built / PurePosixPath(name).name)
    for number, layer in enumerate(config.dense):
        data = _download(repository, repository.files[layer.file]).read_bytes()
        _convert_dense(data, layer, built / _DENSE_FILE.format(number))
    _test_and_describe(built, _CardDraft(reference.repository, repository.commit, repository.licence, config))


@dataclass(frozen=True, slots=True)
class _CardDraft:
    repository: str
    commit: str
    licence: str
    config: RepositoryConfig

    def format(self, files: Sequence[Path], scale: CosineScale | None) -> str:
        """The card as TOML. The references are listed if there is a scale, which is computed with them."""
        config, text = self.config, json.dumps
        lines = [
            f"# Made by `wikiholt model fetch` from {self.repository}, commit {self.commit}.",
            f"name = {text(self.repository.rpartition('/')[2])}",
            f"licence = {text(self.licence)}",
            f"dimensions = {config.dimensions}",
            f"width = {config.width}",
            f"window = {config.window}",
            f"pooling = {text(config.pooling)}",
            f"query_prefix = {text(config.query_prefix)}",
            f"passage_prefix = {text(config.passage_prefix)}",
            f"precision = {text(config.precision)}",
            f"tokenizer = {text(TOKENIZER)}",
        ]
        if scale is not None:
            lines += [
                f"unrelated = {scale.unrelated} # estimated; measure with `wikiholt eval`",
                f"alike = {scale.related}",
                f"references = {text(_REFERENCES_FILE)}",
            ]
        for number, layer in enumerate(config.dense):
            file = text(_DENSE_FILE.format(number))
            lines += ["[[dense]]", f"file = {file}", f"activation = {text(layer.activation)}"]
        lines += [f"[variants.{config.precision}]", f"graph = {text(PurePosixPath(config.graph).name)}"]
        lines += [f"weights = {text(PurePosixPath(config.weights).name)}"] if config.weights else []
        lines += [f"fidelity = {_FIDELITY.get(config.precision, _DEFAULT_FIDELITY)}", "[source]"]
        lines += [f"repository = {text(self.repository)}", f"commit = {text(self.commit)}", "[files]"]
        lines += [f"{text(file.name)} = {text(_compute_sha256(file))}" for file in sorted(files)]
        return "\n".join(lines) + "\n"


def _test_and_describe(built: Path, draft: _CardDraft) -> None:
    """Load the model, compute its references, write the final card, and run the self-test."""
    files = [path for path in built.iterdir() if path.is_file()]
    (built / CARD_FILE).write_text(draft.format(files, None), "utf-8")
    embedder = load_local_embedder(built, threads=1)
    questions = [embedder.embed_query(question) for question, _ in QUESTIONS_AND_ANSWERS]
    answers = list(embedder.embed_passages([answer for _, answer in QUESTIONS_AND_ANSWERS]))
    references = [
        {"text": answer, "vector": [round(float(number), 7) for number in vector]}
        for (_, answer), vector in zip(QUESTIONS_AND_ANSWERS, answers, strict=True)
    ]
    (built / _REFERENCES_FILE).write_text(json.dumps(references), "utf-8")
    files.append(built / _REFERENCES_FILE)
    (built / CARD_FILE).write_text(draft.format(files, estimate_scale(questions, answers)), "utf-8")
    embedder = load_local_embedder(built, threads=1)
    embedder.run_self_test()


def _download(repository: HubRepository, file: HubFile) -> Path:
    """Download a file and compare it with the checksum that the hub lists. Raises ModelCorrupt."""
    path = repository.download(file.name)
    size = path.stat().st_size
    digest = _compute_sha256(path) if file.sha256 else _compute_git_digest(path, size)
    if digest != (file.sha256 or file.git_digest):
        hint = "fetch it again; if it fails again, the hub or a proxy returns other data than it lists"
        raise ModelCorrupt(f"{file.name} has the wrong checksum {digest}", hint=hint)
    return path


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compute_git_digest(path: Path, size: int) -> str:
    """The object id of git, which the hub lists for files outside of LFS."""
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _convert_dense(data: bytes, layer: DenseModule, path: Path) -> None:
    """Write the weights of a dense layer as numpy arrays. Raises ModelRefused if they are not as configured."""
    tensors = _read_safetensors(data)
    weight = tensors.get("linear.weight")
    bias = tensors.get("linear.bias", np.zeros(layer.outputs, np.float32))
    is_valid = weight is not None and weight.shape == (layer.outputs, layer.inputs) and bias.shape == (layer.outputs,)
    if weight is None or not is_valid:
        raise ModelRefused(f"{layer.file} does not contain the layer of its configuration", hint="choose another model")
    buffer = io.BytesIO()
    np.savez(buffer, weight=weight, bias=bias)
    path.write_bytes(buffer.getvalue())


def _read_safetensors(data: bytes) -> Mapping[str, FloatArray]:
    """The fp32 tensors of a safetensors file. Raises ModelRefused."""
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header: dict[str, Any] = json.loads(data[8 : 8 + length])
        tensors: dict[str, FloatArray] = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "F32":
                raise ValueError(f"{name} is {entry['dtype']}")
            start, end = entry["data_offsets"]
            part = data[8 + length + start : 8 + length + end]
            tensors[name] = np.frombuffer(part, np.float32).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelRefused(f"A dense layer cannot be read: {error}", hint="choose another revision") from error
    return tensors


def _remove_leftovers(directory: Path) -> None:
    """Delete what a crash left behind a day ago or earlier; a younger directory may belong to another process."""
    for path in directory.iterdir():
        is_leftover = re.match(rf"{re.escape(_TEMPORARY_PREFIX)}|\.removed-", path.name)
        if is_leftover and time.time() - path.stat().st_mtime > _TEMPORARY_TTL_S:
            shutil.rmtree(path, ignore_errors=True)


def _sync_to_disk(directory: Path) -> None:
    for path in (*directory.iterdir(), directory):
        fsync_path(path)
