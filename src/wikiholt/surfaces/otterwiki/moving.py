"""Moving from otterwiki-semantic-search: its environment variables are understood, or named with what to do."""

import logging
import sys
from collections.abc import Mapping

_LOG = logging.getLogger(__name__)

_STORED = "Wikiholt keeps its index in SQLite beside the repository; unset it, or set WIKIHOLT_DATA to say where"
_CHROMA = f"{_STORED}. With WIKIHOLT_VECTORS=chroma nearest passages are looked for in Chroma"
_MODEL = "Wikiholt brings all-MiniLM-L6-v2; for another model set WIKIHOLT_MODEL to the directory of an ONNX model"
_ADVICE = {
    "CHROMADB_MODE": _CHROMA,
    "CHROMADB_HOST": _CHROMA,
    "CHROMADB_PORT": _CHROMA,
    "CHROMADB_PATH": _CHROMA,
    "CHROMA_COLLECTION": f"every wiki has an index of its own. {_CHROMA}",
    "FAISS_INDEX_DIR": _STORED,
    "BEDROCK_EMBED_DIMENSIONS": _MODEL,
}
_SAME_MODEL = ("all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2")

_OTHERS = {"otterwiki_semantic_search": "otterwiki-semantic-search", "otterwiki_api": "otterwiki-api"}


def understood(environ: Mapping[str, str]) -> dict[str, str]:
    """Our settings that its variables stand for; never raises."""
    interval = environ.get("CHROMA_SYNC_INTERVAL", "").strip()
    usable = interval.isdecimal() and 1 <= int(interval) <= 86_400
    return {"WIKIHOLT_SYNC_INTERVAL": interval} if usable else {}


def advise(environ: Mapping[str, str]) -> list[str]:
    """Log what to do about variables of it that mean nothing here, and about itself; returns the lines."""
    lines = [f"{name} is not used: {text}." for name, text in _ADVICE.items() if environ.get(name, "").strip()]
    if environ.get("VECTOR_BACKEND", "").strip().lower() not in ("", "faiss"):
        lines.append(f"VECTOR_BACKEND is not used: {_CHROMA}.")
    if environ.get("EMBEDDING_MODEL", "").strip().lower() not in ("", "local", "onnx"):
        lines.append(f"EMBEDDING_MODEL is not used: {_MODEL}.")
    if environ.get("SENTENCE_TRANSFORMER_MODEL", "").strip().lower() not in ("", *_SAME_MODEL):
        lines.append(f"SENTENCE_TRANSFORMER_MODEL is not used: {_MODEL}.")
    if environ.get("CHROMA_SYNC_INTERVAL", "").strip() and not understood(environ):
        lines.append("CHROMA_SYNC_INTERVAL is not used: it is no number of seconds; set WIKIHOLT_SYNC_INTERVAL.")
    for module, package in _OTHERS.items():
        if module in sys.modules:
            lines.append(
                f"{package} is installed as well and may answer in Wikiholt's place under /api/v1: uninstall it."
            )
    for line in lines:
        _LOG.warning("Wikiholt: %s", line)
    return lines
