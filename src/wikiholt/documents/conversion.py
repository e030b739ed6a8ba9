"""Converts one document in a process that has limits and may die."""

import json
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from wikiholt.text.page_names import get_extension

_START = (
    "import sys; sys.path[:] = sys.argv[3:]; from wikiholt.documents import worker;"
    " worker.convert(sys.argv[1], reads_pictures=sys.argv[2] == 'True')"
)
_TIMEOUT_S = 180.0
_PICTURES_TIMEOUT_S = 900.0
_MAX_OUTPUT_BYTES = 64 * 1024**2


class UnreadableDocument(Exception):
    """The text of a document cannot be read, and why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ConvertedDocument:
    """The text of a document as Markdown, with its title in frontmatter, and warnings."""

    text: str
    warnings: tuple[str, ...] = ()


def convert_document(file: str, data: bytes, *, reads_pictures: bool = False) -> ConvertedDocument:
    """Convert a document, whose format its extension says. Raises UnreadableDocument.

    With `reads_pictures`, also the text of the pages of a PDF that are pictures.
    """
    # In some servers sys.executable is not Python.
    python = next((str(p) for p in (Path(sys.prefix, "bin", "python3"),) if p.exists()), sys.executable)
    command = [python, "-I", "-c", _START, get_extension(file), str(reads_pictures), *filter(None, sys.path)]
    with tempfile.TemporaryFile() as source:
        source.write(data)
        source.seek(0)
        try:
            # The process gets no environment: whatever the document does to it, there is nothing to find.
            process = subprocess.Popen(
                command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, start_new_session=True
            )
        except OSError as error:
            raise UnreadableDocument("failed", f"no process could be started to read it: {error}") from error
    timer = threading.Timer(_PICTURES_TIMEOUT_S if reads_pictures else _TIMEOUT_S, process.kill)
    timer.daemon = True
    timer.start()
    try:
        with process:
            assert process.stdout is not None
            output = process.stdout.read(_MAX_OUTPUT_BYTES)
            process.kill()  # it may wait for us to read more
    finally:
        timer.cancel()
    try:
        answer = json.loads(output)
    except ValueError:
        detail = f"the process that read it ended with code {process.returncode}"
        if process.returncode > 0:  # Python itself could not start, which says nothing about the document
            raise UnreadableDocument("failed", detail) from None
        raise UnreadableDocument("too-costly", f"{detail}: it takes too much time or memory, or is damaged") from None
    if "reason" in answer:
        raise UnreadableDocument(str(answer["reason"]), str(answer["detail"]))
    return ConvertedDocument(str(answer["text"]), tuple(map(str, answer["warnings"])))
