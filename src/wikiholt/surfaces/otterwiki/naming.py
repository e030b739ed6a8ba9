"""Page names as Otterwiki has them: small letters on disk, capitals on the page, unless it shall retain their case."""

from dataclasses import dataclass

from flask import current_app, request
from otterwiki.util import titleSs

from wikiholt.text.page import file_name


@dataclass(frozen=True, slots=True)
class OtterNames:
    """Translates paths as one request's wiki has them."""

    retain_case: bool
    root: str = ""
    """The path below which the wiki is mounted, without a slash at its end."""

    def shown(self, path: str) -> str:
        return path if self.retain_case else "/".join(_capitals(part) for part in path.split("/"))

    def titled(self, name: str, path: str) -> str:
        """The page's own name; where it was only made from the file's, that as Otterwiki shows it."""
        last = path.rpartition("/")[2]
        return self.shown(last) if name == file_name(last) else name

    def meant(self, path: str) -> str:
        clean = "/".join(part for part in path.split("/") if part)
        return clean if self.retain_case else clean.lower()

    def spelled(self, path: str) -> str | None:
        return self.shown(path)

    def linked(self, url: str) -> str:
        return self.root + url if url.startswith("/") else url

    def prefix(self, prefix: str) -> str:
        clean = prefix.lstrip("/")
        return clean if self.retain_case else clean.lower()


def names_here() -> OtterNames:
    """Those of the request being handled."""
    return OtterNames(bool(current_app.config.get("RETAIN_PAGE_NAME_CASE", False)), request.script_root)


def _capitals(part: str) -> str:
    # A name that is not in small letters did not come by way of Otterwiki, which shows it as it is.
    return str(titleSs(part)) if part == part.lower() else part
