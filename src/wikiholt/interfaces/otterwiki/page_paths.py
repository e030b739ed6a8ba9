"""Page names as Otterwiki has them: small letters on disk, capitals on the page, unless it shall retain their case."""

from dataclasses import dataclass

from flask import current_app, request
from otterwiki.util import titleSs

from wikiholt.text.page_names import make_page_name


@dataclass(frozen=True, slots=True)
class OtterwikiPaths:
    """Translates paths as one request's wiki has them."""

    retain_case: bool
    root: str = ""
    """The path below which the wiki is mounted, without a slash at its end."""

    def to_display_path(self, path: str) -> str:
        return path if self.retain_case else "/".join(_capitalize(part) for part in path.split("/"))

    def to_display_title(self, name: str, path: str) -> str:
        """The page's own name; where it was only made from the file's, that as Otterwiki shows it."""
        last = path.rpartition("/")[2]
        return self.to_display_path(last) if name == make_page_name(last) else name

    def to_git_path(self, path: str) -> str:
        clean = "/".join(part for part in path.split("/") if part)
        return clean if self.retain_case else clean.lower()

    def to_link_path(self, path: str) -> str | None:
        return self.to_display_path(path)

    def to_url(self, url: str) -> str:
        return self.root + url if url.startswith("/") else url

    def to_git_prefix(self, prefix: str) -> str:
        clean = prefix.lstrip("/")
        return clean if self.retain_case else clean.lower()


def get_request_paths() -> OtterwikiPaths:
    """Those of the request being handled."""
    return OtterwikiPaths(bool(current_app.config.get("RETAIN_PAGE_NAME_CASE", False)), request.script_root)


def _capitalize(part: str) -> str:
    # A name that is not in small letters did not come by way of Otterwiki, which shows it as it is.
    return str(titleSs(part)) if part == part.lower() else part
