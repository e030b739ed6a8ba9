"""The child processes that read a Chroma directory are forks of one that has imported Chroma."""

import subprocess
from functools import partial

import pytest

from tests.support.fork_server import CHROMA_MODULES, ForkedPopen


@pytest.fixture(autouse=True)
def fork_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", partial(ForkedPopen, modules=CHROMA_MODULES))
