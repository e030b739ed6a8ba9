"""Reads repositories of a hub with huggingface_hub, at one commit.

HF_ENDPOINT names another hub, HF_TOKEN gives access to private repositories. With HF_HUB_OFFLINE, repositories are read
from the cache of huggingface_hub (HF_HOME).
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikiholt.embedding.fetched_models import HubReference
from wikiholt.errors import ModelMissing, ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    return HubRepository(snapshot.name, _UNKNOWN_LICENCE, files, partial(_get_cached, snapshot))


def _get_cached(snapshot: Path, name: str) -> Path:
    return snapshot / name


@contextmanager
def _translated_errors(reference: HubReference) -> "Iterator[None]":
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
