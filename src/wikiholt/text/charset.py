"""Decodes bytes into text that every store can save: valid UTF-8, `\\n` line ends, no control characters."""

import codecs
import re
from dataclasses import dataclass

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL_BYTES = bytes(b for b in range(32) if b not in b"\t\n\r\f\x0b\x1b") + b"\x7f"
_UNUSUAL_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff]")
_LINE_END = re.compile(r"(?<!\r)\r++\n")  # looked for once per run of carriage returns, not from each of them
_SAMPLE_BYTES = 65536
_LEGACY_ENCODING = "cp1252"

# Python reads a codec from a file when it is first used, and that fails if the process may open no more files.
for _encoding in (_LEGACY_ENCODING, *(name for _, name in _BOMS)):
    codecs.lookup(_encoding)


@dataclass(frozen=True, slots=True)
class DecodedText:
    text: str
    warnings: tuple[str, ...] = ()


def decode_bytes(data: bytes) -> DecodedText | None:
    """The text of a file, or None if the bytes are not text."""
    warnings: list[str] = []
    raw = _decode_characters(data, warnings)
    if raw is None:
        return None
    text = _normalize_line_ends(raw)
    cleaned = clean_text(text)
    if len(cleaned) != len(text):
        warnings.append("control characters were removed")
    return DecodedText(cleaned, tuple(warnings))


def is_wide_encoding(data: bytes) -> bool:
    """Whether a file is UTF-16 or UTF-32, so that its bytes are not those of its UTF-8 text."""
    return data.startswith(tuple(bom for bom, encoding in _BOMS if encoding != "utf-8")) or bool(
        _detect_wide_encoding(data)
    )


def clean_text(text: str) -> str:
    """The text without control characters and lone surrogates; line ends and tabs are kept."""
    if text.replace("\n", "").isprintable():  # most texts, in a fifth of the time
        return text
    return _CONTROL_CHARACTERS.sub("", _UNUSUAL_SPACES.sub(" ", text))


def to_one_line(text: str) -> str:
    """The cleaned text with every run of whitespace replaced by one space."""
    if " " not in text and text.isprintable():
        return text
    return " ".join(clean_text(text).split())


def _decode_characters(data: bytes, warnings: list[str]) -> str | None:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            text = data[len(bom) :].decode(encoding, "replace")
            if "\ufffd" in text:
                warnings.append(f"the file is not valid {encoding}; unreadable bytes were replaced")
            return text
    wide = _detect_wide_encoding(data)
    if wide:
        warnings.append(f"the file was read as {wide}; it has no byte order mark")
        return data.decode(wide, "replace")
    controls = _measure_control_share(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        # About one ninth of compressed or compiled data are control bytes; text in a legacy encoding has almost none.
        if controls > 0.03:
            return None
        warnings.append("the file is not valid UTF-8; it was read as Windows-1252")
        return _decode_legacy(data)
    return None if controls > 0.3 and len(data) > 64 else text


def _decode_legacy(data: bytes) -> str:
    try:
        return data.decode(_LEGACY_ENCODING)
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _measure_control_share(data: bytes) -> float:
    sample = data[:_SAMPLE_BYTES]
    return (len(sample) - len(sample.translate(None, _CONTROL_BYTES))) / max(len(sample), 1)


def _detect_wide_encoding(data: bytes) -> str | None:
    """UTF-16 without a byte order mark has a NUL in nearly every second byte."""
    sample = data[:4096]
    half = len(sample) // 2
    if half < 4 or len(data) % 2 or 0 not in sample:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > half * 0.7 and not even:
        return "utf-16-le"
    if even > half * 0.7 and not odd:
        return "utf-16-be"
    return None


def _normalize_line_ends(text: str) -> str:
    if "\r" not in text:
        return text
    if "\n" not in text:
        return text.replace("\r", "\n")
    # git and editors count `\n`; a stray carriage return must not shift the lines that follow
    return _LINE_END.sub("\n", text).replace("\r", " ")
