"""The models of an installation: built-in, fetched and remote ones, and what uses them."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wikiholt.app.model_setup import get_models_directory, locate_model
from wikiholt.app.settings.definitions import Settings
from wikiholt.embedding.model_card import RERANKER
from wikiholt.embedding.model_files import (
    FetchedModel,
    ModelFiles,
    find_fetched_model,
    list_built_in_models,
    list_fetched_models,
    remove_fetched_model,
    resolve_model_name,
)
from wikiholt.embedding.remote_references import REMOTE_PREFIX, is_remote_model, list_references
from wikiholt.errors import ModelError, ModelMissing, NotFound, WikiholtError
from wikiholt.wikis.service import WikiService


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with what uses it: settings and wikis."""

    name: str
    kind: str
    """built-in, fetched or remote"""
    is_reranker: bool = False
    dimensions: int = 0
    """0 if it is not known, and for a reranker"""
    size_bytes: int = 0
    used_by: tuple[str, ...] = ()
    problem: str = ""
    path: Path | None = None
    """The directory of a fetched model, or the references of a remote one."""
    identifiers: tuple[str, ...] = ()
    """What settings and indexes call it."""


def list_models(settings: Settings, service: WikiService) -> list[KnownModel]:
    """Every built-in model, every fetched one, and every remote one that was used."""
    users = _find_users(settings, service)
    return [
        replace(model, used_by=tuple(user for name in model.identifiers for user in users.get(name, ())))
        for model in _iter_models(get_models_directory(settings))
    ]


def find_removable_model(settings: Settings, service: WikiService, name: str) -> KnownModel:
    """The fetched or remote model with this name. Raises NotFound."""
    models = [model for model in list_models(settings, service) if model.path is not None]
    found = [model for model in models if model.name == name]
    with suppress(WikiholtError):
        directory = find_fetched_model(name, get_models_directory(settings)).directory
        found = found or [model for model in models if model.path == directory]
    if not found:
        hint = "`wikiholt model list` shows all models; a built-in one is removed with its package"
        raise NotFound(f"There is no fetched or remote model {name!r}", hint=hint)
    return found[0]


def remove_model(model: KnownModel) -> None:
    """Delete a fetched model, or the stored vectors of a remote one."""
    assert model.path is not None
    if model.kind == "remote":
        # There is a file for each pair of prefixes.
        for path, references in list_references(model.path.parent):
            if f"{REMOTE_PREFIX}{references.model}" == model.name:
                path.unlink(missing_ok=True)
    else:
        remove_fetched_model(model.path)


def _iter_models(directory: Path) -> Iterator[KnownModel]:
    for name, built_in, card in list_built_in_models():
        problem = ""
        try:
            ModelFiles(built_in, card)
        except ModelMissing as error:
            problem = f"not installed: {error.hint}"
        is_reranker = card.kind == RERANKER
        dimensions = 0 if is_reranker else card.dimensions
        yield KnownModel(name, "built-in", is_reranker, dimensions, problem=problem, identifiers=(name,))
    for fetched in list_fetched_models(directory):
        yield _describe_fetched(fetched)
    for path, references in list_references(directory):
        name = f"{REMOTE_PREFIX}{references.model}"
        yield KnownModel(name, "remote", dimensions=references.dimensions, path=path, identifiers=(name,))


def _describe_fetched(fetched: FetchedModel) -> KnownModel:
    problem = "" if fetched.card is not None else "its card cannot be read"
    dimensions = fetched.card.dimensions if fetched.card is not None else 0
    return KnownModel(
        fetched.name,
        "fetched",
        dimensions=dimensions,
        size_bytes=fetched.size_bytes,
        problem=problem,
        path=fetched.directory,
        identifiers=(resolve_model_name(fetched.directory),),
    )


def _find_users(settings: Settings, service: WikiService) -> Mapping[str, list[str]]:
    """What uses each model: settings, and wikis whose index was built with it."""
    users: dict[str, list[str]] = {}
    named = {"model": settings.model, "rerank.model": settings.rerank_model}
    if is_remote_model(settings.model):
        named["embedding.local_model"] = settings.embedding_local_model
    for setting, name in named.items():
        if name:
            with suppress(ModelError):
                users.setdefault(resolve_model_name(locate_model(settings, name)), []).append(f"setting {setting}")
    for wiki in service.list_wikis():
        with suppress(WikiholtError):
            state = service.get_handle(wiki.slug).get_status().state
            if state is not None and state.recipe.model:
                users.setdefault(state.recipe.model, []).append(f"wiki {wiki.slug}")
    return users
