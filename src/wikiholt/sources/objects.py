"""Blobs read straight from git's object store, many in one conversation.

Requests go out in small windows, the next one only after every answer to the last: neither side can ever wait for
the other with a full pipe. An object that git chokes on ends git; it is given as missing and git is started again.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from wikiholt.model import Blob
from wikiholt.sources.command import GitRunner
from wikiholt.sources.conversation import GitProcess

# 60 ids of 64 digits stay below 4096 bytes, what every system's pipe takes without blocking.
_REQUESTS_IN_FLIGHT = 60
_READ_BLOCK_BYTES = 1 << 16
_OBJECT_ID_PATTERN = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_blobs(git: GitRunner, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
    """The blobs in the order asked for; missing, damaged and larger ones without their data."""
    wanted = iter(blobs)
    window = list(islice(wanted, _REQUESTS_IN_FLIGHT))
    while window:
        with git.start("cat-file", "--batch") as conversation:
            while window:
                answered = 0
                for blob in _read_answers(conversation, window, limit):
                    answered += 1
                    yield blob
                if answered < len(window):
                    window = window[answered:]
                    break
                window = list(islice(wanted, _REQUESTS_IN_FLIGHT))
        if window:
            _check_repository(git)
            yield Blob(window.pop(0), -1, None)
            window = window or list(islice(wanted, _REQUESTS_IN_FLIGHT))


def _read_answers(process: GitProcess, ids: list[str], limit: int) -> Iterator[Blob]:
    """One blob an id, ending early when git is gone."""
    sane = [blob for blob in ids if _OBJECT_ID_PATTERN.fullmatch(blob)]
    if sane and not process.write("".join(f"{blob}\n" for blob in sane).encode()):
        return
    for blob in ids:
        if not _OBJECT_ID_PATTERN.fullmatch(blob):
            yield Blob(blob, -1, None)
            continue
        answer = _read_answer(process, blob, limit)
        if answer is None:
            return
        yield answer


def _read_answer(process: GitProcess, blob: str, limit: int) -> Blob | None:
    """The answer to one request; None when git is gone before it was complete."""
    header = process.read_line().split()
    if header == [blob.encode(), b"missing"]:
        return Blob(blob, -1, None)
    if len(header) != 3 or header[0] != blob.encode():
        return None
    kind, size = header[1], int(header[2])
    if kind != b"blob" or size > limit:
        if not _skip_bytes(process, size + 1):
            return None
        return Blob(blob, size if kind == b"blob" else -1, None)
    data = process.read(size + 1)
    if len(data) != size + 1:
        return None
    content = data[:-1]
    # Git does not check what it streams; the index must never hold text that its blob id does not stand for.
    return Blob(blob, size, content) if hash_object(content, blob) == blob else Blob(blob, -1, None)


def _skip_bytes(process: GitProcess, size: int) -> bool:
    while size > 0:
        block = process.read(min(size, _READ_BLOCK_BYTES))
        if not block:
            return False
        size -= len(block)
    return True


def hash_object(content: bytes, sample_id: str, kind: str = "blob") -> str:
    """The id git gives to this content, in the repository that gave the id `like`."""
    algorithm = "sha1" if len(sample_id) == 40 else "sha256"
    digest = hashlib.new(algorithm, f"{kind} {len(content)}\0".encode(), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def _check_repository(git: GitRunner) -> None:
    """Raise unless git can work in the repository at all: then it was the object, and only that object is lost."""
    probe = git.run("rev-parse", "--git-dir")
    if probe.status != 0:
        raise probe.to_error("read the repository")
