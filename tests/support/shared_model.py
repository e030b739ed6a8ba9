"""Commands and services in the process of the tests share the default model: loading it takes 0.2 s of CPU time."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest

from wikiholt.models import DEFAULT_MODEL, model_loader
from wikiholt.models.model_loader import LoadedModel, load_model


@cache
def _load_default_model(*arguments: object, **options: object) -> LoadedModel:
    return load_model(DEFAULT_MODEL, *arguments, **options)  # type: ignore[arg-type]


@contextmanager
def share_default_model() -> Iterator[None]:
    """Load the default model once for this process."""

    def load(model: str | Path, *arguments: object, **options: object) -> LoadedModel:
        load_any = _load_default_model if model == DEFAULT_MODEL else partial(load_model, model)
        return load_any(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_loader, "load_model", load)
        yield
