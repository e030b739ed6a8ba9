"""Freed memory returns to the system, but not all the time."""

import os
import platform
import subprocess
import sys
import time

import pytest

from wikiholt.free_memory import MemoryReleaser, release_free_memory, use_one_arena

# Threads free small pieces between others that stay, so that the C library keeps them.
READ_OWN_BYTES = """
def read_own_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous"))
"""
FREE_MUCH = f"""
from threading import Thread
from wikiholt.free_memory import release_free_memory
{READ_OWN_BYTES}
def work():
    blocks = [b"x" * 60_000 for _ in range(1000)]
    kept.append(blocks[-1])

kept = []
for _ in range(2):
    thread = Thread(target=work)
    thread.start()
    thread.join()
before = read_own_bytes()
release_free_memory()
print(before - read_own_bytes())
"""


COUNT_ARENAS = """
import ctypes, sys, time
from threading import Thread
from wikiholt.free_memory import use_one_arena

if sys.argv[1] == "one":
    use_one_arena()
for _ in range(4):
    Thread(target=lambda: (b"x" * 60_000, time.sleep(0.5))).start()
time.sleep(0.2)
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""
EMBED_MUCH = f"""
from wikiholt import models
from wikiholt.models.lazy import Lazy
{READ_OWN_BYTES}
lazy = Lazy(models.load_embedder)
lazy.release_memory()
texts = ["word " * 300] * 8
before = lazy().embed_passages(texts)
for _ in range(5):  # how much the C library keeps differs each time
    assert (before == lazy().embed_passages(texts)).all()
    lazy().embed_query("word")
    large = read_own_bytes()
    lazy.release_memory()
    print(large - read_own_bytes())
assert (before == lazy().embed_passages(texts)).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="smaps and glibc")
def test_memory_that_threads_have_freed_returns_to_the_system() -> None:
    environ = os.environ | {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    done = subprocess.run([sys.executable, "-c", FREE_MUCH], env=environ, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20_000_000


@pytest.mark.skipif("glibc" not in platform.libc_ver()[0], reason="arenas of glibc")
def test_threads_can_share_one_arena() -> None:
    counts = {}
    for kind in ("many", "one"):
        done = subprocess.run([sys.executable, "-c", COUNT_ARENAS, kind], capture_output=True, text=True, check=True)
        counts[kind] = done.stdout.count("<heap nr=")
    assert counts["one"] == 1 < counts["many"]


@pytest.mark.model
@pytest.mark.skipif(sys.platform != "linux", reason="smaps")
def test_memory_that_a_model_keeps_for_long_texts_is_released() -> None:
    done = subprocess.run([sys.executable, "-c", EMBED_MUCH], capture_output=True, text=True, check=True)
    assert sum(map(int, done.stdout.split())) > 2_000_000, done.stdout  # 0 without a release, 6 to 31 million with it


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr("ctypes.CDLL", lambda name: opened.append(name) or object())
    release_free_memory()
    use_one_arena()
    assert opened == [None, None], "neither function of glibc was looked for"


def test_releases_take_a_small_share_of_the_time() -> None:
    calls: list[str] = []

    def release_slowly() -> None:
        time.sleep(0.5)
        calls.append("slow")

    releaser = MemoryReleaser(release_slowly)
    for _ in range(10):
        releaser.release()
    assert calls == ["slow"]
    quick = MemoryReleaser(lambda: calls.append("quick"))
    quick.release(3600)
    quick.release(3600)
    assert calls == ["slow", "quick"]


def test_an_error_of_a_release_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("no memory to release")

    MemoryReleaser(fail).release()
    assert "no memory to release" in caplog.text
