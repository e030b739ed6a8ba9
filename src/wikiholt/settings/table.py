"""The table of settings. Everything that can be set is a row here, and nothing else can."""

import re
from pathlib import Path

from wikiholt.settings.setting import Setting
from wikiholt.vectors import CROSSOVER

LANGUAGES = (
    *("arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese"),
    *("romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish"),
)
ANCHORS = ("github", "otterwiki")


def url_fault(template: str) -> str:
    """What is wrong with the template of a link, or nothing."""
    if "{path}" not in template:
        return "it must contain {path}"
    odd = [name for name in re.findall(r"\{[^{}]*\}", template) if name != "{path}"]
    if odd:
        return f"{odd[0]} is not known, only {{path}} is"
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*):", template)
    return "a link must be http or https" if scheme and scheme[1].lower() not in ("http", "https") else ""


SETTINGS = (
    Setting(
        "data",
        Path,
        Path("wikiholt-data"),
        "The directory of indexes and registry. Relative to the directory the command runs in.",
    ),
    Setting("model", str, "all-MiniLM-L6-v2", "The embedding model: a known name, or the directory of an ONNX model."),
    Setting("precision", str, "int8", "The precision of the model's weights; which there are depends on the model."),
    Setting("threads", int, 0, "Threads the model may use; 0 means one for each core.", minimum=0, maximum=1024),
    Setting("chunk.target_tokens", int, 200, "How many tokens a passage should have.", minimum=20, maximum=8192),
    Setting(
        "chunk.overlap_tokens",
        int,
        50,
        "How many tokens neighbouring passages share; less than chunk.target_tokens.",
        minimum=0,
        maximum=4096,
    ),
    Setting("language", str, "english", "The language words are reduced to their stems in.", choices=LANGUAGES),
    Setting("anchors", str, "github", "Whose way of naming headings in links is followed.", choices=ANCHORS),
    Setting(
        "url",
        str,
        "{path}",
        "The link of a hit; {path} stands for the page, and the heading is added as a fragment.",
        check=url_fault,
    ),
    Setting(
        "vectors",
        str,
        "auto",
        "How nearest passages are found; auto is exact up to faiss.crossover passages.",
        choices=("auto", "exact", "faiss"),
    ),
    Setting(
        "faiss.crossover",
        int,
        CROSSOVER,
        "From how many passages on auto uses FAISS, where it is installed.",
        minimum=0,
    ),
    Setting(
        "page.max_bytes",
        int,
        10 * 1024 * 1024,
        "Larger pages are listed as problems and not indexed.",
        minimum=1024,
        maximum=1024**3,
    ),
    Setting(
        "lock.timeout",
        float,
        30.0,
        "Seconds to wait for another process that is writing the same index.",
        minimum=0,
        maximum=86_400,
    ),
    Setting("search.stale_check", bool, True, "Whether each answer says if the repository has moved on since."),
    Setting(
        "log.level",
        str,
        "warning",
        "How much is logged to standard error.",
        choices=("debug", "info", "warning", "error"),
    ),
)

WIKI_SETTINGS = (
    Setting("subdirectory", str, "", "The directory of the repository that holds the wiki; empty means the whole."),
    Setting(
        "ignore",
        tuple,
        (),
        "Files left out: patterns as in a .gitignore, separated by commas or on lines of their own.",
    ),
    Setting("language", str, "", "The wiki's language; empty means the general setting.", choices=("", *LANGUAGES)),
    Setting("anchors", str, "", "How headings are named in links; empty as above.", choices=("", *ANCHORS)),
    Setting(
        "url",
        str,
        "",
        "The link of a hit in this wiki; empty means the general setting.",
        check=lambda template: url_fault(template) if template else "",
    ),
)
