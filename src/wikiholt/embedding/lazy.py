"""A part that is loaded when it is first needed, once a process."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from wikiholt import embedding
from wikiholt.domain.index import Recipe
from wikiholt.domain.protocols import Embedder
from wikiholt.errors import ModelError, ModelMismatch, ModelMissing

T = TypeVar("T")


class Lazy(Generic[T]):
    """Loads at the first call and gives the same ever after. Safe to use from many threads: they wait for one."""

    def __init__(self, load: Callable[[], T], retry_delay_s: float = 0.0) -> None:
        """What could not be loaded is tried again after so many seconds; until then the same error is raised."""
        self._load = load
        self._retry_delay_s = retry_delay_s
        self._loaded: T | None = None
        self._failure: tuple[float, ModelError] | None = None
        self._lock = Lock()

    def __call__(self) -> T:
        """What was loaded; raises ModelError."""
        with self._lock:
            if self._loaded is not None:
                return self._loaded
            if self._failure is not None and time.monotonic() < self._failure[0]:
                raise self._failure[1]
            try:
                self._loaded = self._load()
            except ModelError as error:
                self._failure = (time.monotonic() + self._retry_delay_s, error)
                raise
            return self._loaded


# Models that indexes were built with and that are not today's: loaded while an index needs them, and let go after.


_RETRY_DELAY_S = 60.0
"""Seconds until a model is tried again that could not be loaded."""


class PreviousModels:
    """One of each for a whole process, kept as long as somebody holds it. Safe to use from many threads."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._models: WeakValueDictionary[str, Embedder] = WeakValueDictionary()
        self._failures: dict[str, tuple[float, ModelError]] = {}
        self._lock = Lock()

    def __call__(self, recipe: Recipe) -> Embedder:
        """The model of this recipe; raises ModelMissing, ModelCorrupt or ModelMismatch when it is there no more."""
        with self._lock:
            held = self._models.get(recipe.fingerprint)
            if held is not None:
                return held
            until, error = self._failures.get(recipe.fingerprint, (0.0, None))
            if error is not None and time.monotonic() < until:
                raise error
            try:
                loaded = self._load_model(recipe)
            except ModelError as failure:
                self._failures[recipe.fingerprint] = (time.monotonic() + _RETRY_DELAY_S, failure)
                raise
            self._failures.pop(recipe.fingerprint, None)
            self._models[recipe.fingerprint] = loaded
            return loaded

    def _load_model(self, recipe: Recipe) -> Embedder:
        hint = "a sync builds the index with the model that is set now"
        model, precision = get_model_and_precision(recipe)
        if not model:
            raise ModelMissing("the index does not say which model it was built with", hint=hint)
        loaded = embedding.load_embedder(model, precision=precision, threads=self._threads)
        if loaded.fingerprint != recipe.fingerprint:
            raise ModelMismatch(
                f"the index was built with {recipe.fingerprint}; what lies in its place is {loaded.fingerprint}",
                hint=hint,
            )
        return loaded


def get_model_and_precision(recipe: Recipe) -> tuple[str, str | None]:
    """Name and precision of the model that an index was built with; no name where it says none."""
    # An index from before the model's name was kept tells it by its fingerprint, as far as it is a built-in one.
    name, _, rest = recipe.fingerprint.partition("/")
    return recipe.model or name, recipe.precision or rest.partition("/")[0] or None
