"""The process that reads one document from standard input and writes its Markdown, or why there is none, as JSON.

It limits its own memory and time before it reads anything.
"""

import json
import os
import resource
import signal
import sys
from contextlib import suppress

from wikiholt.documents.formats import DocumentFault, read_document

_MAX_CPU_S = 60
_MAX_PICTURES_CPU_S = 330
"""For pictures, and documents with pages that are pictures."""
_MAX_S = 1_000
"""The process ends then, even if the service that started it was killed."""
_MAX_MEMORY_BYTES = 2 * 1024**3


def convert(extension: str, *, reads_pictures: bool = False) -> None:
    """Convert the document on standard input, and end the process."""
    has_own_limit = resource.getrlimit(resource.RLIMIT_AS)[1] in (resource.RLIM_INFINITY, _MAX_MEMORY_BYTES)
    _set_limits(_MAX_PICTURES_CPU_S if reads_pictures else _MAX_CPU_S)
    try:
        text, warnings = read_document(extension, sys.stdin.buffer.read(), reads_pictures=reads_pictures)
        answer: dict[str, object] = {"text": text, "warnings": warnings}
    except DocumentFault as fault:
        answer = {"reason": fault.reason, "detail": fault.detail}
    except (MemoryError, RecursionError) as error:
        # If the service itself may use little memory now, the next sync tries again.
        reason = "too-costly" if has_own_limit else "failed"
        answer = {"reason": reason, "detail": f"reading it takes too much memory ({type(error).__name__})"}
    except Exception as error:  # noqa: BLE001 - a damaged file may raise anything
        answer = {"reason": "damaged", "detail": f"it cannot be read: {type(error).__name__}: {error}"[:300]}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # nothing of a library that read a damaged file runs any more


def _set_limits(max_cpu_s: int) -> None:
    signal.alarm(_MAX_S)
    limits = {"RLIMIT_CPU": max_cpu_s, "RLIMIT_AS": _MAX_MEMORY_BYTES, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
    for name, limit in limits.items():
        with suppress(ValueError, OSError, AttributeError):  # not every system has every limit
            resource.setrlimit(getattr(resource, name), (limit, limit))
