"""Settings for all tests: markers by directory, one browser, repeatable examples."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser import browser, used_tabs, visit
from tests.support.memory_files import use_memory_files
from tests.support.postgres_fixtures import database, pg
from tests.support.shared_model import share_default_model
from tests.support.tiers import FAST_EXAMPLES, IS_FULL, get_group, get_markers
from wikiholt import models
from wikiholt.api import bootstrap

__all__ = ["browser", "database", "pg", "used_tabs", "visit"]

_TESTS = Path(__file__).parent
_MODELS = _TESTS / "models"
_MAX_ID_LENGTH = 100
_MODEL_LOADERS = models.load_embedder, models.identify_model, bootstrap.open_backend

# All tests are imported first, and nothing of that is garbage: it is collected neither now nor between tests.
gc.disable()

# A run that fails can be repeated. `EXPLORE_TESTS=1` draws new examples, as `python -m tests.fuzz` does for longer.
_EVERY_PROFILE = {
    "deadline": None,
    "derandomize": not os.environ.get("EXPLORE_TESTS"),
    "suppress_health_check": [HealthCheck.too_slow],  # it measures the machine
}
settings.register_profile("fast", max_examples=FAST_EXAMPLES, **_EVERY_PROFILE)
settings.register_profile("full", max_examples=100, **_EVERY_PROFILE)
settings.load_profile("full" if IS_FULL else "fast")


@pytest.fixture(scope="session", autouse=True)
def user_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or writes the data directory of the user who runs it, or leaves a process behind."""
    directory = tmp_path_factory.mktemp("user-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIKIHOLT_SEARCH_KEEP_WARM", "0")
        patch.setenv("XDG_DATA_HOME", str(directory))
        yield directory


@pytest.fixture(scope="module", autouse=True)
def shared_model(request: pytest.FixtureRequest) -> Iterator[None]:
    """Load the default model once for all modules, except for those that test the loading."""
    if _MODELS in request.path.parents:
        yield
        return
    with share_default_model():
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Restore what `build_test_service` replaces with a fake model, so that later tests get the real one."""
    models.load_embedder, models.identify_model, bootstrap.open_backend = _MODEL_LOADERS


def pytest_configure() -> None:
    use_memory_files()


def pytest_collection_finish() -> None:
    gc.freeze()
    # Tests create many objects, and collections as often as by default take a few percent of the CPU time.
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the ids of long texts: one has a million characters, and every report contains the id."""
    if not isinstance(val, str | bytes) or len(val) <= _MAX_ID_LENGTH:
        return None
    return f"{ascii(val[:20])[1:-1]}..{len(val)}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the markers of resources by directory, and put the crash gate first and the unit tests last.

    The crash gate forks, and no earlier test may have left a thread behind that holds a lock. The tests of a file stay
    together (`--dist loadgroup`), so that its fixtures are created once. The largest groups, which share resources,
    come next; unit tests fill the gaps at the end.
    """
    files = {path: path.relative_to(_TESTS) for path in {item.path for item in items}}
    markers = {path: sorted(get_markers(file)) for path, file in files.items()}
    groups = {path: get_group(file) for path, file in files.items()}
    for item in items:
        for name in markers[item.path]:
            item.add_marker(name)
        item.add_marker(pytest.mark.xdist_group(groups[item.path] or files[item.path].as_posix()))
    items.sort(
        key=lambda item: ("test_crash_gate" not in item.nodeid, groups[item.path] is None, not markers[item.path])
    )
