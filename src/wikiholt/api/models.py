"""The models of an installation: the one that the settings name, all others, and what uses them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from wikiholt import models
from wikiholt.api.settings.definitions import Settings
from wikiholt.domain.index import CosineScale, Recipe
from wikiholt.domain.protocols import Embedder, ModelInfo
from wikiholt.errors import ModelError, ModelMissing, NotFound, WikiholtError
from wikiholt.models.lazy import Lazy
from wikiholt.models.model_card import RERANKER
from wikiholt.models.model_files import (
    ModelFiles,
    ModelIdentity,
    find_fetched_model,
    is_hub_model,
    list_built_in_models,
    list_fetched_models,
    remove_fetched_model,
    resolve_model_name,
)
from wikiholt.models.remote_references import REMOTE_PREFIX, RemoteOptions, is_remote_model
from wikiholt.text.dialect import AUTO
from wikiholt.wikis.service import WikiService

_RETRY_DELAY_S = 10.0


def get_models_directory(settings: Settings) -> Path:
    """Where fetched models and the references of remote models are stored."""
    return settings.data / "models"


def make_embedder_loader(settings: Settings) -> Lazy[Embedder]:
    """A function that loads the model on its first call and returns the same one afterwards."""
    # Before its first use a server is asked when the model is loaded: searches must not wait for it one after another.
    retry_delay_s = _RETRY_DELAY_S if is_remote_model(settings.model) else 0.0
    return Lazy(lambda: load_embedder(settings, settings.model, settings.precision or None), retry_delay_s)


def load_embedder(settings: Settings, model: str, precision: str | None) -> Embedder:
    """Load a model that a setting or an index names. Raises ModelError."""
    return models.load_embedder(
        locate_model(settings, model),
        precision=precision,
        threads=settings.threads or None,
        device=settings.device,
        remote=build_remote_options(settings),
    )


def make_identity_getter(settings: Settings) -> Callable[[], ModelInfo]:
    """A function that describes the model without loading it, except at the first use of a remote model."""

    def get_identity() -> ModelInfo:
        if not is_remote_model(settings.model):
            return models.identify_model(locate_model(settings, settings.model), settings.precision or None)
        return identify_remote_model(settings, settings.model) or load_embedder(settings, settings.model, None)

    return cache(get_identity)


def identify_remote_model(settings: Settings, model: str) -> ModelIdentity | None:
    """The identity of a remote model as stored; None before its first use. Raises ModelError."""
    from wikiholt.models.remote_references import find_references  # noqa: PLC0415 - few settings need it

    references = find_references(model, build_remote_options(settings))
    if references is None:
        return None
    local, scale = settings.embedding_local_model, references.scale
    if local:
        scale = models.identify_model(locate_model(settings, local), None).scale
    return ModelIdentity(references.fingerprint, model, "remote", references.dimensions, scale)


def make_scale_getter(settings: Settings) -> Callable[[Recipe], CosineScale]:
    """A function that returns the cosine scale of an index's model; the identity if it is not available."""

    def get_remote_or_local_scale(recipe: Recipe) -> CosineScale:
        if not is_remote_model(recipe.model):
            return get_scale(recipe)
        with suppress(ModelError, OSError):
            identity = identify_remote_model(settings, recipe.model)
            if identity is not None and identity.fingerprint == recipe.fingerprint:
                return identity.scale
        return CosineScale()

    return cache(get_remote_or_local_scale)


def get_scale(recipe: Recipe) -> CosineScale:
    """The cosine scale of the recipe's model, by its model card; the identity if the model is not available."""
    with suppress(ModelError, OSError):
        identity = models.identify_model(recipe.model, recipe.precision or None)
        if identity.fingerprint == recipe.fingerprint:
            return identity.scale
    return CosineScale()


def locate_model(settings: Settings, model: str) -> str | Path:
    """The directory of a fetched model; another model as it is. Raises ModelMissing."""
    return find_fetched_model(model, get_models_directory(settings)).directory if is_hub_model(model) else model


def build_remote_options(settings: Settings) -> RemoteOptions:
    local = settings.embedding_local_model
    return RemoteOptions(
        url=settings.embedding_url,
        key_variable=settings.embedding_key_variable,
        timeout_s=settings.embedding_timeout,
        query_timeout_s=settings.embedding_query_timeout,
        batch=settings.embedding_batch,
        max_tokens=settings.embedding_max_tokens,
        query_prefix=settings.embedding_query_prefix,
        passage_prefix=settings.embedding_passage_prefix,
        local_model=str(locate_model(settings, local)) if local else "",
        directory=get_models_directory(settings),
    )


# All models: built-in, fetched and remote ones.


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
    from wikiholt.models.remote_references import list_references  # noqa: PLC0415 - see above

    assert model.path is not None
    if model.kind == "remote":
        # There is a file for each pair of prefixes.
        for path, references in list_references(model.path.parent):
            if f"{REMOTE_PREFIX}{references.model}" == model.name:
                path.unlink(missing_ok=True)
    else:
        remove_fetched_model(model.path)


def _iter_models(directory: Path) -> Iterator[KnownModel]:
    from wikiholt.models.remote_references import list_references  # noqa: PLC0415 - see above

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
        yield KnownModel(
            fetched.name,
            "fetched",
            dimensions=fetched.card.dimensions if fetched.card is not None else 0,
            size_bytes=fetched.size_bytes,
            problem="" if fetched.card is not None else "its card cannot be read",
            path=fetched.directory,
            identifiers=(resolve_model_name(fetched.directory),),
        )
    for path, references in list_references(directory):
        name = f"{REMOTE_PREFIX}{references.model}"
        yield KnownModel(name, "remote", dimensions=references.dimensions, path=path, identifiers=(name,))


def choose_reranker(settings: Settings) -> str:
    """The reranker of an installation; empty if there is none. The automatic one belongs to the default model."""
    if settings.rerank_model != AUTO:
        return settings.rerank_model
    return models.DEFAULT_RERANKER if settings.model == models.DEFAULT_MODEL else ""


def _find_users(settings: Settings, service: WikiService) -> Mapping[str, list[str]]:
    """What uses each model: settings, and wikis whose index was built with it."""
    users: dict[str, list[str]] = {}
    named = {"model": settings.model, "rerank.model": choose_reranker(settings)}
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
