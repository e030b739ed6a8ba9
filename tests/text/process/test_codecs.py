"""Pages in other encodings are read even if the process may open no more files."""

import subprocess
import sys

import pytest

_DECODE_WITHOUT_FILES = """
import resource, sys
from wikiholt.text.charset import decode_bytes
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
sys.stdout.buffer.write(decode_bytes(sys.stdin.buffer.read()).text.encode())
"""


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_page_is_decoded_at_the_limit_of_open_files(encoding: str) -> None:
    text = "caf\u00e9, read as it was written"
    command = [sys.executable, "-c", _DECODE_WITHOUT_FILES]
    done = subprocess.run(command, input=text.encode(encoding), capture_output=True, check=False)
    assert done.stdout.decode() == text, done.stderr.decode()
