"""Chooses the embedding model that the settings name: built-in, a directory, fetched from a hub, or on a server."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from wikiholt import embedding
from wikiholt.app.settings.definitions import Settings
from wikiholt.domain.index import CosineScale, Recipe
from wikiholt.domain.protocols import Embedder, ModelInfo
from wikiholt.embedding.lazy import Lazy, get_model_and_precision
from wikiholt.embedding.model_files import ModelIdentity, find_fetched_model, is_hub_model
from wikiholt.embedding.remote_references import RemoteOptions, is_remote_model
from wikiholt.errors import ModelError

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
    return embedding.load_embedder(
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
            return embedding.identify_model(locate_model(settings, settings.model), settings.precision or None)
        return identify_remote_model(settings, settings.model) or load_embedder(settings, settings.model, None)

    return cache(get_identity)


def identify_remote_model(settings: Settings, model: str) -> ModelIdentity | None:
    """The identity of a remote model as stored; None before its first use. Raises ModelError."""
    from wikiholt.embedding.remote_references import find_references  # noqa: PLC0415 - few settings need it

    references = find_references(model, build_remote_options(settings))
    if references is None:
        return None
    local, scale = settings.embedding_local_model, references.scale
    if local:
        scale = embedding.identify_model(locate_model(settings, local), None).scale
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
        identity = embedding.identify_model(*get_model_and_precision(recipe))
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
