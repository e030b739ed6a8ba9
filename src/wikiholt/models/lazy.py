"""Models that are loaded on first use, once per process. Imports neither onnxruntime nor tokenizers."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from wikiholt.domain.index import Recipe
from wikiholt.domain.protocols import Embedder, SupportsMemoryRelease
from wikiholt.errors import ModelError, ModelMismatch
from wikiholt.free_memory import release_free_memory

T = TypeVar("T")


class Lazy(Generic[T]):
    """Loads a value at the first call and returns the same value afterwards. Safe to use from many threads."""

    def __init__(self, load: Callable[[], T], retry_delay_s: float = 0.0) -> None:
        """After a failure, loading is retried after `retry_delay_s`; until then the same error is raised."""
        self._load = load
        self._retry_delay_s = retry_delay_s
        self._loaded: T | None = None
        self._failure: tuple[float, ModelError] | None = None
        self._lock = Lock()

    def __call__(self) -> T:
        """The loaded value. Raises ModelError."""
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
            release_free_memory()  # loading a model frees as much as it keeps
            return self._loaded

    def release_memory(self) -> None:
        """Release memory that a loaded model keeps for its next texts, and free memory of the process."""
        loaded = self._loaded
        if isinstance(loaded, SupportsMemoryRelease):
            loaded.release_memory()
        release_free_memory()


# Models of existing indexes that are not the current model.

_RETRY_DELAY_S = 60.0
"""How long the error of a failed load is repeated before loading is retried."""


class PreviousModels:
    """One instance per model and process, kept while somebody references it. Safe to use from many threads."""

    def __init__(self, load: Callable[[str, str | None], Embedder]) -> None:
        """`load` loads a model by name and precision."""
        self._load = load
        self._models: WeakValueDictionary[str, Embedder] = WeakValueDictionary()
        self._failures: dict[str, tuple[float, ModelError]] = {}
        self._lock = Lock()

    def __call__(self, recipe: Recipe) -> Embedder:
        """The model of this recipe. Raises ModelMissing, ModelCorrupt or ModelMismatch if it is no longer available."""
        with self._lock:
            model = self._models.get(recipe.fingerprint)
            if model is not None:
                return model
            retry_at, error = self._failures.get(recipe.fingerprint, (0.0, None))
            if error is not None and time.monotonic() < retry_at:
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
        loaded = self._load(recipe.model, recipe.precision or None)
        if loaded.fingerprint != recipe.fingerprint:
            raise ModelMismatch(
                f"the index was built with {recipe.fingerprint}; the installed model is {loaded.fingerprint}",
                hint="the next sync rebuilds the index with the current model",
            )
        return loaded
