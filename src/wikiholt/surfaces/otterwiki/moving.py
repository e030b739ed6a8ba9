"""Moving from otterwiki-semantic-search: its environment variables are understood, or named with what to do."""

import logging
import sys
from collections.abc import Mapping

_log = logging.getLogger(__name__)

_STORAGE_ADVICE = "Wikiholt keeps its index in SQLite beside the repository; unset it, or set WIKIHOLT_DATA to say where"
_CHROMA_ADVICE = f"{_STORAGE_ADVICE}. With WIKIHOLT_VECTORS=chroma nearest passages are looked for in Chroma"
_MODEL_ADVICE = "Wikiholt brings all-MiniLM-L6-v2; for another model set WIKIHOLT_MODEL to the directory of an ONNX model"
_ADVICE_BY_VARIABLE = {
    "CHROMADB_MODE": _CHROMA_ADVICE,
    "CHROMADB_HOST": _CHROMA_ADVICE,
    "CHROMADB_PORT": _CHROMA_ADVICE,
    "CHROMADB_PATH": _CHROMA_ADVICE,
    "CHROMA_COLLECTION": f"every wiki has an index of its own. {_CHROMA_ADVICE}",
    "FAISS_INDEX_DIR": _STORAGE_ADVICE,
    "BEDROCK_EMBED_DIMENSIONS": _MODEL_ADVICE,
}
_DEFAULT_MODEL_NAMES = ("all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2")

_CONFLICTING_PACKAGES = {"otterwiki_semantic_search": "otterwiki-semantic-search", "otterwiki_api": "otterwiki-api"}


def translate_legacy_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Our settings that its variables stand for; never raises."""
    interval = environ.get("CHROMA_SYNC_INTERVAL", "").strip()
    usable = interval.isdecimal() and 1 <= int(interval) <= 86_400
    return {"WIKIHOLT_SYNC_INTERVAL": interval} if usable else {}


def log_legacy_advice(environ: Mapping[str, str]) -> list[str]:
    """Log what to do about variables of it that mean nothing here, and about itself; returns the lines."""
    lines = [f"{name} is not used: {text}." for name, text in _ADVICE_BY_VARIABLE.items() if environ.get(name, "").strip()]
    if environ.get("VECTOR_BACKEND", "").strip().lower() not in ("", "faiss"):
        lines.append(f"VECTOR_BACKEND is not used: {_CHROMA_ADVICE}.")
    if environ.get("EMBEDDING_MODEL", "").strip().lower() not in ("", "local", "onnx"):
        lines.append(f"EMBEDDING_MODEL is not used: {_MODEL_ADVICE}.")
    if environ.get("SENTENCE_TRANSFORMER_MODEL", "").strip().lower() not in ("", *_DEFAULT_MODEL_NAMES):
        lines.append(f"SENTENCE_TRANSFORMER_MODEL is not used: {_MODEL_ADVICE}.")
    if environ.get("CHROMA_SYNC_INTERVAL", "").strip() and not translate_legacy_settings(environ):
        lines.append("CHROMA_SYNC_INTERVAL is not used: it is no number of seconds; set WIKIHOLT_SYNC_INTERVAL.")
    for module, package in _CONFLICTING_PACKAGES.items():
        if module in sys.modules:
            lines.append(
                f"{package} is installed as well and may answer in Wikiholt's place under /api/v1: uninstall it."
            )
    for line in lines:
        _log.warning("Wikiholt: %s", line)
    return lines
