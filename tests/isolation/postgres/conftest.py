"""Time limits of PostgreSQL that no busy machine exceeds: these tests have few connections and many threads."""

from collections.abc import Iterator

import pytest

from tests.support.wait import TIMEOUT_S
from wikiholt.index.postgres import address, pool

_LOCK_TIMEOUT_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def patient_connections() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "WIKI_LOCK_TIMEOUT_S", _LOCK_TIMEOUT_S)
        patch.setattr(pool, "OPERATOR_LOCK_TIMEOUT_S", _LOCK_TIMEOUT_S)
        patch.setitem(address._DEFAULT_PARAMETERS, "connect_timeout", "60")
        patch.setitem(pool.ConnectionPool.__init__.__kwdefaults__, "wait_timeout_s", TIMEOUT_S)
        yield
